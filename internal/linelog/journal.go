package linelog

// Lines are whole lines, one after the other in one file of a log.
type Lines struct {
	At   Position // of the first
	Text []byte
}

// End is the position behind the last line.
func (l *Lines) End() Position { return Position{l.At.File, l.At.Offset + int64(len(l.Text))} }

// Journal is what carries lines of a log, which itself can then follow later.
type Journal interface {
	// Lines calls each with those from a position on, in order, until one fails. They are valid until each returns.
	Lines(from Position, each func(Lines) error) error
	// Wake has the lines taken that wait.
	Wake()
}
