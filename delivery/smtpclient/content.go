package smtpclient

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"example.org/mta/internal/reply"
)

// What is wrong with a body on our side of the wire.
var (
	errBareCR  = errors.New("a CR that no LF follows")
	errBareLF  = errors.New("a LF that no CR precedes")
	errTooLong = errors.New("more octets than Message.Size")
)

// resultOf is what the open recipients of a message get whose content could not be sent. A
// content that can't be put into SMTP (RFC 5321, 2.3.8) will be no better the next time: mending
// it would break its signatures, so it is refused. Trouble with reading it is ours and passes.
func resultOf(err error) Result {
	if errors.Is(err, errBareCR) || errors.Is(err, errBareLF) {
		return Result{Fate: Answered,
			Reply: reply.Local(550, reply.Enhanced{5, 6, 11}, "content", "the content has %v", err)}
	}
	if own := (*reply.Reply)(nil); errors.As(err, &own) {
		return Result{Fate: Failed, Reply: *own}
	}
	return Result{Fate: Failed,
		Reply: reply.Local(451, reply.Enhanced{4, 3, 0}, "content",
			"the message could not be read from this relay's queue")}
}

// lineChecker looks for CR and LF that don't stand together, across pieces.
type lineChecker struct {
	some bool // there was an octet
	cr   bool // the last one was a CR
	lf   bool // the last one was a LF
}

func (l *lineChecker) check(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if l.cr && p[0] != '\n' {
		return errBareCR
	}
	pairs := 0 // CR LF with both in p
	for i, from := 0, 0; ; from = i + 1 {
		if i = bytes.IndexByte(p[from:], '\n'); i < 0 {
			break
		}
		switch i += from; {
		case i == 0 && l.cr:
		case i > 0 && p[i-1] == '\r':
			pairs++
		default:
			return errBareLF
		}
	}
	last := p[len(p)-1]
	l.some, l.cr, l.lf = true, last == '\r', last == '\n'
	if l.cr {
		pairs++ // half of one, so far
	}
	if bytes.Count(p, []byte{'\r'}) != pairs {
		return errBareCR
	}
	return nil
}

// end reports whether the content may end here, and what has to be added so that its last line is
// whole.
func (l *lineChecker) end() (missing string, err error) {
	switch {
	case l.cr:
		return "", errBareCR
	case l.some && !l.lf:
		return "\r\n", nil
	}
	return "", nil
}

// stuffer prepares content for DATA: it doubles the dot at the beginning of a line (RFC 5321,
// 4.5.2) and refuses what could be taken for the end of the content by anyone on the way.
type stuffer struct {
	lines lineChecker
	size  int64
}

// append adds p, prepared, to dst.
func (s *stuffer) append(dst, p []byte) ([]byte, error) {
	begin := !s.lines.some || s.lines.lf
	if err := s.lines.check(p); err != nil {
		return dst, err
	}
	s.size += int64(len(p))
	for len(p) > 0 {
		if begin && p[0] == '.' {
			dst = append(dst, '.')
		}
		// The next dot that begins a line, if any: most lines need no looking at. A LF ends a line
		// here, for each has been seen to follow a CR, which may have been in the piece before.
		i := bytes.Index(p, lineDot)
		if i < 0 {
			return append(dst, p...), nil
		}
		dst = append(dst, p[:i+1]...)
		p, begin = p[i+1:], true
	}
	return dst, nil
}

var lineDot = []byte("\n.")

// end adds the final dot, and the line end before it when the content lacks that.
func (s *stuffer) end(dst []byte) ([]byte, error) {
	missing, err := s.lines.end()
	if err != nil {
		return dst, err
	}
	return append(append(dst, missing...), ".\r\n"...), nil
}

// readExactly appends n octets of body to dst.
func readExactly(dst []byte, body io.Reader, n int) ([]byte, error) {
	from := len(dst)
	dst = append(dst, make([]byte, n)...)
	if _, err := io.ReadFull(body, dst[from:]); err != nil {
		return dst[:from], fmt.Errorf("reading the content: %w", err)
	}
	return dst, nil
}

// atEnd checks that body has nothing more. It writes behind the end of scratch.
func atEnd(body io.Reader, scratch []byte) error {
	scratch = append(scratch, 0)
	one := scratch[len(scratch)-1:]
	for range 16 {
		n, err := body.Read(one)
		switch {
		case n > 0:
			return errTooLong
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading the content: %w", err)
		}
	}
	return io.ErrNoProgress
}
