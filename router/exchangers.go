package router

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

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
	rt := &route.Route{Domain: q.Domain, Site: siteName(site), Secure: q.secure}
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
		q.Failure = q.noneUsable()
		return
	}
	q.Route = rt
}

// findExchangers gets the list of exchangers, best first, each name once. False: q.Failure says
// why not.
func (q *search) findExchangers(ctx context.Context) bool {
	a, err := q.resolver.MX(ctx, q.Domain)
	if err != nil {
		return q.withoutMX(err)
	}
	q.until(a.Expires)
	q.secure = a.Secure
	if a.Name != q.Domain {
		// RFC 5321, 5.1: the name that an alias gives is processed as if it were the first.
		q.note("%s is an alias of %s", q.Domain, a.Name)
	}
	if len(a.MX) == 1 && a.MX[0].Host == "" {
		q.note("its only exchanger is \".\": null MX (RFC 7505)")
		q.Failure = nullMX(q.Domain)
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
			q.note("exchanger %q is not a valid host name: left out", mx.Host)
			continue
		}
		q.Exchangers = append(q.Exchangers, Exchanger{Preference: mx.Preference, Name: mx.Host})
	}
	if len(q.Exchangers) == 0 {
		q.Failure = noUsableExchanger(q.Domain, "none has the name of a host")
		return false
	}
	q.note("MX of %s: %s", q.Domain, q.list())
	return true
}

// list names the first few exchangers with their preferences.
func (q *search) list() string {
	const few = 8
	var names []string
	for i, x := range q.Exchangers {
		if i == few {
			names = append(names, "and "+strconv.Itoa(len(q.Exchangers)-few)+" more")
			break
		}
		names = append(names, strconv.Itoa(int(x.Preference))+" "+x.Name)
	}
	return strings.Join(names, ", ")
}

// withoutMX decides what a failed MX look-up means.
func (q *search) withoutMX(err error) bool {
	q.heed(err)
	switch resolver.KindOf(err) {
	case resolver.NoData:
		// RFC 5321, 5.1: the domain itself, as if it were an MX of preference 0.
		q.note("%s has no exchangers: its own address is taken", q.Domain)
		q.implicit, q.secure = true, secureAbsence(err)
		q.Exchangers = []Exchanger{{Name: q.Domain}}
		return true
	case resolver.NXDomain:
		q.Failure = noSuchDomain(q.Domain)
	default:
		q.Failure = dnsFailure(q.Domain, reasonOf(err))
	}
	return false
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
			q.Failure = loop(q.Domain)
			return false
		}
		return true
	}
	return true
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

// noneUsable returns what it means that no exchanger has a usable address: temporary when one may
// have another time, else permanent (RFC 5321, 5.1).
func (q *search) noneUsable() *reply.Reply {
	for _, x := range q.Exchangers {
		if x.temporary {
			return dnsFailure(q.Domain, x.Skipped)
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

// secureAbsence reports whether the server vouches for there being no such record.
func secureAbsence(err error) bool {
	e, ok := err.(*resolver.Error)
	return ok && e.Secure
}

// parseLiteral reads an address literal (RFC 5321, 4.1.3): [192.0.2.1] or [IPv6:2001:db8::1].
func parseLiteral(s string) (netip.Addr, error) {
	inner, ok := strings.CutPrefix(s, "[")
	if ok {
		inner, ok = strings.CutSuffix(inner, "]")
	}
	if !ok {
		return netip.Addr{}, errors.New("address literal needs brackets")
	}
	const tag = "ipv6:"
	six := len(inner) > len(tag) && strings.EqualFold(inner[:len(tag)], tag)
	if six {
		inner = inner[len(tag):]
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || a.Zone() != "" || a.Is4() == six {
		return netip.Addr{}, errors.New("address literal is neither [192.0.2.1] nor [IPv6:2001:db8::1]")
	}
	return a.Unmap(), nil
}

// literalName is the one way to write the literal of an address.
func literalName(a netip.Addr) string {
	if a.Is4() {
		return "[" + a.String() + "]"
	}
	return "[ipv6:" + a.String() + "]"
}
