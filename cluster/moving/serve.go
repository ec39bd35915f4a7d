package moving

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"example.org/mta/cluster/link"
)

// guest is a talk that another node has opened.
type guest struct {
	conn  net.Conn
	ended chan struct{}
}

// Serve has a talk that another node has opened, about its mail.
func (m *Mover) Serve(ctx context.Context, from uint16, conn net.Conn) {
	me := &guest{conn, make(chan struct{})}
	defer close(me.ended)
	m.mu.Lock()
	before := m.guests[from]
	m.guests[from] = me
	m.mu.Unlock()
	if before != nil {
		before.conn.Close()
		<-before.ended // what it takes is durable or refused before anything is answered here
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for ctx.Err() == nil {
		conn.SetDeadline(time.Now().Add(idle))
		var q request
		if err := link.Read(conn, &q); err != nil {
			return
		}
		a, err := m.answer(ctx, q, conn)
		if err != nil {
			m.cfg.Log.Warn("mail of another node is not taken any more", "node", from, "error", err)
			return
		}
		conn.SetDeadline(time.Now().Add(patience))
		if link.Write(conn, a) != nil {
			return
		}
	}
}

// answer carries out a request. An error ends the talk.
func (m *Mover) answer(ctx context.Context, q request, conn net.Conn) (a answer, err error) {
	a.Name, a.Refused = m.cfg.Name, m.refuses()
	switch q.Verb {
	case verbOffer:
		return a, nil
	case verbLook:
		a.Refused = ""
	case verbKeys, verbTake:
	default:
		return a, fmt.Errorf("it asks for %.40q", q.Verb)
	}
	archive := &reader{conn: conn, end: time.Now().Add(whole)}
	if a.Refused == "" {
		a.Taken, a.Declined, err = m.cfg.Mail.Take(ctx, q.Name, archive, q.Verb == verbLook)
		if err != nil {
			a.Refused = fmt.Sprintf("%.500s", err)
		}
	}
	_, err = io.Copy(io.Discard, archive)
	return a, err
}

// refuses returns why no mail is taken now.
func (m *Mover) refuses() string {
	if !m.cfg.May() {
		return "it takes no part in the cluster"
	}
	return m.cfg.Refuses()
}
