// Package network answers the questions about IP addresses that listeners of all protocols and the router ask.
package network

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pires/go-proxyproto"
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

// Client returns who is behind trusted proxies: of the hops that they name, the right-most that is not one of them,
// since anybody could have written what is left of it. Without one, it is the left-most of the proxies. peer is at the
// other end of the connection.
func Client(peer netip.AddrPort, hops []string, trusted []netip.Prefix) netip.AddrPort {
	for i := len(hops) - 1; i >= 0 && Contain(trusted, peer.Addr()); i-- {
		hop, ok := parseNode(hops[i])
		if !ok {
			break // "unknown", or a name that hides it (RFC 7239, 6.3)
		}
		peer = hop
	}
	return peer
}

// parseNode reads an address, with or without a port (RFC 7239, 6).
func parseNode(text string) (netip.AddrPort, bool) {
	if a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")); err == nil {
		return netip.AddrPortFrom(a.Unmap().WithZone(""), 0), true
	}
	ap, err := netip.ParseAddrPort(text)
	return netip.AddrPortFrom(ap.Addr().Unmap().WithZone(""), ap.Port()), err == nil
}

// Elements returns the elements of a list field of HTTP, such as X-Forwarded-For.
func Elements(lines []string) (out []string) {
	for _, line := range lines {
		for e := range strings.SplitSeq(line, ",") {
			if e = strings.TrimSpace(e); e != "" {
				out = append(out, e)
			}
		}
	}
	return out
}

// ProxyHeader expects a header on a new connection, of version 1 or 2, for so long. Reading from a connection
// without one fails.
func ProxyHeader(conn net.Conn, wait time.Duration) *proxyproto.Conn {
	return proxyproto.NewConn(&whole{Conn: conn}, proxyproto.WithPolicy(proxyproto.REQUIRE),
		proxyproto.SetReadHeaderTimeout(wait))
}

// maxV1 is the longest header of version 1, in octets, line end included (PROXY protocol, 2.1).
const maxV1 = 107

// whole gives a header of version 1 in one piece, however it came: the library refuses one that took
// two TCP segments. The deadline of the socket bounds the wait.
type whole struct {
	net.Conn
	begun bool
}

func (c *whole) Read(p []byte) (n int, err error) {
	if c.begun {
		return c.Conn.Read(p)
	}
	c.begun = true
	for {
		m, err := c.Conn.Read(p[n:])
		if n += m; err != nil {
			return n, err
		}
		if !half(p[:n]) || n == len(p) {
			return n, nil
		}
	}
}

// half reports whether b is the start of a version 1 header and not all of it.
func half(b []byte) bool {
	const signature = "PROXY "
	k := min(len(b), len(signature))
	return string(b[:k]) == signature[:k] && len(b) < maxV1 && bytes.IndexByte(b, '\n') < 0
}

// Handover hands connections from Give to Accept. It is safe for use by many goroutines.
type Handover struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

// NewHandover makes an open one.
func NewHandover() *Handover {
	return &Handover{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Give waits until somebody accepts c. It reports false when the listener is closed: c is still
// the caller's.
func (l *Handover) Give(c net.Conn) bool {
	select {
	case <-l.closed:
		return false
	default:
	}
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept waits for a connection; net.ErrClosed ends it.
func (l *Handover) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close makes Give and Accept return.
func (l *Handover) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr is nobody's: there is no socket.
func (l *Handover) Addr() net.Addr { return &net.TCPAddr{} }
