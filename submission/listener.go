package submission

import (
	"net"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
)

// listener wraps what it accepts, and turns connections away when there are too many.
type listener struct {
	net.Listener
	srv *Server
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := newConn(l.srv, raw)
		r := c.enter()
		if r == nil {
			return c, nil
		}
		c.turnAway(*r)
	}
}

// enter takes the connection in, unless there is no room for it. A client behind a proxy gets its slot when its address
// is known.
func (c *conn) enter() *reply.Reply {
	c.client.Peer = network.Peer(c.socket.RemoteAddr())
	if c.client.direct = !network.Contain(c.srv.cfg.ProxyFrom, c.client.Peer.Addr()); c.client.direct {
		c.settle(true)
		if r := c.seat(); r != nil {
			return r
		}
	}
	if c.srv.add(c) {
		return nil
	}
	c.unseat()
	if c.srv.isClosing() {
		return shuttingDown.Refusal()
	}
	return tooManyConnections.Refusal()
}

// turnAway answers 421 in place of a banner. A few octets to a new connection don't block; the
// deadline is for those that make them.
func (c *conn) turnAway(r reply.Reply) {
	c.client.Network = network.Of(c.client.Peer.Addr())
	c.report("connect", r)
	c.socket.SetDeadline(time.Now().Add(time.Second))
	if !c.srv.cfg.ImplicitTLS {
		c.socket.Write(appendReply(nil, r))
	}
	c.socket.Close()
}
