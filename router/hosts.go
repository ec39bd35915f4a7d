package router

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

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
