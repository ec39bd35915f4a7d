package smtpclient

// command is what a reply answers.
type command uint8

const (
	cmdReset     command = iota // RSET before a MAIL
	cmdMail                     //
	cmdRcpt                     //
	cmdData                     //
	cmdContent                  // the final dot
	cmdChunk                    // BDAT, more to come
	cmdLastChunk                // BDAT LAST
	cmdAbort                    // RSET in place of the rest of a message
	cmdQuit                     //
)

// String gives the word for replies and logs.
func (k command) String() string {
	switch k {
	case cmdReset, cmdAbort:
		return "RSET"
	case cmdMail:
		return "MAIL"
	case cmdRcpt:
		return "RCPT"
	case cmdData:
		return "DATA"
	case cmdQuit:
		return "QUIT"
	}
	return "content"
}

// expectation is a reply that the host owes.
type expectation struct {
	t       *Transaction // nil for QUIT
	command command
	rcpt    int32 // which recipient, for RCPT
}

// expectations is a first-in-first-out list of the replies owed: a ring that grows to what a
// window needs and then stays.
type expectations struct {
	ring     []expectation // its length is a power of two
	from, to uint
}

func (e *expectations) len() int { return int(e.to - e.from) }

func (e *expectations) push(all []expectation) {
	for len(e.ring)-e.len() < len(all) {
		e.grow()
	}
	for _, x := range all {
		e.ring[e.to&uint(len(e.ring)-1)] = x
		e.to++
	}
}

func (e *expectations) grow() {
	ring := make([]expectation, max(2*len(e.ring), 8))
	n := e.len()
	for i := range n {
		ring[i] = e.ring[(e.from+uint(i))&uint(len(e.ring)-1)]
	}
	e.ring, e.from, e.to = ring, 0, uint(n)
}

// first is the reply that must come next; ok is false when none is owed.
func (e *expectations) first() (x expectation, ok bool) {
	if e.len() == 0 {
		return x, false
	}
	return e.ring[e.from&uint(len(e.ring)-1)], true
}

func (e *expectations) pop() (x expectation, ok bool) {
	if x, ok = e.first(); ok {
		e.ring[e.from&uint(len(e.ring)-1)] = expectation{} // so that it keeps no message alive
		e.from++
	}
	return x, ok
}
