package listen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
)

// greeter is a server that greets.
type greeter struct {
	mu    sync.Mutex
	conns net.Listener
}

var errEnded = errors.New("ended")

func (g *greeter) Serve(l net.Listener) error {
	g.mu.Lock()
	g.conns = l
	g.mu.Unlock()
	for {
		c, err := l.Accept()
		if err != nil {
			return errEnded
		}
		fmt.Fprint(c, "220 relay.example\r\n")
		c.Close()
	}
}

func (g *greeter) Shutdown(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.conns != nil {
		g.conns.Close()
	}
	return nil
}

func (g *greeter) Retire(ctx context.Context) error { return g.Shutdown(ctx) }

// with is a block with one server.
func with(name string, addresses ...string) []Entrance {
	return []Entrance{{Kind: SMTP, Name: name, Address: addresses, Server: new(greeter), Ended: errEnded}}
}

// greets checks that an address is served.
func greets(t *testing.T, address string) {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); !strings.HasPrefix(string(got), "220 relay.example") {
		t.Errorf("the relay answers %q, %v", got, err)
	}
}

// freeAddress is an address that is free for now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A socket that the service manager has opened serves its block, whatever reloads do, and stays open for the next
// process.
func TestSocketOfTheServiceManager(t *testing.T) {
	managers, err := net.Listen("tcp", "127.0.0.1:0") // what the manager keeps
	if err != nil {
		t.Fatal(err)
	}
	defer managers.Close()
	file, err := managers.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	passed, err := net.FileListener(file)
	if err != nil {
		t.Fatal(err)
	}
	address := managers.Addr().String()
	given := []Socket{{Name: "smtp", Listener: passed}}
	for what, wrong := range map[string][]Entrance{"name": with("submission", address), "address": with("smtp", "127.0.0.1:0")} {
		if _, err := Open(wrong, given, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrSockets) || !strings.Contains(err.Error(), address) {
			t.Errorf("with another %s: %v", what, err)
		}
	}

	ls, err := Open(with("smtp", address), given, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ls.Serve()
	greets(t, address)
	other := freeAddress(t)
	change, err := ls.Prepare(with("smtp", other, address), false)
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	greets(t, address)
	if _, err := ls.Prepare(with("smtp", other), false); err == nil || !strings.Contains(err.Error(), "socket unit") {
		t.Errorf("a reload that leaves the socket to nobody: %v", err)
	}
	greets(t, address)

	ls.Close()
	if err := ls.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal("a client is refused while the relay restarts:", err)
	}
	defer c.Close()
	if accepted, err := managers.Accept(); err != nil {
		t.Error(err)
	} else {
		accepted.Close()
	}
}

func TestListensOn(t *testing.T) {
	for _, test := range []struct {
		socket, address string
		want            bool
	}{
		{"127.0.0.1:25", "127.0.0.1:25", true},
		{"127.0.0.1:25", "localhost:25", true},
		{"127.0.0.1:25", "127.0.0.1:26", false},
		{"127.0.0.1:25", "0.0.0.0:25", false},
		{"[::]:25", ":25", true},
		{"[::]:25", "0.0.0.0:25", true},
		{"[::]:25", "127.0.0.1:25", false},
		{"[::ffff:192.0.2.1]:25", "192.0.2.1:25", true},
		{"192.0.2.1:25", "no address", false},
	} {
		socket, err := net.ResolveTCPAddr("tcp", test.socket)
		if err != nil {
			t.Fatal(err)
		}
		if got := listensOn(socket, test.address); got != test.want {
			t.Errorf("%s, configured as %s: %v", test.socket, test.address, got)
		}
	}
}

// A reload can come while the relay starts, before anything is accepted: its listeners are those that serve.
func TestReloadBeforeListenersServe(t *testing.T) {
	gone, kept := freeAddress(t), freeAddress(t)
	ls, err := Open(with("smtp", gone), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	change, err := ls.Prepare(with("smtp", kept), false)
	if err != nil {
		t.Fatal(err)
	}
	change.Commit()
	ls.Serve()
	defer func() {
		ls.Close()
		ls.Shutdown(t.Context())
	}()
	if c, err := net.Dial("tcp", gone); err == nil {
		c.Close()
		t.Error("the address that the reload removed still takes connections")
	}
	greets(t, kept)
}
