package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"example.org/mta/internal/network"
)

// limited keeps at most so many connections open. When they all are, a new one takes the place of another: of one that
// nobody has signed in on, else of an idle one, else of any. Of these, the client with the most of them loses its
// oldest. A client that fills the console loses its own connections, then, and users who are signed in keep theirs.
type limited struct {
	net.Listener
	most    int
	trusted func(netip.Addr) bool // proxies: their connections count as signed in, since many clients are behind them

	mu   sync.Mutex // guards what follows, and what changes of connections
	open []*limitedConn
}

// limitedConn is a connection that counts.
type limitedConn struct {
	net.Conn
	by     *limited
	client netip.Prefix
	proxy  bool
	signed bool // its newest request had a session
	idle   bool // between two requests
}

func limit(l net.Listener, most int, trusted func(netip.Addr) bool) *limited {
	return &limited{Listener: l, most: most, trusted: trusted}
}

func (l *limited) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.enter(c), nil
}

// enter makes space for a connection.
func (l *limited) enter(c net.Conn) *limitedConn {
	from := network.Peer(c.RemoteAddr()).Addr()
	own := &limitedConn{Conn: c, by: l, client: network.Of(from), proxy: l.trusted(from)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == l.most {
		l.drop(l.loser())
	}
	l.open = append(l.open, own)
	return own
}

// loser is the connection that has to make space, with mu held.
func (l *limited) loser() *limitedConn {
	least := slices.MinFunc(l.open, func(a, b *limitedConn) int { return cmp.Compare(a.worth(), b.worth()) }).worth()
	has := make(map[netip.Prefix]int)
	for _, c := range l.open {
		if c.worth() == least {
			has[c.client]++
		}
	}
	var found *limitedConn
	for _, c := range l.open { // the oldest first
		if c.worth() == least && (found == nil || has[c.client] > has[found.client]) {
			found = c
		}
	}
	return found
}

// worth is the place of a connection in the order in which they are closed.
func (c *limitedConn) worth() int {
	switch {
	case !c.signed && !c.proxy:
		return 0
	case c.idle:
		return 1
	}
	return 2
}

// drop closes a connection, with mu held. What the other end has not read is not kept for it.
func (l *limited) drop(c *limitedConn) {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	c.Conn.Close()
	l.forget(c)
}

// forget no longer counts a connection, with mu held.
func (l *limited) forget(c *limitedConn) {
	if i := slices.Index(l.open, c); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

func (c *limitedConn) Close() error {
	c.by.mu.Lock()
	defer c.by.mu.Unlock()
	c.by.forget(c)
	return c.Conn.Close()
}

// limitedOf gives the connection below one of the HTTP server's; nil when it doesn't count.
func limitedOf(c net.Conn) *limitedConn {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, _ := c.(*limitedConn)
	return own
}

// noteState is the server's hook for the state of connections.
func noteState(c net.Conn, state http.ConnState) {
	if own := limitedOf(c); own != nil {
		own.by.mu.Lock()
		defer own.by.mu.Unlock()
		own.idle = state == http.StateIdle
	}
}

// connKey is the key of a request's connection in its context.
type connKey struct{}

func withConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, limitedOf(c))
}

// noteSession notes whether the request that has come by a connection has a session.
func noteSession(r *request) {
	if own, _ := r.http.Context().Value(connKey{}).(*limitedConn); own != nil {
		own.by.mu.Lock()
		defer own.by.mu.Unlock()
		own.signed = r.session != nil
	}
}
