package http

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/network"
)

// connections are those of a server, and which of them has to go when there are too many: one of a client that has more
// than the one that comes, else one that has never brought a request for long, else one whose request nobody answers
// for with a key, else one that waits for its next request for the longest. Without a key there would be ways to hold
// all places: a body that comes slowly after the refusal, a guess that waits for its turn, an answer that is not read,
// and many connections that are all new.
type connections struct {
	most  int
	total *atomic.Int64 // of this server and others

	mu      sync.Mutex
	all     map[net.Conn]*link
	by      map[netip.Prefix]int // how many of them a client has
	fresh   list.List            // of *link that brought no request yet, as the next two the longest first
	keyless list.List            // with a request, and no key that was accepted, or with the answer given
	idle    list.List            // between requests
	changes chan struct{}        // closed, and replaced, when the last one ends
}

// link is an open connection.
type link struct {
	id       envelope.ID
	from     netip.AddrPort // as it came: the proxy's behind one
	since    time.Time
	conn     net.Conn
	list     *list.List // where it can be evicted from; nil while it has a request with a key
	place    *list.Element
	there    time.Time // since when it is in list
	requests int
	closing  bool // it ends with the request in hand

	shed atomic.Int32 // requests in a row that Admission refused
}

const (
	// slack is how long a connection without a request, or without a key, is left alone when others need its place,
	// unless its client has more than they; longSlack is how long when its client has fewer.
	slack     = time.Second
	longSlack = 10 * slack
	// looked is how many connections are looked at for one of a client with many.
	looked = 64
)

// client is who counts for a connection: behind a proxy that.
func (l *link) client() netip.Prefix { return network.Of(l.from.Addr()) }

func newConnections(most int, total *atomic.Int64) *connections {
	return &connections{most: most, total: total, all: make(map[net.Conn]*link), by: make(map[netip.Prefix]int),
		changes: make(chan struct{})}
}

// add takes a connection in, in the place of another if there is none left. It reports false if there
// is none at all.
func (c *connections) add(l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most && !c.evict(l.client()) {
		return false
	}
	c.total.Add(1)
	c.all[l.conn] = l
	c.by[l.client()]++
	c.move(l, &c.fresh)
	return true
}

// evict closes a connection that nobody misses, for one of a client. mu is held.
func (c *connections) evict(needs netip.Prefix) bool {
	own := c.by[needs]
	var from *link
	n := 0
	for _, l := range c.all { // in an order by chance, so one of the client with most is among the first
		if n++; n > looked {
			break
		}
		if has := c.by[l.client()]; l.list != nil && has >= own+2 && (from == nil || has > c.by[from.client()]) {
			from = l
		}
	}
	if from != nil {
		c.end(from)
		return true
	}
	for _, some := range []*list.List{&c.fresh, &c.keyless, &c.idle} {
		if first := some.Front(); first != nil {
			l := first.Value.(*link)
			if there := time.Since(l.there); there >= longSlack || there >= slack && c.by[l.client()] >= own {
				c.end(l)
				return true
			}
		}
	}
	return false
}

// move puts a connection into a list, or none. mu is held.
func (c *connections) move(l *link, to *list.List) {
	if l.list != nil {
		l.list.Remove(l.place)
	}
	if l.list, l.place = to, nil; to != nil {
		l.place, l.there = to.PushBack(l), time.Now()
	}
}

// waits reports whether a connection has no request. mu is held.
func (c *connections) waits(l *link) bool { return l.list == &c.fresh || l.list == &c.idle }

// end closes a connection. mu is held.
func (c *connections) end(l *link) {
	c.remove(l)
	l.conn.Close()
}

// remove takes a connection out. mu is held.
func (c *connections) remove(l *link) {
	c.move(l, nil)
	delete(c.all, l.conn)
	if c.by[l.client()]--; c.by[l.client()] == 0 {
		delete(c.by, l.client())
	}
	c.total.Add(-1)
	if len(c.all) == 0 {
		close(c.changes)
		c.changes = make(chan struct{})
	}
}

// closeFresh closes connections that have brought no request for slack: clients open some to spare, for which
// net/http would wait five seconds.
func (c *connections) closeFresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for e := c.fresh.Front(); e != nil; e = e.Next() {
		if l := e.Value.(*link); time.Since(l.there) >= slack {
			l.conn.Close()
		}
	}
}

