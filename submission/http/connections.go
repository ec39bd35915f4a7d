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

// connections are those of a server, and who has to go when there are too many: one that has never
// brought a request for long, or else one that waits for its next request for the longest.
type connections struct {
	most  int
	total *atomic.Int64 // of this server and others

	mu      sync.Mutex
	all     map[net.Conn]*link
	fresh   list.List     // of *waiting that brought no request yet, the oldest first
	idle    list.List     // of *waiting between requests, the longest first
	changes chan struct{} // closed, and replaced, when the last one ends
}

// link is an open connection.
type link struct {
	id       envelope.ID
	from     netip.AddrPort // as it came: the proxy's behind one
	since    time.Time
	place    *list.Element // in fresh or idle; nil while it has a request
	requests int
	closing  bool // it ends with the request in hand
}

// waiting is a connection without a request.
type waiting struct {
	conn  net.Conn
	list  *list.List
	since time.Time
}

// slack is how long a connection without a request is left alone when others need its place.
const slack = time.Second

func newConnections(most int, total *atomic.Int64) *connections {
	return &connections{most: most, total: total, all: make(map[net.Conn]*link), changes: make(chan struct{})}
}

// add takes a connection in, in the place of another if there is none left. It reports false if there
// is none at all.
func (c *connections) add(conn net.Conn, l *link) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most && !c.evict() {
		return false
	}
	c.total.Add(1)
	l.place = c.fresh.PushBack(&waiting{conn, &c.fresh, time.Now()})
	c.all[conn] = l
	return true
}

// evict closes a connection that has no request. mu is held.
func (c *connections) evict() bool {
	for _, l := range []*list.List{&c.fresh, &c.idle} {
		if first := l.Front(); first != nil {
			if w := first.Value.(*waiting); time.Since(w.since) >= slack {
				c.end(w)
				return true
			}
		}
	}
	return false
}

// end closes a connection that has no request. mu is held.
func (c *connections) end(w *waiting) {
	w.list.Remove(c.all[w.conn].place)
	c.remove(w.conn)
	w.conn.Close()
}

// remove takes a connection out. mu is held.
func (c *connections) remove(conn net.Conn) {
	delete(c.all, conn)
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
		if w := e.Value.(*waiting); time.Since(w.since) >= slack {
			w.conn.Close()
		}
	}
}

// changed follows the states of connections, as net/http reports them.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l, known := c.all[conn]
	if !known {
		return // evicted
	}
	if l.place != nil && state != http.StateNew {
		l.place.Value.(*waiting).list.Remove(l.place)
		l.place = nil
	}
	switch state {
	case http.StateActive:
		l.requests++
	case http.StateIdle:
		l.place = c.idle.PushBack(&waiting{conn, &c.idle, time.Now()})
		if l.closing {
			c.end(l.place.Value.(*waiting))
		}
	case http.StateClosed, http.StateHijacked:
		c.remove(conn)
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
		if l.place != nil {
			i.Idle = l.place.Value.(*waiting).since
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
		case l.place != nil:
			known++
			c.end(l.place.Value.(*waiting))
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
		if s.conns.add(conn, as) {
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
