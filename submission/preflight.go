package submission

import (
	"crypto/tls"
	"sync/atomic"
	"time"

	"example.org/mta/internal/network"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/auth"
	"example.org/mta/submission/intake"
)

// client is who is connected. It stays the same through STARTTLS.
type client struct {
	intake.Client // Peer is from the PROXY header when there is one; connections are counted by Network
	since         time.Time
	held          bool // counted
	greeted       bool // has got the banner
	relay         bool // may relay

	began  time.Time
	slot   slot // guarded by Server.mu
	secret bool // the last command was AUTH
	direct bool // no proxy stands between
	proved bool // has had a recipient accepted

	dismissed atomic.Pointer[reply.Reply] // why it ends before its next command

	errors int // 5xx replies since the last accepted message
	idle   int // commands since then that carry nothing

	counted string       // the tenant whose connection it is, "" for nobody
	excess  *reply.Reply // why its tenant can't have it

	login        *auth.Login // nil before there is one
	failedLogins int
}

// preflight does what comes before the banner, and gives the reason when the client is to be
// turned away. It runs on the connection's own goroutine: a client that is slow here holds up
// nobody else.
func (c *conn) preflight() *reply.Reply {
	cl := c.client
	if !cl.direct {
		if r := c.identify(); r != nil {
			return r
		}
		if r := c.seat(); r != nil {
			return r
		}
	}
	if !c.srv.holdClient(cl.Network) {
		c.refused(intake.IntrusionConnections)
		r := tooManyFromClient.Reply(cl.Network)
		return &r
	}
	cl.held = true
	if c.srv.cfg.ImplicitTLS && c.srv.cfg.TLS != nil {
		if !c.handshake() {
			return nil
		}
	}
	if c.talksEarly() {
		c.refused(intake.IntrusionProtocol)
		r := talksEarly.Reply()
		return &r
	}
	if c.client.excess == nil {
		c.client.excess = c.countTenant()
	}
	return c.client.excess
}

// identify finds out the address of a client behind a proxy, and what it may do. Only networks in ProxyFrom are
// believed, and they must send a header: whether there is one is never guessed
// (PROXY protocol, section 2).
func (c *conn) identify() *reply.Reply {
	cl := c.client
	p := network.ProxyHeader(c.socket, c.patience(c.srv.cfg.Timeouts.Proxy))
	c.raw = p
	h := p.ProxyHeader()
	if h == nil {
		c.raw = c.socket // to be able to answer
		return noProxyHeader.Refusal(cl.Peer.Addr())
	}
	// Without a client's address (the proxy's own health check, or a family that it can't
	// tell) the proxy stands for itself, but its address must not let a stranger relay.
	source, _, ok := h.TCPAddrs()
	if ok = ok && h.Command.IsProxy(); ok {
		cl.Peer = network.Peer(source)
	}
	c.settle(ok)
	return nil
}

// settle works out what the client may do whose address is known; relay: if that is its own.
func (c *conn) settle(relay bool) {
	cfg, cl := &c.srv.cfg, c.client
	cl.relay = relay && network.Contain(cfg.RelayFrom, cl.Peer.Addr())
	cl.Network = network.Of(cl.Peer.Addr())
	c.srv.desk.Settle(&cl.Client)
	if cl.Newlines = cfg.BareNewlines; network.Contain(cfg.NormaliseFrom, cl.Peer.Addr()) {
		cl.Newlines = intake.NormaliseBareNewlines
	}
}

// talksEarly waits for GreetDelay and reports whether the client said something meanwhile.
func (c *conn) talksEarly() bool {
	delay := c.srv.cfg.Timeouts.GreetDelay
	if delay == 0 {
		return false
	}
	c.bound(delay)
	var b [1]byte
	n, _ := c.raw.Read(b[:])
	return n > 0
}

// handshake puts TLS under c. It reports whether that worked; if not, c is at its end.
func (c *conn) handshake() bool {
	cfg := &c.srv.cfg
	t := tls.Server(c.raw, cfg.TLS)
	c.bound(cfg.Timeouts.TLS)
	if err := t.HandshakeContext(c.srv.ctx); err != nil {
		cfg.Intake.Log.Info("tls handshake with client failed", "session", c.client.Session, "peer",
			c.client.Peer, "err", err)
		c.finish()
		return false
	}
	t.SetDeadline(time.Time{})
	state := t.ConnectionState()
	c.raw = t
	c.tls = &state
	c.loginByCertificate()
	return true
}

// startTLS answers the STARTTLS command and goes on with TLS under a new conn, which the library
// serves as a new connection: it can't know anything from before (RFC 3207, 4.2). The library's
// own STARTTLS would stand above conn.
func (c *conn) startTLS(arg string) {
	switch {
	case c.srv.cfg.TLS == nil:
		c.answer(noTLS.Reply())
	case c.tls != nil:
		c.answer(alreadyTLS.Reply())
	case c.srv.uncertified():
		c.answer(noCertificate.Reply())
	case c.helo == "":
		c.answer(greetFirst.Reply())
	case arg != "":
		c.answer(noParameters.Reply("STARTTLS")) // RFC 3207, 4
	case c.r < c.w:
		// What came in clear behind STARTTLS could have been put there by anybody, and must not
		// be taken for what the client said under TLS (CVE-2011-0411).
		c.farewell(outOfStep.Reply("STARTTLS"))
	default:
		c.answer(readyForTLS.Reply())
		c.switchToTLS()
	}
}

func (c *conn) switchToTLS() {
	c.setLogin(nil) // and all else that was said in clear (RFC 3207, 4.2)
	if c.flush() != nil || !c.handshake() {
		return
	}
	next := &conn{srv: c.srv, client: c.client, socket: c.socket, raw: c.raw, tls: c.tls}
	next.mu.greeted = true
	next.client.MayHold = next.mayHold
	c.giveBack()
	c.srv.remove(c, next)
	c.moved = true
	c.finish()
	if !c.srv.afterTLS.Give(next) {
		next.Close()
	}
}
