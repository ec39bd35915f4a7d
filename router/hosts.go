package router

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"example.org/mta/internal/network"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// maxLookups bounds the address look-ups of one domain that run at once.
const maxLookups = 8

// findAddresses looks up the addresses of all exchangers, several at a time.
func (q *search) findAddresses(ctx context.Context, unusable func(netip.Addr) string, port func(i int) uint16) {
	found := make([]addresses, len(q.Exchangers))
	var g errgroup.Group
	g.SetLimit(maxLookups)
	for i, x := range q.Exchangers {
		if a, err := netip.ParseAddr(x.Name); err == nil {
			// Not what RFC 5321 (5.1) and RFC 1035 (3.3.9) allow, but meant; Postfix takes it too.
			q.note("exchanger %s is an address and no name: taken as it is", x.Name)
			found[i].v4, found[i].v6 = families(a)
			continue
		}
		if !q.settings.NoIPv4 {
			g.Go(func() error { found[i].v4, found[i].err4 = q.resolver.A(ctx, x.Name); return nil })
		}
		if !q.settings.NoIPv6 {
			g.Go(func() error { found[i].v6, found[i].err6 = q.resolver.AAAA(ctx, x.Name); return nil })
		}
	}
	_ = g.Wait() // the errors are in found
	for i := range q.Exchangers {
		q.settle(&q.Exchangers[i], &found[i], unusable, port(i))
	}
}

// addresses is what was found for one exchanger. An answer and its error may both be nil: not
// asked.
type addresses struct {
	v4, v6     *resolver.Answer
	err4, err6 error
}

func families(a netip.Addr) (v4, v6 *resolver.Answer) {
	a = a.Unmap().WithZone("")
	answer := &resolver.Answer{Name: a.String(), Addrs: []netip.Addr{a}, Expires: time.Unix(1<<40, 0)}
	if a.Is4() {
		return answer, nil
	}
	return nil, answer
}

// settle decides which of the addresses of x are used, or why x is skipped.
func (q *search) settle(x *Exchanger, found *addresses, unusable func(netip.Addr) string, port uint16) {
	x.Secure = true
	alias := x.Name
	var v4, v6 []netip.Addr
	for _, answer := range []*resolver.Answer{found.v4, found.v6} {
		if answer == nil {
			continue
		}
		q.until(answer.Expires)
		x.Secure = x.Secure && answer.Secure
		if answer.Name != alias {
			alias = answer.Name
			q.note("exchanger %s is an alias of %s: RFC 2181 (10.3) forbids it, taken all the same", x.Name, alias)
		}
		for _, a := range answer.Addrs {
			a = a.Unmap()
			if q.settings.own(netip.AddrPortFrom(a, port)) {
				x.own, x.Secure, x.Skipped = true, false, x.Name+" is this relay"
				return
			}
			if why := unusable(a); why != "" {
				q.note("address %s of %s is left out: %s", a, x.Name, why)
				x.Skipped = fmt.Sprintf("%s is at %s, and %s", x.Name, a, why)
				continue
			}
			if a.Is4() {
				v4 = append(v4, a)
			} else {
				v6 = append(v6, a)
			}
		}
	}
	x.Addrs = q.alternate(v4, v6)
	if len(x.Addrs) > 0 {
		x.Skipped = ""
		return
	}
	x.Secure = false
	q.explainNothing(x, found)
}

// explainNothing notes why an exchanger has no address that can be used.
func (q *search) explainNothing(x *Exchanger, found *addresses) {
	for _, err := range []error{found.err4, found.err6} {
		if err == nil {
			continue
		}
		q.heed(err)
		if resolver.KindOf(err) == resolver.Temporary {
			x.temporary = true
			x.Skipped = fmt.Sprintf("looking up the address of %s: %s", x.Name, reasonOf(err))
			return
		}
		if x.Skipped == "" || x.nothing {
			x.nothing = true
			x.Skipped = x.Name + " has no address"
			if resolver.KindOf(err) == resolver.NXDomain {
				x.Skipped = x.Name + " does not exist"
			}
		}
	}
	x.Skipped = cmp.Or(x.Skipped, x.Name+" has no address of a family that is switched on here")
}

// alternate mixes the families, so that one that does not work costs every other attempt and not
// the first several. Which goes first is left to chance.
func (q *search) alternate(v4, v6 []netip.Addr) []netip.Addr {
	first, second := v6, v4
	if q.rand(2) == 0 {
		first, second = v4, v6
	}
	out := make([]netip.Addr, 0, len(v4)+len(v6))
	for i := range max(len(v4), len(v6)) {
		if i < len(first) {
			out = append(out, first[i])
		}
		if i < len(second) {
			out = append(out, second[i])
		}
	}
	return out
}

// tier puts the hosts of exchangers of equal preference in the order in which they are tried: the
// names by chance (RFC 5321, 5.1), the addresses of a name in the order of the DNS, one of each
// name in turn, so that a name with many does not keep the others out.
func (q *search) tier(equal []Exchanger, port uint16, limit int) route.Tier {
	order := slices.Clone(equal)
	for i := len(order) - 1; i > 0; i-- {
		j := q.rand(i + 1)
		order[i], order[j] = order[j], order[i]
	}
	var tier route.Tier
	seen := make(map[netip.Addr]bool)
	for i, more := 0, true; more; i++ {
		more = false
		for _, x := range order {
			if i >= len(x.Addrs) {
				continue
			}
			more = true
			if a := x.Addrs[i]; !seen[a] && len(tier) < limit {
				seen[a] = true
				tier = append(tier, route.Host{Name: x.Name, Addr: netip.AddrPortFrom(a, port)})
			}
		}
	}
	return tier
}

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
