package dnscheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ReturnPath is a domain in MAIL FROM to which reports about mail come back, to the relay itself.
type ReturnPath struct {
	Name    string   // in A-label form
	Sources []Source // from which mail with it may leave
	// Hosts and Addresses are the relay's, as mail exchangers of the domain can name them.
	Hosts     []string
	Addresses []netip.Addr
}

// ReturnPath checks that SPF passes for a domain of return paths, and that its exchangers are the relay.
func (c *Checker) ReturnPath(ctx context.Context, p *ReturnPath) []Finding {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	d := &Domain{Name: p.Name, Sources: p.Sources}
	out := append(c.spf(ctx, d), c.bounces(ctx, d)...)
	if f, ok := c.leadsHere(ctx, p); ok {
		out = append(out, f)
	}
	for i := range out {
		out[i].Domain = p.Name
		if out[i].Check == CheckMX && out[i].Record != "" && len(p.Hosts) > 0 {
			out[i].Remedy, out[i].Record = "publish this: the domain's mail comes to this relay", p.exchanger()
		}
	}
	return out
}

// exchanger is the MX record that names the relay.
func (p *ReturnPath) exchanger() string { return fmt.Sprintf("%s. IN MX 10 %s.", p.Name, p.Hosts[0]) }

// leadsHere looks for the relay among the exchangers of a domain, false when there are none: bounces says so.
func (c *Checker) leadsHere(ctx context.Context, p *ReturnPath) (Finding, bool) {
	exchangers, err := c.Resolver.Exchangers(ctx, p.Name)
	if err != nil || len(exchangers) == 0 {
		exchangers = []Exchanger{{Host: p.Name}}
	}
	var elsewhere []string
	for _, e := range exchangers {
		host := strings.TrimSuffix(e.Host, ".")
		addrs, err := c.Resolver.Addresses(ctx, host)
		switch {
		case host == "" || err == nil && len(addrs) == 0:
			continue
		case err != nil:
			return unanswered(CheckReturnPath, "the address of "+host, err), true
		}
		named := slices.ContainsFunc(p.Hosts, func(h string) bool { return strings.EqualFold(h, host) })
		if named || slices.ContainsFunc(addrs, func(a netip.Addr) bool { return slices.Contains(p.Addresses, a) }) {
			return Finding{Check: CheckReturnPath, Result: OK,
				Text: fmt.Sprintf("mail for %s comes to this relay, by %s", p.Name, host)}, true
		}
		elsewhere = append(elsewhere, fmt.Sprintf("%s (%s)", host, joined(addrs)))
	}
	if len(elsewhere) == 0 {
		return Finding{}, false
	}
	f := Finding{Check: CheckReturnPath, Result: Warning,
		Text: fmt.Sprintf("mail for %s goes to %s, and not to this relay: bounces and complaints don't come back",
			p.Name, both(elsewhere))}
	if len(p.Hosts) > 0 {
		f.Remedy, f.Record = "publish this in place of its MX records, unless the host there passes the mail on",
			p.exchanger()
	}
	return f, true
}
