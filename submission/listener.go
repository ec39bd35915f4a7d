package submission

import (
	"net"
	"sync"
	"time"
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
	r := tooManyConnections.reply()
	if c.srv.isClosing() {
		r = shuttingDown.reply()
	}
	c.client.peer = addrPort(c.socket.RemoteAddr())
	c.report("connect", r)
	c.socket.SetDeadline(time.Now().Add(time.Second))
	if !c.srv.cfg.ImplicitTLS {
		c.socket.Write(appendReply(nil, r))
	}
	c.socket.Close()
}

// handover is the listener by which connections come to the library again after STARTTLS.
type handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newHandover() *handover {
	return &handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands c on, and reports whether it was taken.
func (h *handover) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

func (h *handover) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handover) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handover) Addr() net.Addr { return &net.TCPAddr{} }
