package network

import (
	"net/netip"
	"strings"
)

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
