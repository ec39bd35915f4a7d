package web

import (
	"net"
	"net/netip"
	"sync"

	"example.org/mta/internal/network"
)

// limit accepts at most n connections at a time: the others wait in the system's queue. A client has three quarters of
// them at most, and its others are closed at once: they would keep everybody else from the console. Addresses that are
// exempt are those of proxies, with many clients behind them.
func limit(l net.Listener, n int, exempt func(netip.Addr) bool) net.Listener {
	return &limited{
		Listener: l, slots: make(chan struct{}, n), closed: make(chan struct{}),
		share: max(n*3/4, 1), exempt: exempt, by: make(map[netip.Prefix]int),
	}
}

type limited struct {
	net.Listener
	slots  chan struct{}
	once   sync.Once
	closed chan struct{}

	share  int
	exempt func(netip.Addr) bool
	mu     sync.Mutex
	by     map[netip.Prefix]int // open connections, by client
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		select {
		case l.slots <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
		c, err := l.Listener.Accept()
		if err != nil {
			<-l.slots
			return nil, err
		}
		leave, ok := l.enter(network.Peer(c.RemoteAddr()).Addr())
		if !ok {
			c.Close()
			<-l.slots
			continue
		}
		return &slotConn{Conn: c, free: sync.OnceFunc(func() { leave(); <-l.slots })}, nil
	}
}

// enter counts a connection of an address, and reports false if the client has its share. leave must be called at its end.
func (l *limited) enter(a netip.Addr) (leave func(), ok bool) {
	if l.exempt(a) {
		return func() {}, true
	}
	client := network.Of(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[client] >= l.share {
		return nil, false
	}
	l.by[client]++
	return func() { l.leave(client) }, true
}

func (l *limited) leave(client netip.Prefix) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[client]--; l.by[client] == 0 {
		delete(l.by, client)
	}
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type slotConn struct {
	net.Conn
	free func()
}

func (c *slotConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
