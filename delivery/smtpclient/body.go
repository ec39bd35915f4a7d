package smtpclient

import (
	"errors"
	"fmt"
	"io"

	"example.org/mta/internal/reply"
)

// content sends the content after 354, and the final dot. From the first octet on there is no
// way back but to cut the connection: the host must never see a dot behind half a message.
func (c *Conn) content(t *Transaction) {
	c.mu.Lock()
	t.content = true
	c.mu.Unlock()
	if err := c.stuff(t); err != nil && !errors.Is(err, errStopped) {
		c.cut(t, err)
	}
}

var errStopped = errors.New("the connection has ended")

func (c *Conn) stuff(t *Transaction) error {
	body, err := t.Body()
	if err != nil {
		return fmt.Errorf("opening the content: %w", err)
	}
	defer body.Close()
	in := blocks.Get().(*block)
	defer blocks.Put(in)
	var s stuffer
	piece := in.b[:chunkSize]
	for done := false; !done; {
		n, err := body.Read(piece)
		if done = errors.Is(err, io.EOF); err != nil && !done {
			return fmt.Errorf("reading the content: %w", err)
		}
		if err := c.stuffPiece(t, &s, piece[:n]); err != nil {
			return err
		}
	}
	if s.size != t.Message.Size {
		return fmt.Errorf("the content has %d octets where Message.Size says %d", s.size, t.Message.Size)
	}
	buf, err := s.end(c.out.buf)
	if err != nil {
		return err
	}
	c.traceContent(t, buf[len(c.out.buf):])
	c.out.buf = buf
	c.out.staged = append(c.out.staged, expectation{t: t, command: cmdContent})
	c.letGo(t)
	return nil
}

func (c *Conn) stuffPiece(t *Transaction, s *stuffer, piece []byte) error {
	if s.size+int64(len(piece)) > t.Message.Size {
		return errTooLong
	}
	buf, err := s.append(c.out.buf, piece)
	if err != nil {
		return err
	}
	c.traceContent(t, buf[len(c.out.buf):])
	if c.out.buf = buf; len(buf) < flightSize {
		return nil
	}
	if !c.flush() {
		return errStopped
	}
	c.out.open()
	return nil
}

// cut ends the connection in the middle of t's content, because of what is wrong with that.
func (c *Conn) cut(t *Transaction, err error) {
	result := c.unreadable(t, err)
	c.mu.Lock()
	t.local = result
	c.mu.Unlock()
	c.stop(&Error{Reply: reply.Local(421, reply.Enhanced{4, 3, 0}, "content",
		"connection closed: the content could not be sent in full"), Err: err})
	_ = c.raw.Close()
}

// chunks sends the content by BDAT. Every chunk is read and checked as a whole before its BDAT is
// written, so that trouble with the content ends in RSET and costs neither the connection nor the
// messages around it.
func (c *Conn) chunks(t *Transaction) {
	body, err := t.Body()
	if err != nil {
		c.abort(t, fmt.Errorf("opening the content: %w", err))
		return
	}
	defer body.Close()
	var lines lineChecker
	for left := t.Message.Size; ; {
		n := min(left, chunkSize)
		left -= n
		if err := c.chunk(t, body, int(n), left == 0, &lines); err != nil {
			c.abort(t, err)
			return
		}
		if left == 0 {
			c.letGo(t)
			return
		}
		switch goOn, ok := c.afterChunk(t); {
		case !ok:
			return
		case !goOn:
			c.abort(t, nil)
			return
		}
	}
}

// chunk adds one BDAT with n octets of the body.
func (c *Conn) chunk(t *Transaction, body io.Reader, n int, last bool, lines *lineChecker) error {
	k := cmdChunk
	if last {
		k = cmdLastChunk
	}
	mark := len(c.out.buf)
	buf := appendBDAT(c.out.buf, n, last)
	header := len(buf)
	buf, err := readExactly(buf, body, n)
	if err == nil && last {
		err = atEnd(body, buf)
	}
	if err != nil {
		return err
	}
	if !t.binary() {
		if err := lines.check(buf[header:]); err != nil {
			return err
		}
		if last {
			if buf, header, err = wholeLines(buf, mark, header, lines); err != nil {
				return err
			}
		}
	}
	c.command(t, k, 0, buf[:header])
	c.out.buf = buf
	c.traceContent(t, buf[header:])
	return nil
}

// afterChunk reports whether the next chunk of t is to be sent (goOn), and whether anything can
// be (ok). A host that has refused a chunk must not get more of the message (RFC 3030, 2).
func (c *Conn) afterChunk(t *Transaction) (goOn, ok bool) {
	if c.mode != Chunked {
		ok = c.answered(t)
	} else if ok = c.flush(); ok {
		c.out.open()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return !t.refused, ok
}

// abort ends t by RSET in place of the rest of its content: the host has not been told LAST. err is
// what is wrong here, nil when the host has refused it.
func (c *Conn) abort(t *Transaction, err error) {
	if err != nil {
		result := c.unreadable(t, err)
		c.mu.Lock()
		t.local = result
		c.mu.Unlock()
	}
	c.out.open()
	c.command(t, cmdAbort, 0, append(c.out.buf, "RSET\r\n"...))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.current == t {
		c.mu.current = nil
	}
}
