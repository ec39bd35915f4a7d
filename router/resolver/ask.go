package resolver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// udpSize is what we say we can take in one datagram: fits all networks without fragments.
	udpSize = 1232
	// bufferSize is what we really can take, should the server not listen to us.
	bufferSize = 4096
	// shunTime is how long a silent server is asked last.
	shunTime = 10 * time.Second
)

// server is one of the configured servers.
type server struct {
	addr  netip.AddrPort
	shunt atomic.Int64 // until when it is asked last, in Unix nanoseconds
}

// order gives the servers as configured, but those that were silent lately at the end.
func (r *Resolver) order() []*server {
	now := r.cfg.Now().UnixNano()
	out, silent := make([]*server, 0, len(r.servers)), []*server(nil)
	for _, s := range r.servers {
		if s.shunt.Load() > now {
			silent = append(silent, s)
		} else {
			out = append(out, s)
		}
	}
	return append(out, silent...)
}

// ask puts a question to one server after the other until one answers. Those that answer
// SERVFAIL and the like are not asked again, those that are silent are, with more patience.
func (r *Resolver) ask(ctx context.Context, q question) (*message, error) {
	left := r.order()
	patience := r.cfg.Try
	var last *serverError
	for round := 0; round < r.cfg.Rounds && len(left) > 0; round++ {
		var silent []*server
		for _, s := range left {
			m, err := r.try(ctx, s, q, patience)
			if err == nil {
				return m, nil
			}
			if err := ended(ctx); err != nil {
				return nil, &serverError{s.addr, err}
			}
			last = &serverError{s.addr, err}
			if last.silent() {
				s.shunt.Store(r.cfg.Now().Add(shunTime).UnixNano())
				silent = append(silent, s)
			}
		}
		left = silent
		patience *= 2
	}
	return nil, last
}

// ended is ctx.Err, but not later than the deadline: connections that have the same one may
// notice it before the context does.
func ended(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// try asks one server, over UDP and, when the answer does not fit, over TCP.
func (r *Resolver) try(ctx context.Context, s *server, q question, patience time.Duration) (*message, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	m, err := r.exchange(ctx, "udp", s.addr, q, true)
	if err == nil && m.wantsPlain {
		// RFC 6891 (7): a server that does not know EDNS says FORMERR or NOTIMP.
		m, err = r.exchange(ctx, "udp", s.addr, q, false)
	}
	if err == nil && m.truncated {
		m, err = r.exchange(ctx, "tcp", s.addr, q, !m.wantsPlain)
	}
	if err != nil {
		return nil, err
	}
	m.secure = m.secure && r.trusted
	return m, m.failure()
}

// exchange sends a question with a random id from a random port (RFC 5452, 9.2) and reads until
// an answer to it comes.
func (r *Resolver) exchange(ctx context.Context, network string, to netip.AddrPort, q question,
	edns bool) (*message, error) {
	var id [2]byte
	rand.Read(id[:]) // never fails
	query, err := q.pack(binary.BigEndian.Uint16(id[:]), edns)
	if err != nil {
		return nil, err
	}
	r.asked.Add(1)
	c, err := r.cfg.Dial(ctx, network, to.String())
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return nil, err
		}
	}
	defer context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })()
	if network == "tcp" {
		return overTCP(c, query, q)
	}
	return overUDP(c, query, q)
}

var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

// overUDP ignores datagrams that don't answer the question: they may be forged.
func overUDP(c net.Conn, query []byte, q question) (*message, error) {
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	buf := buffers.Get().(*[bufferSize]byte)
	defer buffers.Put(buf)
	for {
		n, err := c.Read(buf[:])
		if err != nil {
			return nil, err
		}
		m, err := parse(buf[:n], query, q)
		if !errors.Is(err, errNotOurs) {
			return m, err
		}
	}
}

func overTCP(c net.Conn, query []byte, q question) (*message, error) {
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	raw := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, raw); err != nil {
		return nil, err
	}
	m, err := parse(raw, query, q)
	if err == nil && m.truncated || errors.Is(err, errNotOurs) {
		return nil, errMalformed
	}
	return m, err
}
