package router

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"mta/internal/reply"
	"mta/internal/route"
	"mta/router/resolver"
)

// maxLookups bounds the address look-ups of one domain that run at once.
const maxLookups = 8

// Result is a domain's route and how it came about, or why there is none.
type Result struct {
	Domain     string
	Route      *route.Route // nil when there is none
	Trouble    *reply.Reply // then: why
	Expires    time.Time    // until when it holds
	Exchangers []Exchanger  // all that were considered, best first
	Notes      []string     // the steps, for people
}

// Exchanger is one host that a domain's mail could go to.
type Exchanger struct {
	Preference uint16
	Name       string
	Addrs      []netip.Addr // those that can be used
	Skipped    string       // why none is used; "" when some are
	Secure     bool         // the server vouches for all of it (AD)

	own       bool // it is this relay
	temporary bool // it may have addresses another time
	nothing   bool // it has no address at all, and the DNS is sure of it
}

// search is the work on one domain.
type search struct {
	Result
	settings *settings
	resolver Resolver
	rand     func(n int) int
	now      time.Time
	implicit bool // the domain is its own exchanger
}

// run goes through the steps and gives the result.
func (q *search) run(ctx context.Context) Result {
	q.Expires = q.now.Add(q.settings.MaxRouteAge)
	if hosts, ok := q.settings.smarthosts.find(q.Domain); ok {
		q.smarthost(ctx, hosts)
	} else if strings.HasPrefix(q.Domain, "[") {
		q.literal()
	} else {
		q.exchangers(ctx)
	}
	return q.Result
}

func (q *search) note(format string, args ...any) {
	q.Notes = append(q.Notes, fmt.Sprintf(format, args...))
}

// until shortens how long the result holds.
func (q *search) until(t time.Time) {
	if t.Before(q.Expires) {
		q.Expires = t
	}
}

// smarthost makes the route that configuration asks for: each host a tier of its own.
func (q *search) smarthost(ctx context.Context, hosts []Smarthost) {
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.address()
		q.note("configuration sends mail for %s to %s", q.Domain, h)
		q.Exchangers = append(q.Exchangers, Exchanger{Preference: uint16(i), Name: h.Host})
	}
	// Where the operator sends mail is the operator's business: loopback is fine.
	q.findAddresses(ctx, q.settings.familyOff, func(i int) uint16 { return hosts[i].Port })
	rt := &route.Route{Domain: q.Domain, Site: bounded(strings.Join(names, ",")), TLS: hosts[0].TLS, Auth: hosts[0].Auth}
	for i := range q.Exchangers {
		if tier := q.tier(q.Exchangers[i:i+1], hosts[i].Port, q.settings.MaxHosts-rt.Hosts()); len(tier) > 0 {
			rt.Tiers = append(rt.Tiers, tier)
		}
	}
	if len(rt.Tiers) == 0 {
		q.Trouble = smarthostTrouble(q.Domain, q.whySkipped())
		return
	}
	rt.Provider = q.provider(q.Exchangers[:1])
	q.Route = rt
}

// literal makes the route of an address literal.
func (q *search) literal() {
	a, err := parseLiteral(q.Domain)
	if err != nil {
		q.Trouble = badLiteral(q.Domain, err)
		return
	}
	host := netip.AddrPortFrom(a, q.settings.Port)
	switch why := q.settings.unusable(a); {
	case q.settings.own(host):
		q.Trouble = loop(q.Domain)
	case why != "":
		q.Trouble = noUsableExchanger(q.Domain, why)
	default:
		q.note("%s is an address literal: no look-up", q.Domain)
		q.Exchangers = []Exchanger{{Name: a.String(), Addrs: []netip.Addr{a}}}
		q.Route = &route.Route{Domain: q.Domain, Site: literalName(a), Tiers: []route.Tier{{{Name: a.String(), Addr: host}}}}
	}
}

// exchangers makes the route from the DNS (RFC 5321, 5.1).
func (q *search) exchangers(ctx context.Context) {
	if !q.findExchangers(ctx) || !q.beforeOurselves() {
		return
	}
	site := make([]string, len(q.Exchangers))
	for i, x := range q.Exchangers {
		site[i] = x.Name
	}
	if n := q.settings.MaxHosts; len(q.Exchangers) > n {
		q.note("only the first %d of %d exchangers are looked up", n, len(q.Exchangers))
		q.Exchangers = q.Exchangers[:n]
	}
	q.findAddresses(ctx, q.settings.unusable, func(int) uint16 { return q.settings.Port })
	if !q.beforeOurselves() {
		return
	}
	rt := &route.Route{Domain: q.Domain, Site: siteName(site)}
	for rest := q.Exchangers; len(rest) > 0; {
		n := samePreference(rest)
		if tier := q.tier(rest[:n], q.settings.Port, q.settings.MaxHosts-rt.Hosts()); len(tier) > 0 {
			if rt.Tiers == nil {
				rt.Provider = q.provider(rest[:n])
			}
			rt.Tiers = append(rt.Tiers, tier)
		}
		rest = rest[n:]
	}
	if len(rt.Tiers) == 0 {
		q.Trouble = q.noneUsable()
		return
	}
	q.Route = rt
}

