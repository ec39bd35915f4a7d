package mta

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"

	"example.org/mta/submission"
	"example.org/mta/submission/intake"
)

// A socket that the service manager has opened serves its block, whatever reloads do, and stays open for the next
// process.
func TestSocketOfTheServiceManager(t *testing.T) {
	with := func(name string, addresses ...string) []entrance {
		server := submission.New(submission.Config{Intake: intake.Config{Hostname: "relay.example", Log: slog.New(slog.DiscardHandler)}})
		return []entrance{{entranceSMTP, name, addresses, server}}
	}
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
	for what, wrong := range map[string][]entrance{"name": with("submission", address), "address": with("smtp", "127.0.0.1:0")} {
		if _, err := openListeners(wrong, given, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrSockets) || !strings.Contains(err.Error(), address) {
			t.Errorf("with another %s: %v", what, err)
		}
	}

	ls, err := openListeners(with("smtp", address), given, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ls.serve()
	greets := func() {
		t.Helper()
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := converse(t, c, "QUIT\r\n"); !strings.HasPrefix(got, "220 relay.example") {
			t.Errorf("the relay answers %q", got)
		}
	}
	greets()
	other := "127.0.0.1:" + freePort(t)
	change, err := ls.prepare(with("smtp", other, address), false)
	if err != nil {
		t.Fatal(err)
	}
	change.commit()
	greets()
	if _, err := ls.prepare(with("smtp", other), false); err == nil || !strings.Contains(err.Error(), "socket unit") {
		t.Errorf("a reload that leaves the socket to nobody: %v", err)
	}
	greets()

	ls.closeSockets()
	if err := ls.shutdown(t.Context()); err != nil {
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
