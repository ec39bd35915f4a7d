package bench

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Death is how a host doesn't work.
type Death string

const (
	Silent      Death = "silent"      // takes connections and never says anything
	Unreachable Death = "unreachable" // answers no request for a connection, as behind a firewall that drops
	Refusing    Death = "refusing"    // refuses connections
)

// Type names the kind of a flag; with String and Set it makes a Death the value of one.
func (d *Death) Type() string { return "death" }

// String gives the word.
func (d *Death) String() string { return string(*d) }

// Set takes one of the words.
func (d *Death) Set(word string) error {
	if !Death(word).known() {
		return fmt.Errorf("want %s, %s or %s", Silent, Unreachable, Refusing)
	}
	*d = Death(word)
	return nil
}

func (d Death) known() bool { return d == Silent || d == Unreachable || d == Refusing }

// die makes the host at the address dead, and gives what ends that. l listens there.
func (d Death) die(l net.Listener) (undo func(), err error) {
	switch d {
	case Silent:
		return silence(l), nil
	case Unreachable:
		addr := l.Addr().String()
		l.Close()
		return deafen(addr)
	}
	l.Close()
	return func() {}, nil
}

// silence accepts connections and says nothing on any.
func silence(l net.Listener) (undo func()) {
	var running sync.WaitGroup
	running.Go(func() {
		var held []net.Conn
		for {
			c, err := l.Accept()
			if err != nil {
				break
			}
			held = append(held, c)
		}
		for _, c := range held {
			c.Close()
		}
	})
	return func() { l.Close(); running.Wait() }
}

// deafen answers no SYN: it listens with a backlog that is full.
func deafen(addr string) (undo func(), err error) {
	at, err := netip.ParseAddrPort(addr)
	if err != nil {
		return nil, err
	}
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, fmt.Errorf("making a host unreachable: %w", err)
	}
	syscall.CloseOnExec(fd)
	var held []net.Conn
	undo = func() {
		for _, c := range held {
			c.Close()
		}
		syscall.Close(fd)
	}
	err = errors.Join(
		syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}),
		syscall.Listen(fd, 0))
	if err != nil {
		undo()
		return nil, fmt.Errorf("making %s unreachable: %w", addr, err)
	}
	for range 16 {
		c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond)
		if err != nil {
			return undo, nil
		}
		held = append(held, c)
	}
	undo()
	return nil, fmt.Errorf("making %s unreachable: a listener with a backlog of none takes 16 connections here", addr)
}
