package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
)

// maxSocketPath is what fits into sockaddr_un on Linux, with its closing zero.
const maxSocketPath = 107

// Listen makes the unix socket at path, with the given permissions. A socket that a relay left
// behind when it was killed is replaced; one that somebody listens on is not.
func Listen(path string, mode fs.FileMode) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("control socket %s: the path has %d octets, and %d is the most: set a shorter one", path, len(path), maxSocketPath)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	// Until here the umask has decided, and the usual ones let nobody else write, which is what
	// connecting takes.
	if err := os.Chmod(path, mode.Perm()); err != nil {
		l.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return l, nil
}

func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("control socket: %s exists and is no socket: move it away", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("control socket: somebody listens on %s: is another relay running?", path)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("control socket: trying whether somebody listens: %w", err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("control socket: removing the one left behind: %w", err)
	}
	return nil
}
