package dnscheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// bounces checks that the MAIL FROM domain takes mail, and that its exchangers offer TLS.
func (c *Checker) bounces(ctx context.Context, d *Domain) []Finding {
	domain := d.mailFrom()
	exchangers, err := c.Resolver.Exchangers(ctx, domain)
	if err != nil {
		return []Finding{unanswered(CheckMX, "MX of "+domain, err)}
	}
	slices.SortStableFunc(exchangers, func(a, b Exchanger) int { return int(a.Preference) - int(b.Preference) })
	refused := Finding{Check: CheckMX, Result: Failed,
		Remedy: "publish this, and the address (A) of the host, which takes mail for the domain",
		Record: domain + ". IN MX 10 mail." + domain + "."}
	switch {
	case len(exchangers) == 0:
		addrs, err := c.Resolver.Addresses(ctx, domain)
		if err != nil {
			return []Finding{unanswered(CheckMX, "the address of "+domain, err)}
		}
		if refused.Text = domain +
			" has neither MX nor address: bounces can't come back, and receivers refuse such senders"; len(addrs) > 0 {
			refused.Result, refused.Text = Warning,
				fmt.Sprintf("%s has no MX: bounces come to its address, %s", domain, joined(addrs))
		}
		return []Finding{refused}
	case len(exchangers) == 1 && exchangers[0].Host == "":
		refused.Text = domain +
			" declares that it accepts no mail (null MX): bounces can't come back, and receivers refuse such senders " +
			"(RFC 7505)"
		return []Finding{refused}
	}
	return c.exchangers(ctx, domain, exchangers)
}

// exchangers checks that mail exchangers have addresses, and asks those for STARTTLS.
func (c *Checker) exchangers(ctx context.Context, domain string, exchangers []Exchanger) []Finding {
	var there, nowhere []string
	for _, e := range exchangers {
		addrs, err := c.Resolver.Addresses(ctx, e.Host)
		switch {
		case err != nil:
			return []Finding{unanswered(CheckMX, "the address of "+e.Host, err)}
		case len(addrs) == 0:
			nowhere = append(nowhere, e.Host)
		default:
			there = append(there, e.Host)
		}
	}
	f := Finding{Check: CheckMX, Result: OK, Text: fmt.Sprintf("bounces to %s come to %s", domain, both(there))}
	if len(nowhere) > 0 {
		f.Result, f.Remedy = Warning, "publish their addresses, or take them out of the MX records"
		f.Text += fmt.Sprintf("; %s: no address", both(nowhere))
	}
	if len(there) == 0 {
		f.Result, f.Text = Failed, fmt.Sprintf("bounces to %s can't come back: %s: no address", domain, both(nowhere))
	}
	out := []Finding{f}
	if c.StartTLS != nil {
		sts := c.hasSTS(ctx, domain)
		for _, host := range there[:min(len(there), mostAsked)] {
			out = append(out, c.startTLS(ctx, host, sts))
		}
	}
	return out
}

// mostAsked is how many exchangers of a domain are asked for STARTTLS.
const mostAsked = 4

func (c *Checker) startTLS(ctx context.Context, host string, sts bool) Finding {
	offers, err := c.StartTLS(ctx, host)
	switch {
	case err != nil:
		return Finding{Check: CheckSTARTTLS, Result: Unknown,
			Text: fmt.Sprintf("%s could not be tested for STARTTLS: %v", host, err)}
	case offers:
		return Finding{Check: CheckSTARTTLS, Result: OK, Text: host + " offers STARTTLS"}
	case sts:
		return Finding{Check: CheckSTARTTLS, Result: Failed,
			Text:   host + " does not offer STARTTLS, which the domain's MTA-STS record promises",
			Remedy: "give the host a certificate, or take the _mta-sts record away"}
	}
	return Finding{Check: CheckSTARTTLS, Result: Warning,
		Text: host + " does not offer STARTTLS: bounces come in clear", Remedy: "give the host a certificate"}
}

// hasSTS reports whether a domain announces a policy of MTA-STS (RFC 8461, 3.1).
func (c *Checker) hasSTS(ctx context.Context, domain string) bool {
	texts, err := c.Resolver.Texts(ctx, "_mta-sts."+domain)
	return err == nil && slices.ContainsFunc(texts, func(t string) bool { return strings.HasPrefix(t, "v=STSv1") })
}

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
