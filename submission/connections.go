package submission

import (
	"crypto/tls"
	"net/netip"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
)

// ConnectionInfo is an open connection as it was when it last waited for its client.
type ConnectionInfo struct {
	Session      string
	Peer         netip.AddrPort // of the proxy, until its header has come
	Helo         string         // what the client calls itself, "" before EHLO
	Tenant, User string
	TLS          *tls.ConnectionState // nil in clear
	State        ConnectionState
	Since        time.Time
	Idle         time.Time   // since when it waits for a transaction, zero while it has one
	Messages     int         // begun
	Last         reply.Reply // the last one to the client, zero before the banner
}

// ConnectionState is what a connection does.
type ConnectionState uint8

// The states of a connection.
const (
	Greeting ConnectionState = iota // it waits for a TLS handshake, a PROXY header or the banner
	Busy                            // it has a transaction, or a command to answer
	Idle
	Closing // it ends before its next command
)

// shown is what operators see of a connection. It is published when the connection waits for its client, and when
// it has a reply for it.
type shown struct {
	helo, tenant, user string
	tls                *tls.ConnectionState
	messages           int
	idle               time.Time
	reply              []byte // the last line of the last one
}

// maxShownReply is how many octets of a reply are kept.
const maxShownReply = 200

// show publishes what has changed; c.mu is held. deadline is that of the command that it waits for.
func (c *conn) show(deadline time.Time) {
	x := &c.mu.shown
	x.helo, x.tenant, x.user, x.tls, x.messages = c.helo, c.client.OnBehalfOf(), c.client.User, c.tls,
		c.client.Messages()
	if x.idle = (time.Time{}); c.mu.idle {
		x.idle = deadline.Add(-c.srv.cfg.Timeouts.Command)
	}
}

// showReply publishes a reply.
func (c *conn) showReply(line []byte) {
	c.mu.Lock()
	c.mu.shown.reply = append(c.mu.shown.reply[:0], line[:min(len(line), maxShownReply)]...)
	c.mu.Unlock()
}

// OpenConnections lists the open connections, in any order.
func (s *Server) OpenConnections() []ConnectionInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]ConnectionInfo, 0, len(s.mu.conns))
	for c := range s.mu.conns {
		list = append(list, c.info())
	}
	return list
}

func (c *conn) info() ConnectionInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	x := &c.mu.shown
	i := ConnectionInfo{
		Session: c.client.Session, Helo: x.helo, Tenant: x.tenant, User: x.user, TLS: x.tls, Since: c.client.since,
		Idle: x.idle, Messages: x.messages,
		State: Busy,
	}
	if len(x.reply) > 0 {
		i.Last = parseReply(x.reply)
	}
	switch {
	case !c.mu.greeted:
		i.State, i.Peer = Greeting, network.Peer(c.socket.RemoteAddr())
		return i
	case c.client.dismissed.Load() != nil:
		i.State = Closing
	case c.mu.idle:
		i.State = Idle
	}
	if i.Peer = c.client.Peer; i.State != Idle {
		i.Idle = time.Time{}
	}
	return i
}

// CloseConnections ends those of these sessions: each gets 421 before its next command, at once if it waits for that. A
// message whose content is coming in is taken first. It returns how many are open here, and how many of these end
// later.
func (s *Server) CloseConnections(sessions map[string]bool) (known, later int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.mu.conns {
		if sessions[c.client.Session] {
			known++
			if !c.dismiss(dismissed.Refusal()) {
				later++
			}
		}
	}
	return known, later
}

// dismiss has the connection end with a reply, and reports whether it does so at once.
func (c *conn) dismiss(why *reply.Reply) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client.dismissed.Store(why)
	switch {
	case !c.mu.greeted:
		c.socket.Close()
	case c.mu.waits:
		c.socket.SetReadDeadline(time.Unix(1, 0))
	default:
		return false
	}
	return true
}

// waiting is how much the connection waits for its client: 2 between transactions or before the banner, 1 for another
// command, 0 not at all.
func (c *conn) waiting() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.mu.greeted || c.mu.idle:
		return 2
	case c.mu.waits:
		return 1
	}
	return 0
}

// protocolName gives what "with" says in a Received field (RFC 3848; RFC 6531, 4.3).
func protocolName(extended, utf8, secure, loggedIn bool) string {
	name := "ESMTP" // after HELO too when there is more to say: RFC 3848 has no name for SMTP over TLS
	switch {
	case !extended && !secure:
		return "SMTP"
	case utf8:
		name = "UTF8SMTP"
	}
	if secure {
		name += "S"
	}
	if loggedIn {
		name += "A"
	}
	return name
}
