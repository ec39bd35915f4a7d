package http

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// connections are those of a server, and who has to go when there are too many: one that has never
// brought a request for long, or else one that waits for its next request for the longest.
type connections struct {
	most  int
	total *atomic.Int64 // of this server and others

	mu      sync.Mutex
	all     map[net.Conn]*list.Element // its place in fresh or idle; nil while it has a request
	fresh   list.List                  // of *waiting that brought no request yet, the oldest first
	idle    list.List                  // of *waiting between requests, the longest first
	changes chan struct{}              // closed, and replaced, when the last one ends
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
	return &connections{most: most, total: total, all: make(map[net.Conn]*list.Element), changes: make(chan struct{})}
}

// add takes a connection in, in the place of another if there is none left. It reports false if there
// is none at all.
func (c *connections) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.all) >= c.most && !c.evict() {
		return false
	}
	c.total.Add(1)
	c.all[conn] = c.fresh.PushBack(&waiting{conn, &c.fresh, time.Now()})
	return true
}

// evict closes a connection that has no request. mu is held.
func (c *connections) evict() bool {
	for _, l := range []*list.List{&c.fresh, &c.idle} {
		if first := l.Front(); first != nil {
			if w := first.Value.(*waiting); time.Since(w.since) >= slack {
				l.Remove(first)
				delete(c.all, w.conn)
				c.total.Add(-1)
				w.conn.Close()
				return true
			}
		}
	}
	return false
}

// changed follows the states of connections, as net/http reports them.
func (c *connections) changed(conn net.Conn, state http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	place, known := c.all[conn]
	if !known {
		return // evicted
	}
	if place != nil && state != http.StateNew {
		place.Value.(*waiting).list.Remove(place)
		c.all[conn] = nil
	}
	switch state {
	case http.StateIdle:
		c.all[conn] = c.idle.PushBack(&waiting{conn, &c.idle, time.Now()})
	case http.StateClosed, http.StateHijacked:
		delete(c.all, conn)
		c.total.Add(-1)
		if len(c.all) == 0 {
			close(c.changes)
			c.changes = make(chan struct{})
		}
	}
}

func (c *connections) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.all)
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
		conn = l.server.behindProxy(conn)
		if l.server.conns.add(conn) {
			return conn, nil
		}
		l.server.turnAway(conn)
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
