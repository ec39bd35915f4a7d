package listen

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Socket is a listening socket that the service manager has opened, and keeps open while the relay restarts.
type Socket struct {
	Name string // of the listener or api block that it is for
	net.Listener
}

// ErrSockets is wrapped by errors about sockets of the service manager that the relay can't use: an operator must make
// the socket units and the configuration agree.
var ErrSockets = errors.New("socket activation")

func givenSockets(given []Socket) (all []*socket) {
	for _, s := range given {
		all = append(all, &socket{Listener: s.Listener, address: s.Addr().String(), given: s.Name})
	}
	return all
}

func (s *socket) isGiven() bool { return s.given != "" }

// serves reports whether the socket is that of an address in a block of the configuration. One that the service
// manager opened belongs to the block of its name, however the address is spelled.
func (s *socket) serves(block, address string) bool {
	if !s.isGiven() {
		return s.address == address
	}
	return s.given == block && listensOn(s.Addr(), address)
}

// listensOn reports whether a socket's address is the one that the configuration means.
func listensOn(socket net.Addr, address string) bool {
	has, ok := socket.(*net.TCPAddr)
	want, err := net.ResolveTCPAddr("tcp", address)
	if !ok || err != nil || has.Port != want.Port {
		return false
	}
	return has.IP.Equal(want.IP) || has.IP.IsUnspecified() && (want.IP == nil || want.IP.IsUnspecified())
}

// unclaimed returns an error about a socket of the service manager that no block uses: clients could connect to it and
// would wait forever.
func unclaimed(going []*socket) error {
	i := slices.IndexFunc(going, (*socket).isGiven)
	if i < 0 {
		return nil
	}
	s := going[i]
	return fmt.Errorf(
		"%w: the service manager has opened %s for %q, and no listener or api block of that name has this address: "+
			"make the socket unit (ListenStream, FileDescriptorName) and the configuration agree", ErrSockets,
		s.Addr(), s.given)
}

// firstPassed is the first descriptor that a service manager passes (SD_LISTEN_FDS_START).
const firstPassed = 3

// Passed returns the listening sockets that the service manager has opened for this process, with the names that it
// gave them (sd_listen_fds(3)); none without socket activation. env gives the environment's variables.
func Passed(env func(name string) string) ([]Socket, error) {
	if env("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil // for another process, or for nobody
	}
	return passedSockets(env("LISTEN_FDS"), env("LISTEN_FDNAMES"), firstPassed)
}

func passedSockets(count, names string, first int) (all []Socket, err error) {
	n, err := strconv.Atoi(count)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%w: LISTEN_FDS is %q, which is not a number of sockets", ErrSockets, count)
	}
	named := strings.Split(names, ":")
	if len(named) != n {
		return nil, fmt.Errorf(
			"%w: %d sockets, and LISTEN_FDNAMES has %d names (%s): set FileDescriptorName in each socket unit",
			ErrSockets, n, len(named), names)
	}
	for i, name := range named {
		syscall.CloseOnExec(first + i)
		file := os.NewFile(uintptr(first+i), name)
		l, err := net.FileListener(file)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%w: descriptor %d, %q, is not a listening socket (ListenStream): %w", ErrSockets,
				first+i, name, err)
		}
		if _, ok := l.Addr().(*net.TCPAddr); !ok {
			return nil, fmt.Errorf("%w: %q listens at %s, and not at an IP address and port",
				ErrSockets, name, l.Addr())
		}
		all = append(all, Socket{Name: name, Listener: l})
	}
	return all, nil
}
