package submission

import (
	"net"
	"time"

	"example.org/mta/internal/network"
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
		if l.srv.add(c) {
			return c, nil
		}
		c.turnAway()
	}
}

// turnAway answers 421 in place of a banner. A few octets to a new connection don't block; the
// deadline is for those that make them.
func (c *conn) turnAway() {
	r := tooManyConnections.Reply()
	if c.srv.isClosing() {
		r = shuttingDown.Reply()
	}
	c.client.Peer = network.Peer(c.socket.RemoteAddr())
	c.client.Network = network.Of(c.client.Peer.Addr())
	c.report("connect", r)
	c.socket.SetDeadline(time.Now().Add(time.Second))
	if !c.srv.cfg.ImplicitTLS {
		c.socket.Write(appendReply(nil, r))
	}
	c.socket.Close()
}
