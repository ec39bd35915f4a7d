// Package handover has a net.Listener whose connections come from within the program: from
// another listener, or from before STARTTLS. It starts no goroutines.
package handover

import (
	"net"
	"sync"
)

// Listener hands connections from Give to Accept. It is safe for use by many goroutines.
type Listener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// New makes an open one.
func New() *Listener {
	return &Listener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Give waits until somebody accepts c. It reports false when the listener is closed: c is still
// the caller's.
func (l *Listener) Give(c net.Conn) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept waits for a connection; net.ErrClosed ends it.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Give and Accept return.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is nobody's: there is no socket.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{} }
