package main

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"

	"example.org/mta/mta/listen"
)

// firstPassed is the first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const firstPassed = 3

// passedSockets returns the listening sockets that the service manager has opened for this process, with the names
// that it gave them (sd_listen_fds(3)); none without socket activation.
func (c *cli) passedSockets() ([]listen.Socket, error) {
	if c.env("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil // for another process, or for nobody
	}
	return passedSockets(c.env("LISTEN_FDS"), c.env("LISTEN_FDNAMES"), firstPassed)
}

func passedSockets(count, names string, first int) (all []listen.Socket, err error) {
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%w: LISTEN_FDS is %q, which is no number of sockets", listen.ErrSockets, count)
	}
	named := strings.Split(names, ":")
	if len(named) != n {
		return nil, fmt.Errorf("%w: %d sockets, and LISTEN_FDNAMES has %d names (%s): set FileDescriptorName in each socket unit", listen.ErrSockets, n, len(named), names)
	}
	for i, name := range named {
		syscall.CloseOnExec(first + i)
		file := os.NewFile(uintptr(first+i), name)
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%w: descriptor %d, %q, is not a listening socket (ListenStream): %w", listen.ErrSockets, first+i, name, err)
		}
		if _, ok := l.Addr().(*net.TCPAddr); !ok {
			return nil, fmt.Errorf("%w: %q listens at %s, and not at an IP address and port", listen.ErrSockets, name, l.Addr())
		}
		all = append(all, listen.Socket{Name: name, Listener: l})
	}
	return all, nil
}
