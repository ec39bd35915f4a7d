package mta

import (
	"context"
	"net"
	"net/netip"

	"example.org/mta/internal/handover"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission"
)

// localSession begins an SMTP session with the relay for somebody on this machine who needs no login: the
// settings, limits and records are those of the first listener, whatever that demands of its clients. end
// ends the session and waits for that.
func (r *Relay) localSession() (client net.Conn, end func()) {
	cfg := r.policy.Load().Config
	first := cfg.Listeners[0]
	server := submission.New(r.joined(withoutLogin(wiring.Submission(cfg, first)), first.Name))
	conns := handover.New()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(conns) // it says only that it was ended
	}()
	client, theirs := net.Pipe()
	conns.Give(localConn{theirs})
	return client, func() {
		client.Close()
		_ = server.Shutdown(context.Background())
		<-served
	}
}

// withoutLogin changes a listener's settings to what programs on this machine get that may submit.
func withoutLogin(sc submission.Config) submission.Config {
	sc.RelayFrom = []netip.Prefix{netip.PrefixFrom(loopback, loopback.BitLen())}
	sc.ProxyFrom, sc.ImplicitTLS, sc.Mechanisms, sc.AuthRequired, sc.Timeouts.GreetDelay = nil, false, nil, false, 0
	return sc
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// localConn is a connection that comes from this machine.
type localConn struct{ net.Conn }

// RemoteAddr gives the loopback address, and a port that nobody has.
func (localConn) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(loopback, 0))
}
