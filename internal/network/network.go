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

// Of gives what counts as one client: an IPv4 address or an IPv6 /64, since an owner of one IPv6 address
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

// Around gives the neighbourhood of an address, all of which one customer of a provider often has: an IPv4 /24 or an
// IPv6 /48. It is zero for the zero address.
func Around(a netip.Addr) netip.Prefix {
	a = a.Unmap()
	bits := 24
	if a.Is6() {
		bits = 48
	}
	p, _ := a.Prefix(bits)
	return p
}

// Without gives the networks of p that are not in q.
func Without(p, q netip.Prefix) []netip.Prefix {
	switch {
	case !p.Overlaps(q):
		return []netip.Prefix{p}
	case q.Bits() <= p.Bits():
		return nil
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(setBit(p.Addr(), p.Bits()), p.Bits()+1)
	return append(Without(low, q), Without(high, q)...)
}

// setBit gives the address with one more bit set, counted from the highest.
func setBit(a netip.Addr, n int) netip.Addr {
	octets := a.AsSlice()
	octets[n/8] |= 1 << (7 - n%8)
	out, _ := netip.AddrFromSlice(octets)
	return out
}
