package submission

import (
	"bytes"
	"errors"
	"os"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// transfer is how a message's octets come in, and the limits on their time and number.
type transfer struct {
	dots  dots
	done  bool      // the end of DATA has been seen
	chunk int64     // octets of the BDAT chunk that have not come yet
	start time.Time // of the whole content
	bytes int64     // as on the wire
}

func newTransfer(n intake.Newlines) transfer {
	return transfer{start: time.Now(), dots: dots{lenient: n == intake.NormaliseBareNewlines}}
}

// endOfData is all that the library's reader gets to see of DATA; Session.Data has read the
// content itself.
var endOfData = []byte(".\r\n")

// nextRun gives the next run of DATA's content, valid until the next call. There are no more
// when the transfer is done. An error is final.
func (c *conn) nextRun() ([]byte, error) {
	if c.err != nil {
		return nil, c.err
	}
	c.borrow(largeBuffer)
	for {
		run, used, end := c.transfer.dots.next(c.buf[c.r:c.w])
		c.r += used
		c.transfer.bytes += int64(used)
		c.transfer.done = end
		if used > 0 {
			return run, nil
		}
		if err := c.fillContent(); err != nil {
			return nil, c.fail(err)
		}
	}
}

func (c *conn) fillContent() error {
	if c.transfer.bytes > c.maxTransfer() {
		return errOverrun
	}
	return c.fill(c.contentDeadline(), nil)
}

// maxTransfer is how much of a message is read at all. Up to there, one that is too large is read
// to its end, so that the client gets a proper reply.
func (c *conn) maxTransfer() int64 { return 2*c.srv.cfg.Intake.Limits.Size + 1<<20 }

// contentDeadline bounds the next read of content: by the pause, by the pace and by the whole.
func (c *conn) contentDeadline() time.Time {
	t, x := &c.srv.cfg.Timeouts, &c.transfer
	deadline := earliest(time.Now().Add(t.Block), x.start.Add(t.Content))
	if t.MinRate < 0 {
		return deadline
	}
	pace := time.Duration(x.bytes/t.MinRate) * time.Second
	return earliest(deadline, x.start.Add(t.Block+pace))
}

// endData is called when the library reads DATA's content: Session.Data has returned by then.
// Whatever it has left is dropped.
func (c *conn) endData() {
	for !c.transfer.done {
		if _, err := c.nextRun(); err != nil {
			return
		}
	}
	c.feed = endOfData
	c.phase = phaseReply
}

// readChunk gives the library octets of a BDAT chunk. A chunk that is cut short is an error with
// a code: for the library, the end of the connection is the end of the chunk, and the half of a
// message would pass for a whole one.
func (c *conn) readChunk(p []byte) (int, error) {
	x := &c.transfer
	p = p[:min(int64(len(p)), x.chunk)]
	n := copy(p, c.buf[c.r:c.w])
	c.r += n
	if n == 0 {
		var err error
		if n, err = c.readContent(p); err != nil {
			return 0, c.fail(smtpError(c.contentLost(err)))
		}
	}
	x.bytes += int64(n)
	if x.chunk -= int64(n); x.chunk == 0 {
		c.phase = phaseReply
	}
	return n, nil
}

// readContent reads right into p: content by BDAT needs no buffer here.
func (c *conn) readContent(p []byte) (int, error) {
	if err := c.flush(); err != nil {
		return 0, err
	}
	if err := c.socket.SetReadDeadline(c.contentDeadline()); err != nil {
		return 0, err
	}
	return c.read(p)
}

// contentLost is the answer when content stops coming. The connection closes after it: there is
// no telling where the next command would start.
func (c *conn) contentLost(err error) reply.Reply {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return contentTimeout.Reply()
	case errors.Is(err, errOverrun):
		c.last = true
		return contentOverrun.Reply(c.srv.cfg.Intake.Limits.Size)
	}
	return contentCut.Reply()
}

var crlf = []byte("\r\n")

// dots finds the end of DATA and takes dot-stuffing away (RFC 5321, 4.5.2). Only the five octets
// CRLF . CRLF are the end, and the CRLF of the DATA command counts as the first two. LF . LF,
// LF . CRLF, CR . CR and their like are content: what other hosts may take for an end must not
// be one here ("SMTP smuggling").
//
// The library's own reader differs from this on two sequences: it does not see the end in
// CR CRLF . CRLF, and it drops the CR in CRLF . CR.
type dots struct {
	midLine bool // not at the start of a line
	lenient bool // LF alone ends a line too, except for the end of DATA
}

// next looks at b, which holds what has arrived. It gives a run of content within b, and how
// many octets of b are done with; none means that more must arrive first. The end mark comes by
// itself.
func (d *dots) next(b []byte) (run []byte, used int, end bool) {
	if !d.midLine && len(b) > 0 && b[0] == '.' {
		switch {
		case len(b) == 1, len(b) == 2 && b[1] == '\r':
			return nil, 0, false
		case b[1] == '\r' && b[2] == '\n':
			return nil, 3, true
		}
		d.midLine = true
		run, used = d.run(b[1:])
		return run, used + 1, false
	}
	run, used = d.run(b)
	return run, used, false
}

// run gives the content up to the next line that starts with a dot. It holds back a CR at the end
// of b (and a bare LF, when lenient), since what follows decides what it is.
func (d *dots) run(b []byte) (run []byte, used int) {
	for from := 0; ; {
		i := bytes.Index(b[from:], []byte("\n."))
		if i < 0 {
			break
		}
		i += from
		if i > 0 && b[i-1] == '\r' {
			d.midLine = false
			return b[:i+1], i + 1
		}
		if d.lenient {
			// A sender that ends its lines in LF has stuffed the dots after them too. This one
			// goes away here, so that a lone dot after a bare LF can't be the end.
			d.midLine = true
			return b[:i+1], i + 2
		}
		from = i + 1
	}
	n := len(b)
	switch {
	case n == 0:
	case b[n-1] == '\r', d.lenient && b[n-1] == '\n' && !bytes.HasSuffix(b, crlf):
		n--
	}
	if n > 0 {
		d.midLine = !bytes.HasSuffix(b[:n], crlf)
	}
	return b[:n], n
}
