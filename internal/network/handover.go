package network

import (
	"net"
	"sync"
)

// Handover hands connections from Give to Accept. It is safe for use by many goroutines.
type Handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover makes an open one.
func NewHandover() *Handover {
	return &Handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Give waits until somebody accepts c. It reports false when the listener is closed: c is still
// the caller's.
func (l *Handover) Give(c net.Conn) bool {
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
func (l *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Give and Accept return.
func (l *Handover) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is nobody's: there is no socket.
func (l *Handover) Addr() net.Addr { return &net.TCPAddr{} }
