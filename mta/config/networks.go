package config

import (
	"math"
	"net/netip"
	"slices"
)

// ipv6Unicast is where the addresses of the Internet are that are in use (RFC 4291, 2.4).
var ipv6Unicast = netip.MustParsePrefix("2000::/3")

// tooMuch is the share of all addresses, of one family, from which a list of networks is no list of
// one's own: the largest provider there is has less.
const tooMuch = 0.5

// openTo returns what share of the addresses of a family networks have together, 0 to 1, when that is too
// much for a list of one's own networks. IPv6 addresses count that are in use in the Internet.
func openTo(networks []netip.Prefix) (family string, share float64) {
	var v4, v6 []netip.Prefix
	for _, p := range networks {
		switch {
		case p.Addr().Is4():
			v4 = append(v4, p.Masked())
		case p.Bits() <= ipv6Unicast.Bits() && p.Contains(ipv6Unicast.Addr()):
			v6 = append(v6, ipv6Unicast)
		case ipv6Unicast.Contains(p.Addr()):
			v6 = append(v6, p.Masked())
		}
	}
	if share := shareOf(v4, 0); share >= tooMuch {
		return "IPv4", share
	}
	if share := shareOf(v6, ipv6Unicast.Bits()); share >= tooMuch {
		return "IPv6", share
	}
	return "", 0
}

// shareOf sums networks up, each address once. whole is the length of the prefix that has all.
func shareOf(networks []netip.Prefix, whole int) (share float64) {
	slices.SortFunc(networks, func(a, b netip.Prefix) int { return a.Bits() - b.Bits() })
	for i, p := range networks {
		within := func(larger netip.Prefix) bool { return larger.Contains(p.Addr()) }
		if !slices.ContainsFunc(networks[:i], within) {
			share += math.Exp2(float64(whole - p.Bits()))
		}
	}
	return share
}
