package listen

import (
	"errors"
	"fmt"
	"net"
	"slices"
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
	return fmt.Errorf("%w: the service manager has opened %s for %q, and no listener or api block of that name has this address: make the socket unit (ListenStream, FileDescriptorName) and the configuration agree", ErrSockets, s.Addr(), s.given)
}
