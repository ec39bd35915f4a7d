package delivery

import (
	"context"
	"net"
	"net/netip"

	"example.org/mta/internal/route"
)

// Source is a local address and the name that goes with it, from which connections are made.
type Source struct {
	Name    string
	Address netip.Addr // zero: whichever the system takes
	EHLO    string     // what the source calls itself; it should resolve to its public address
	Proxy   string     // names what Config.Dial connects through; "": nothing
}

// SourceError is what Config.Dial gives when the fault is the source's (its address, its proxy),
// or may be: the host is not held to be broken for other sources. Its text names no
// address but the proxy's.
type SourceError struct{ Err error }

func (e *SourceError) Error() string { return e.Err.Error() }
func (e *SourceError) Unwrap() error { return e.Err }

// Reaches reports whether the source can connect to a host, by the families of their addresses.
func (s Source) Reaches(h route.Host) bool {
	if !s.Address.IsValid() || h.Inside() {
		return true
	}
	return s.Address.Unmap().Is4() == h.Addr.Addr().Unmap().Is4()
}

// dialer is the default of Config.Dial.
func dialer(ctx context.Context, s Source, h route.Host) (net.Conn, error) {
	return Direct(s.Address)(ctx, h.Addr)
}
