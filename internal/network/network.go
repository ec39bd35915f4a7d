// Package network answers the questions about IP addresses that listeners of all protocols and the router ask.
package network

import (
	"net"
	"net/netip"
	"slices"
)

// Peer is the address at the other end of a TCP connection, IPv4 as IPv4 and without a zone; zero for other
// connections.
func Peer(a net.Addr) netip.AddrPort {
	t, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := t.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port())
}

// Contain reports whether an address is in one of some networks.
func Contain(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Of gives what counts as one client: an IPv4 address or an IPv6 /64, since whoever has one IPv6 address
// has 2^64. It is zero for the zero address.
func Of(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := a.BitLen()
	if a.Is6() {
		bits = 64
	}
	p, _ := a.Prefix(bits)
	return p
}
