package smtpclient

import "bytes"

// Direction is who says a traced line.
type Direction uint8

const (
	ToHost Direction = iota
	FromHost
)

// String gives the sign that is put before a line.
func (d Direction) String() string {
	if d == ToHost {
		return ">"
	}
	return "<"
}

// Trace watches a conversation. Its functions are called by the reader, the writer and, before
// those run, by Handshake: in the order of the lines for each direction. They must not block, must
// not call the Conn, and must copy what they keep.
type Trace struct {
	// Line gets each command and each line of a reply, without its line end. Credentials are
	// masked. t is the transaction that it belongs to, nil for those of the session; of t only
	// Message, Recipients and Context may be read. A command is shown when it is put into the
	// flight, which is at most one flight before it is sent.
	Line func(t *Transaction, d Direction, line []byte)
	// Content gets the content as it goes on the wire, in pieces; nil when it is not wanted.
	Content func(t *Transaction, p []byte)
}

func (c *Conn) traceCommands(t *Transaction, lines []byte) {
	if trace := c.trace.Load(); trace != nil && trace.Line != nil {
		trace.lines(t, ToHost, lines)
	}
}

func (c *Conn) traceReply(x expectation, r rawReply) {
	if trace := c.trace.Load(); trace != nil && trace.Line != nil {
		trace.lines(x.t, FromHost, r.raw)
	}
}

func (c *Conn) traceContent(t *Transaction, p []byte) {
	if trace := c.trace.Load(); trace != nil && trace.Content != nil && len(p) > 0 {
		trace.Content(t, p)
	}
}

func (trace *Trace) lines(t *Transaction, d Direction, lines []byte) {
	for len(lines) > 0 {
		line, rest, _ := bytes.Cut(lines, []byte{'\n'})
		trace.Line(t, d, bytes.TrimSuffix(line, []byte{'\r'}))
		lines = rest
	}
}
