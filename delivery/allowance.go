package delivery

// allowance is Finch's rule about who may have one more worker: a message that has few may, and
// any may have scale times as many as are free. So a big envelope uses nearly all of an idle
// system, and shares a busy one (S3).
type allowance struct {
	max   int // workers that any message may have: max_message_concurrency
	scale int // scale_max_concurrency
}

// allows reports whether a message with so many workers may have another one of the free.
func (a allowance) allows(running, free int) bool {
	return running < a.max || running < a.scale*free
}