// changed follows the states of connections, as net/http reports them.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, known := c.all[accepted(conn)]
	if !known {
		return // evicted
	}
	switch state {
	case http.StateActive:
		l.requests++
		c.move(l, &c.keyless)
	case http.StateIdle:
		c.move(l, &c.idle)
		if l.closing {
			c.end(l)
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(l)
	}
}

// accepted is the connection as the listener gave it.
func accepted(conn net.Conn) net.Conn {
	if t, ok := conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return conn
}

// linkKey is that of a request's connection in its context.
type linkKey struct{}

// connected is given each connection before its first request.
func (c *connections) connected(ctx context.Context, conn net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	return context.WithValue(ctx, linkKey{}, c.all[accepted(conn)])
}

// linkOf is the connection of a request; nil if it is not one of a listener's, or was evicted before.
func linkOf(r *http.Request) *link {
	l, _ := r.Context().Value(linkKey{}).(*link)
	return l
}

// byProxy reports whether a request has come by a connection with a PROXY header.
func byProxy(r *http.Request) bool {
	l := linkOf(r)
	if l == nil {
		return false
	}
	_, ok := l.conn.(proxied)
	return ok
}

// hasKey notes that a request has a key that was accepted.
func (c *connections) hasKey(r *http.Request) { c.note(r, nil) }

// isAnswered notes that a request has its answer, or only waits for a refusal, and that the rest of its body is only
// read for the client's sake.
func (c *connections) isAnswered(r *http.Request) { c.note(r, &c.keyless) }

func (c *connections) note(r *http.Request, to *list.List) {
	l := linkOf(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	if l != nil && c.all[l.conn] == l {
		c.move(l, to)
	}
}

func (c *connections) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
}

// ConnectionInfo is an open connection, a copy of what it was at one instant.
type ConnectionInfo struct {
	ID       envelope.ID
	Peer     netip.AddrPort // of the proxy, behind one
	Since    time.Time
	Idle     time.Time // since when it waits for a request; zero while it has one
	Requests int       // so far; over HTTP/2, times at which it had any
	Closing  bool      // it ends with the request in hand
}

// OpenConnections lists the open connections, in any order.
func (s *Server) OpenConnections() []ConnectionInfo {
	c := s.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]ConnectionInfo, 0, len(c.all))
	for _, l := range c.all {
		i := ConnectionInfo{ID: l.id, Peer: l.from, Since: l.since, Requests: l.requests, Closing: l.closing}
		if c.waits(l) {
			i.Idle = l.there
		}
		all = append(all, i)
	}
	return all
}

// CloseConnections ends those of these ids: at once without a request, else when those in hand are answered. It returns
// how many are open here, and how many of these end later.
func (s *Server) CloseConnections(ids map[string]bool) (known, later int) {
	c := s.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.all {
		switch {
		case !ids[l.id.String()]:
		case c.waits(l):
			known++
			c.end(l)
		default:
			known++
			later++
			l.closing = true
		}
	}
	return known, later
}

// waitForNone waits until no connection is open or ctx ends.
func (c *connections) waitForNone(ctx context.Context) {
	c.mu.Lock()
	open, changes := len(c.all), c.changes
	c.mu.Unlock()
	if open == 0 {
		return
	}
	select {
	case <-changes:
	case <-ctx.Done():
	}
}

// listener turns connections away when there are too many.
type listener struct {
	net.Listener
	server *Server
}

// Accept waits for a connection for which there is a place.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s := l.server
		as := &link{id: s.config.IDs.Next(s.config.Now()), from: network.Peer(conn.RemoteAddr()), since: s.config.Now()}
		conn = s.behindProxy(conn)
		as.conn = conn
		if s.conns.add(as) {
			return conn, nil
		}
		s.turnAway(conn)
	}
}

// crowded answers without reading: whoever holds all places must not get a goroutine for each try.
const crowded = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n" +
	"Content-Type: application/problem+json\r\nContent-Length: 97\r\n\r\n" +
	`{"status":503,"title":"Service Unavailable","type":"about:blank","detail":"too many connections"}`

// turnAway answers 503 in place of a request. A few octets to a new connection don't block; the
// deadline is for those that make them.
func (s *Server) turnAway(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(time.Second))
	if s.config.TLS == nil {
		conn.Write([]byte(crowded))
	}
	conn.Close()
}
