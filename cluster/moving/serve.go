package moving

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"example.org/mta/cluster/link"
)

// guest is a talk about the mail of a node. Another one may have opened it than the talk before: one that adopts the
// mail of a dead node.
type guest struct {
	of    uint16 // that node; 0 before the first request
	conn  net.Conn
	ended chan struct{}
}

// enter notes whose mail a talk is about. An earlier one about the same is over then, and what it took is durable.
func (m *Mover) enter(me *guest, of uint16) error {
	if me.of == of {
		return nil
	}
	if me.of != 0 {
		return errors.New("it is about the mail of two nodes")
	}
	m.mu.Lock()
	me.of = of
	before := m.guests[of]
	m.guests[of] = me
	m.mu.Unlock()
	if before != nil {
		before.conn.Close()
		<-before.ended
	}
	return nil
}

func (m *Mover) leaves(me *guest) {
	m.mu.Lock()
	if m.guests[me.of] == me {
		delete(m.guests, me.of)
	}
	m.mu.Unlock()
	close(me.ended)
}

// Serve has a talk that another node has opened, about its mail or that of a dead one.
func (m *Mover) Serve(ctx context.Context, from uint16, conn net.Conn) {
	me := &guest{conn: conn, ended: make(chan struct{})}
	defer m.leaves(me)
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	for ctx.Err() == nil {
		conn.SetDeadline(time.Now().Add(idle))
		var q request
		if err := link.Read(conn, &q); err != nil {
			return
		}
		var a answer
		err := m.enter(me, cmp.Or(q.Of, from))
		if err == nil {
			a, err = m.answer(ctx, q, conn)
		}
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
