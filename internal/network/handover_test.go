package network

import (
	"errors"
	"net"
	"testing"
)

func TestWhatIsGivenIsAccepted(t *testing.T) {
	l := NewHandover()
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	given := make(chan bool)
	go func() { given <- l.Give(a) }()
	if c, err := l.Accept(); err != nil || c != a || !<-given {
		t.Errorf("accepted %v, %v", c, err)
	}
}

func TestCloseEndsBothSides(t *testing.T) {
	l := NewHandover()
	a, b := net.Pipe()
	defer b.Close()
	defer a.Close()
	given := make(chan bool)
	go func() { given <- l.Give(a) }()
	l.Close()
	l.Close()
	if <-given {
		t.Error("given to nobody")
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accepted after Close: %v", err)
	}
	if l.Give(a) {
		t.Error("given after Close")
	}
}
