package delivery

import (
	"context"
	"net"
	"net/netip"

	"mta/internal/route"
)

// Source is a local address and the name that goes with it, from which connections are made.
type Source struct {
	Name    string
	Address netip.Addr // zero: whichever the system takes
	EHLO    string     // what the source calls itself; it should resolve to its public address
}

// Reaches reports whether the source can connect to a host, by the families of their addresses.
func (s Source) Reaches(h route.Host) bool {
	if !s.Address.IsValid() {
		return true
	}
	return s.Address.Unmap().Is4() == h.Addr.Addr().Unmap().Is4()
}

// dialer is the default of Config.Dial.
func dialer(ctx context.Context, s Source, h route.Host) (net.Conn, error) {
	d := net.Dialer{KeepAlive: -1} // SMTP has its own time-outs
	if s.Address.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(s.Address.Unmap(), 0))
	}
	return d.DialContext(ctx, "tcp", h.Addr.String())
}
