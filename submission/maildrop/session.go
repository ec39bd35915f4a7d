package maildrop

import (
	"context"
	"net"
	"net/netip"

	"example.org/mta/internal/network"
)

// server takes mail by SMTP.
type server interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
}

// Session begins a session with a server that has no other. end ends both, and waits for that.
func Session(s server) (client net.Conn, end func()) {
	conns := network.NewHandover()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = s.Serve(conns) // returns only that it was ended
	}()
	client, theirs := net.Pipe()
	conns.Give(localConn{theirs})
	return client, func() {
		client.Close()
		_ = s.Shutdown(context.Background())
		<-served
	}
}

// localConn is a connection that comes from this machine.
type localConn struct{ net.Conn }

// RemoteAddr gives the loopback address, and a port that nobody has.
func (localConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), 0))
}
