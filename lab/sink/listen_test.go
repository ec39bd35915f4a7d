package sink

import (
	"net"
	"strconv"
	"testing"
)

func TestListenTogetherHasOnePortOnAllAddresses(t *testing.T) {
	addrs := []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"}
	all, port, err := ListenTogether(0, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	for i, l := range all {
		if got, want := l.Addr().String(), net.JoinHostPort(addrs[i], port); got != want {
			t.Errorf("listener %d is at %s, want %s", i, got, want)
		}
		defer l.Close()
	}
}

func TestListenTogetherOpensAllOrNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	if _, _, err := ListenTogether(port, "127.0.0.1", "127.0.0.2"); err == nil {
		t.Fatal("a port that is taken on one of the addresses was opened")
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		t.Errorf("the other address is still taken: %v", err)
	} else {
		l.Close()
	}
}
