package smtpclient

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// wire makes the two ends of a connection in memory. What is written arrives after latency; in
// each direction at most room octets are under way (0: any number), beyond which Write blocks. It
// tells time by package time, so that in a synctest bubble it is virtual.
func wire(latency time.Duration, room int) (client, server *end) {
	a, b := newStream(latency, room), newStream(latency, room)
	return &end{in: a, out: b}, &end{in: b, out: a}
}

// end is one end of a wire.
type end struct {
	in, out *stream
}

func (e *end) Read(p []byte) (int, error) { return e.in.read(p) }

func (e *end) Write(p []byte) (int, error) { return e.out.write(p) }

// Close lets what was written arrive.
func (e *end) Close() error {
	e.out.closeWriting(io.EOF)
	e.in.closeReading()
	return nil
}

// Reset drops what has not arrived, in both directions.
func (e *end) Reset() {
	e.out.drop()
	e.out.closeWriting(syscall.ECONNRESET)
	e.in.closeReading()
}

func (e *end) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (e *end) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (e *end) SetDeadline(t time.Time) error {
	_ = e.SetReadDeadline(t)
	return e.SetWriteDeadline(t)
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.in.setDeadline(&e.in.readBy, t)
	return nil
}

func (e *end) SetWriteDeadline(t time.Time) error {
	e.out.setDeadline(&e.out.writeBy, t)
	return nil
}

// writes counts the calls of Write at the other end.
func (e *end) writes() int {
	e.in.Lock()
	defer e.in.Unlock()
	return e.in.writes
}

// waiting reports whether octets have arrived that were not read.
func (e *end) waiting() bool {
	e.in.Lock()
	defer e.in.Unlock()
	return e.in.arrived(time.Now())
}

// ended reports whether the other end was closed.
func (e *end) ended() bool {
	e.in.Lock()
	defer e.in.Unlock()
	return e.in.writerEnd != nil
}

// stream is one direction.
type stream struct {
	sync.Mutex
	changed *sync.Cond
	latency time.Duration
	room    int

	parts     []part
	under     int // octets in parts
	writes    int
	writerEnd error     // what the reader gets after the parts; nil: the writer is open
	endAt     time.Time // from when on
	readerEnd bool
	readBy    time.Time
	writeBy   time.Time
}

type part struct {
	at time.Time
	p  []byte
}

func newStream(latency time.Duration, room int) *stream {
	s := &stream{latency: latency, room: room}
	s.changed = sync.NewCond(s)
	return s
}

func (s *stream) arrived(now time.Time) bool { return len(s.parts) > 0 && !now.Before(s.parts[0].at) }

func (s *stream) wakeAt(t time.Time) {
	if d := time.Until(t); d > 0 {
		time.AfterFunc(d, func() {
			s.Lock()
			defer s.Unlock()
			s.changed.Broadcast()
		})
		return
	}
	s.changed.Broadcast()
}

func (s *stream) read(p []byte) (int, error) {
	s.Lock()
	defer s.Unlock()
	for {
		now := time.Now()
		switch {
		case s.readerEnd:
			return 0, net.ErrClosed
		case !s.readBy.IsZero() && !now.Before(s.readBy):
			return 0, os.ErrDeadlineExceeded
		case s.arrived(now):
			n := copy(p, s.parts[0].p)
			if s.parts[0].p = s.parts[0].p[n:]; len(s.parts[0].p) == 0 {
				s.parts = s.parts[1:]
			}
			s.under -= n
			s.changed.Broadcast()
			return n, nil
		case len(s.parts) == 0 && s.writerEnd != nil && !now.Before(s.endAt):
			return 0, s.writerEnd
		}
		s.changed.Wait()
	}
}

func (s *stream) write(p []byte) (n int, err error) {
	s.Lock()
	defer s.Unlock()
	s.writes++
	for n < len(p) {
		switch {
		case s.writerEnd != nil:
			return n, net.ErrClosed
		case s.readerEnd:
			return n, syscall.EPIPE
		case !s.writeBy.IsZero() && !time.Now().Before(s.writeBy):
			return n, os.ErrDeadlineExceeded
		}
		k := len(p) - n
		if s.room > 0 {
			k = min(k, s.room-s.under)
		}
		if k == 0 {
			s.changed.Wait()
			continue
		}
		at := time.Now().Add(s.latency)
		s.parts = append(s.parts, part{at, append([]byte(nil), p[n:n+k]...)})
		s.under += k
		n += k
		s.wakeAt(at)
	}
	return n, nil
}

func (s *stream) closeWriting(with error) {
	s.Lock()
	defer s.Unlock()
	if s.writerEnd == nil {
		s.writerEnd, s.endAt = with, time.Now().Add(s.latency)
	}
	s.wakeAt(s.endAt)
	s.changed.Broadcast()
}

func (s *stream) closeReading() {
	s.Lock()
	defer s.Unlock()
	s.readerEnd = true
	s.changed.Broadcast()
}

func (s *stream) drop() {
	s.Lock()
	defer s.Unlock()
	s.parts, s.under = nil, 0
}

func (s *stream) setDeadline(which *time.Time, t time.Time) {
	s.Lock()
	defer s.Unlock()
	*which = t
	if !t.IsZero() {
		s.wakeAt(t)
	}
	s.changed.Broadcast()
}
