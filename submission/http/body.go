package http

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// body is a request's body: what comes of it is paced, decompressed, and bounded in size.
type body struct {
	call  *Call
	wire  io.ReadCloser // as net/http has it
	plain io.Reader     // decompressed; wire without a Content-Encoding
	most  int64         // octets of plain
	block time.Duration
	pace  int64 // octets a second, negative: any
	end   time.Time
	start time.Time

	came  int64 // octets of wire
	given int64 // octets of plain
	done  bool
	err   error // the last answer of Read
}

// newBody puts the bounds around a request's body.
func newBody(s *Server, c *Call) *body {
	now := time.Now()
	t := s.config.Timeouts
	b := &body{call: c, wire: c.Request.Body, most: s.config.MaxRequest, block: t.Block, pace: t.MinRate, start: now,
		end: now.Add(t.Body)}
	b.done = c.Request.Body == nil || c.Request.Body == http.NoBody
	b.plain = pacedBody{b}
	if !b.done {
		c.answer.control.SetReadDeadline(b.deadline())
	}
	return b
}

// check looks at what the header says of the body.
func (b *body) check() error {
	if b.call.Request.ContentLength > b.most {
		return b.tooLarge()
	}
	switch encoding := strings.ToLower(
		strings.TrimSpace(strings.Join(b.call.Request.Header.Values("Content-Encoding"), ","))); encoding {
	case "", "identity":
	case "gzip", "x-gzip":
		b.plain = &unzipped{b: b}
	default:
		p := Problemf(http.StatusUnsupportedMediaType, "Content-Encoding: use gzip, or none")
		p.Header = http.Header{"Accept-Encoding": {"gzip"}} // RFC 9110, 12.5.3
		return p
	}
	return nil
}

// Read gives what comes next. Its errors are Problems, and final.
func (b *body) Read(p []byte) (n int, err error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err = b.plain.Read(p)
	if b.given += int64(n); b.given > b.most {
		n, err = 0, b.tooLarge()
	}
	if err == nil {
		err = b.call.hold(b.given)
	}
	b.err = b.explain(err)
	return n, b.err
}

// Close gives up on the rest.
func (b *body) Close() error { return b.wire.Close() }

func (b *body) tooLarge() error {
	p := Problemf(http.StatusRequestEntityTooLarge, "the body may have %d octets at most, decompressed", b.most)
	p.Close, p.Reason = true, "too_large"
	return p
}

// explain makes an answer of why a body ended early. The client is mostly gone.
func (b *body) explain(err error) error {
	var p *Problem
	switch {
	//nolint:errorlint // io.EOF is the end, and nothing around it is
	case err == nil, err == io.EOF, errors.As(err, &p):
		return err
	case errors.Is(err, os.ErrDeadlineExceeded):
		p = Problemf(http.StatusRequestTimeout, "the body came too slowly")
		p.Reason = "slow"
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum):
		p = Problemf(http.StatusBadRequest, "the body is not valid gzip data")
	case errors.Is(err, context.Canceled):
		p = Problemf(http.StatusServiceUnavailable, "the relay is shutting down: try again")
		p.RetryAfter, p.Reason = shortPause, "draining"
	default:
		p = Problemf(http.StatusBadRequest, "the body ended before its Content-Length, or its chunks are malformed")
		p.Reason = "cut"
	}
	p.Close = true
	return p
}

// deadline bounds the next read: by the pause, by the pace, and by the whole.
func (b *body) deadline() time.Time {
	d := time.Now().Add(b.block)
	if b.end.Before(d) {
		d = b.end
	}
	if b.pace < 0 {
		return d
	}
	if pace := b.start.Add(b.block + time.Duration(b.came/b.pace)*time.Second); pace.Before(d) {
		return pace
	}
	return d
}

// pacedBody is what comes by the wire.
type pacedBody struct{ b *body }

func (r pacedBody) Read(p []byte) (int, error) {
	b := r.b
	if !b.done {
		b.call.answer.control.SetReadDeadline(b.deadline())
	}
	n, err := b.wire.Read(p)
	b.came += int64(n)
	if err == io.EOF && !b.done { //nolint:errorlint // as net/http gives it
		b.done = true
		// The connection is read on, to notice that the client leaves: that must not end by itself.
		b.call.answer.control.SetReadDeadline(time.Time{})
	}
	return n, err
}

// unzipped decompresses. What it begins with is read with the first octets, not before.
type unzipped struct {
	b *body
	z *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.z == nil {
		z, err := gzip.NewReader(pacedBody{u.b})
		if err != nil {
			if err == io.EOF { //nolint:errorlint // nothing came at all
				err = gzip.ErrHeader
			}
			return 0, err
		}
		u.z = z
	}
	n, err := u.z.Read(p)
	if errors.Is(err, io.ErrUnexpectedEOF) && u.b.done {
		err = gzip.ErrChecksum
	}
	return n, err
}

// restWait is how long what is left of a refused body is waited for: clients send it before they read
// the answer.
const restWait = 5 * time.Second

// lingerTime is how long the rest of a refused body is read and dropped after the answer.
const lingerTime = 30 * time.Second

// linger reads what a client still sends that does not look for the answer meanwhile: the end of the
// connection would take the answer from it (RFC 9112, 9.6). HTTP/2 has its own way.
func (b *body) linger() {
	r := b.call.Request
	if b.done || r.ProtoMajor != 1 || b.call.answer.status == 0 || b.came == 0 && r.Header.Get("Expect") != "" {
		return
	}
	if b.call.answer.control.Flush() != nil {
		return
	}
	b.call.server.conns.isAnswered(r)
	buffer := make([]byte, 32<<10)
	for end := time.Now().Add(lingerTime); time.Now().Before(end) && b.came <= 2*b.most; {
		b.leave()
		n, err := b.wire.Read(buffer)
		if b.came += int64(n); err != nil {
			return
		}
	}
}

// leave is called when the answer begins: net/http reads what is left of a small body then.
func (b *body) leave() {
	if !b.done {
		b.call.answer.control.SetReadDeadline(time.Now().Add(restWait))
	}
}