// findExchangers gets the list of exchangers, best first, each name once. False: q.Trouble says
// why not.
func (q *search) findExchangers(ctx context.Context) bool {
	a, err := q.resolver.MX(ctx, q.Domain)
	if err != nil {
		return q.withoutMX(err)
	}
	q.until(a.Expires)
	if a.Name != q.Domain {
		// RFC 5321, 5.1: the name that an alias gives is processed as if it were the first.
		q.note("%s is an alias of %s", q.Domain, a.Name)
	}
	if len(a.MX) == 1 && a.MX[0].Host == "" {
		q.note("its only exchanger is \".\": null MX (RFC 7505)")
		q.Trouble = nullMX(q.Domain)
		return false
	}
	list := slices.Clone(a.MX)
	slices.SortStableFunc(list, func(x, y resolver.MX) int {
		return cmp.Or(cmp.Compare(x.Preference, y.Preference), cmp.Compare(x.Host, y.Host))
	})
	seen := make(map[string]bool)
	for _, mx := range list {
		if seen[mx.Host] {
			continue
		}
		seen[mx.Host] = true
		if !isHostName(mx.Host) {
			q.note("exchanger %q is no host name: left out", mx.Host)
			continue
		}
		q.Exchangers = append(q.Exchangers, Exchanger{Preference: mx.Preference, Name: mx.Host})
	}
	if len(q.Exchangers) == 0 {
		q.Trouble = noUsableExchanger(q.Domain, "none has the name of a host")
		return false
	}
	q.note("%s has %d exchangers", q.Domain, len(q.Exchangers))
	return true
}

// withoutMX decides what a failed MX look-up means.
func (q *search) withoutMX(err error) bool {
	q.heed(err)
	switch resolver.KindOf(err) {
	case resolver.NoData:
		// RFC 5321, 5.1: the domain itself, as if it were an MX of preference 0.
		q.note("%s has no exchangers: its own address is taken", q.Domain)
		q.implicit = true
		q.Exchangers = []Exchanger{{Name: q.Domain}}
		return true
	case resolver.NXDomain:
		q.Trouble = noSuchDomain(q.Domain)
	default:
		q.Trouble = dnsTrouble(q.Domain, reasonOf(err))
	}
	return false
}

// heed notes an error of the resolver, and how long it holds.
func (q *search) heed(err error) {
	q.note("%v", err)
	if e, ok := err.(*resolver.Error); ok {
		q.until(e.Expires)
	} else {
		q.until(q.now)
	}
}

// reasonOf is what a report may say of an error: never which name servers we use.
func reasonOf(err error) string {
	if e, ok := err.(*resolver.Error); ok {
		return e.Reason
	}
	return "look-up failed"
}

// beforeOurselves cuts the list at the preference at which this relay itself stands: it must not
// hand mail to itself, nor to those that would hand it back (RFC 5321, 5.1). False: nobody is
// left.
func (q *search) beforeOurselves() bool {
	for _, x := range q.Exchangers {
		if !x.own && !q.settings.names[x.Name] {
			continue
		}
		keep := slices.IndexFunc(q.Exchangers, func(y Exchanger) bool { return y.Preference >= x.Preference })
		q.note("exchanger %s is this relay: those of preference %d and above are left out", x.Name, x.Preference)
		q.Exchangers = q.Exchangers[:keep]
		if keep == 0 {
			q.Trouble = loop(q.Domain)
			return false
		}
		return true
	}
	return true
}

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

// explainNothing says why an exchanger has no address that can be used.
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
	if x.Skipped == "" {
		x.Skipped = x.Name + " has no address of a family that is switched on here"
	}
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

func samePreference(list []Exchanger) int {
	n := 1
	for n < len(list) && list[n].Preference == list[0].Preference {
		n++
	}
	return n
}

// provider finds whose exchangers these are: those of the best tier that can be used decide.
func (q *search) provider(best []Exchanger) string {
	for _, x := range best {
		if p, ok := q.settings.providers.find(x.Name); ok {
			q.note("exchanger %s belongs to provider %s", x.Name, p)
			return p
		}
	}
	return ""
}

// noneUsable says what it means that no exchanger has a usable address: temporary when one may
// have another time, else permanent (RFC 5321, 5.1).
func (q *search) noneUsable() *reply.Reply {
	for _, x := range q.Exchangers {
		if x.temporary {
			return dnsTrouble(q.Domain, x.Skipped)
		}
	}
	if q.implicit && q.Exchangers[0].nothing {
		return noAddress(q.Domain)
	}
	return noUsableExchanger(q.Domain, q.whySkipped())
}

// whySkipped gives the reasons of the first few exchangers.
func (q *search) whySkipped() string {
	const few = 3
	var why []string
	for i, x := range q.Exchangers {
		if i == few {
			why = append(why, "and "+strconv.Itoa(len(q.Exchangers)-few)+" more")
			break
		}
		why = append(why, x.Skipped)
	}
	return strings.Join(why, "; ")
}
