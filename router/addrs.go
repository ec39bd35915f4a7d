package router

import (
	"net"
	"net/netip"
	"strings"

	"example.org/mta/internal/network"
)

// unusable returns why no mail may go to an address that the DNS (or a recipient) named, "" when it
// may. An MX that points to 127.0.0.1 or 0.0.0.0 would have the relay talk to itself.
func (s *settings) unusable(a netip.Addr) string {
	a = a.Unmap()
	if why := s.familyOff(a); why != "" {
		return why
	}
	a = embedded(a)
	switch {
	case a.IsUnspecified(), a.Is4() && a.As4()[0] == 0:
		return "it is the unspecified address"
	case a.IsLoopback():
		if s.AllowLoopback {
			return ""
		}
		return "it is a loopback address"
	case a.IsMulticast(), a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "it is a multicast or broadcast address"
	case a.IsLinkLocalUnicast():
		return "it is a link-local address"
	case s.RefusePrivate && (a.IsPrivate() || network.Contain(notGlobal, a)):
		return "it is a private address"
	}
	return ""
}

// notGlobal are the networks, besides those of RFC 1918 and RFC 4193, that no host of the Internet
// has an address in (RFC 6890 and the registries that it started).
var notGlobal = []netip.Prefix{
	netip.MustParsePrefix("100.64.0.0/10"),  // behind a provider's NAT (RFC 6598)
	netip.MustParsePrefix("192.0.0.0/24"),   // protocol assignments (RFC 6890, 2.1)
	netip.MustParsePrefix("198.18.0.0/15"),  // benchmarks (RFC 2544)
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved (RFC 1112, 4)
	netip.MustParsePrefix("fec0::/10"),      // site-local (RFC 3879)
	netip.MustParsePrefix("64:ff9b:1::/48"), // NAT64 within a network (RFC 8215)
}

// embedding are the networks whose addresses have an IPv4 address in their last four octets:
// IPv4-compatible ones (RFC 4291, 2.5.5.1) and those of NAT64 (RFC 6052, 2.1).
var embedding = []netip.Prefix{netip.MustParsePrefix("::/96"), netip.MustParsePrefix("64:ff9b::/96")}

// embedded gives the IPv4 address within a, which is where the mail would go; else a itself.
func embedded(a netip.Addr) netip.Addr {
	if !network.Contain(embedding, a) || a == netip.IPv6Unspecified() || a == netip.IPv6Loopback() {
		return a
	}
	b := a.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

func (s *settings) familyOff(a netip.Addr) string {
	if s.NoIPv4 && a.Is4() || s.NoIPv6 && a.Is6() {
		return "its address family is switched off here"
	}
	return ""
}

// own reports whether connecting to an address would be connecting to ourselves.
func (s *settings) own(a netip.AddrPort) bool {
	return s.self[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())]
}

// ListenerAddrs gives the addresses at which listeners can be reached, for Settings.SelfAddrs: a
// listener at the unspecified address is reached at all addresses of the machine.
func ListenerAddrs(listeners []netip.AddrPort) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	var machine []net.Addr
	for _, l := range listeners {
		if !l.Addr().IsUnspecified() {
			out = append(out, l)
			continue
		}
		if machine == nil {
			var err error
			if machine, err = net.InterfaceAddrs(); err != nil {
				return nil, err
			}
		}
		for _, m := range machine {
			if p, err := netip.ParsePrefix(m.String()); err == nil {
				out = append(out, netip.AddrPortFrom(p.Addr().Unmap(), l.Port()))
			}
		}
	}
	return out, nil
}

// isHostName reports whether a name from the DNS can be one of a host: letters, digits, hyphens,
// and underscores, which some have. Others would only confuse logs, reports and names of
// sites.
func isHostName(name string) bool {
	if name == "" || len(name) > 253 || strings.HasPrefix(name, ".") || strings.Contains(name, "..") {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
