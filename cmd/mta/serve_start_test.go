package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.org/mta/mta/listen"
	"example.org/mta/queue/store"
)

// What only an operator can mend ends the start with exit code 78, so that systemd does not try again, and with the
// remedy. What may pass, such as a port that is in use, does not.
func TestNotStarted(t *testing.T) {
	file := func(err error) error {
		return fmt.Errorf("opening: %w", &fs.PathError{Op: "open", Path: "/var/lib/mta/queue", Err: err})
	}
	port := func(err error) error {
		return &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", err)}
	}
	for _, test := range []struct {
		name string
		err  error
		code int
		want string
	}{
		{"a file of another user", file(syscall.EACCES), exitConfig, "use /var/lib/mta/queue: change its owner"},
		{"a read-only file system", file(syscall.EROFS), exitConfig, "ReadWritePaths="},
		{"a file in place of a directory", file(syscall.ENOTDIR), exitConfig, "move away what is there"},
		{"a directory in place of a file", file(syscall.EISDIR), exitConfig, "move away what is there"},
		{"a socket that no listener has", fmt.Errorf("starting the relay: %w: no listener", listen.ErrSockets), exitConfig, "no listener"},
		{"a lost segment", fmt.Errorf("starting the relay: %w: x.seg", store.ErrMissing), exitConfig, "x.seg"},
		{"a full disk", file(syscall.ENOSPC), exitFailed, "no space left"},
		{"a port that is in use", port(syscall.EADDRINUSE), exitFailed, "another relay"},
		{"a port below 1024", port(syscall.EACCES), exitFailed, "ports below 1024"},
	} {
		var said bytes.Buffer
		c := &cli{err: &said, env: func(string) string { return "" }, started: true}
		if code := c.fail("mta serve", c.notStarted(test.err)); code != test.code || !strings.Contains(said.String(), test.want) {
			t.Errorf("%s: code %d, want %d; printed %q", test.name, code, test.code, said.String())
		}
	}
}

func TestServeWithoutConfiguration(t *testing.T) {
	var said bytes.Buffer
	c := &cli{err: &said, out: &said, env: func(string) string { return "" }}
	missing := filepath.Join(t.TempDir(), "mta.conf")
	if code := run(c, []string{"mta", "serve", "--config", missing}); code != exitConfig || !strings.Contains(said.String(), missing) || !strings.Contains(said.String(), "--config") {
		t.Errorf("code %d, printed %q", code, said.String())
	}
	if _, err := os.Stat(missing); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the start made the file: %v", err)
	}
}

// A user whom the system does not have is a fault of the configuration: exit code 78, and no further starts.
func TestServeAsAUserThatDoesNotExist(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root changes its user")
	}
	file := filepath.Join(t.TempDir(), "mta.conf")
	if err := os.WriteFile(file, []byte("hostname = \"relay.example\"\nuser = \"no-such-user\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	c := &cli{err: &said, out: &said, env: func(string) string { return "" }}
	if code := run(c, []string{"mta", "serve", "--config", file}); code != exitConfig || !strings.Contains(said.String(), "useradd --system no-such-user") {
		t.Errorf("code %d, printed %q", code, said.String())
	}
}
