package dnscheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// shared is addresses behind the NAT of a provider (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// Public reports whether receivers can see an address as it is.
func Public(a netip.Addr) bool {
	return a.IsValid() && a.IsGlobalUnicast() && !a.IsPrivate() && !shared.Contains(a)
}

// visible gives the reason why nothing can be asked about a source.
func visible(s Source) (Finding, bool) {
	f := Finding{Check: CheckAddress, Source: s.Name, Address: s.Address, Result: Unknown,
		Remedy: fmt.Sprintf("set public_address of source %q to the address that receivers see", s.Name)}
	switch {
	case !s.Address.IsValid():
		f.Text = "which address receivers see is not known: the system or a proxy chooses it"
	case s.Address.IsLoopback():
		f.Text = s.Address.String() + " is this machine's own loopback address: no receiver sees it"
	case !Public(s.Address):
		f.Text = s.Address.String() + " is a private address: receivers see another one, that of a NAT or proxy"
	default:
		return Finding{}, true
	}
	return f, false
}

// reverse checks that an address has a name and that the name has the address (FCrDNS).
func (c *Checker) reverse(ctx context.Context, s Source) Finding {
	names, err := c.Resolver.Names(ctx, s.Address)
	if err != nil {
		return unanswered(CheckReverse, "reverse DNS", err)
	}
	arpa, _ := dns.ReverseAddr(s.Address.String())
	if len(names) == 0 {
		return Finding{Check: CheckReverse, Result: Failed,
			Text:   s.Address.String() + " has no name in reverse DNS, and many receivers refuse such clients",
			Remedy: "have the provider of the address publish this", Record: arpa + " IN PTR " + nameOf(s) + "."}
	}
	var failed error
	for _, n := range names {
		addrs, err := c.Resolver.Addresses(ctx, n)
		if err != nil {
			failed = err
		}
		if slices.Contains(addrs, s.Address) {
			return Finding{Check: CheckReverse, Result: OK,
				Text: fmt.Sprintf("%s is %s, and %s is %s", s.Address, n, n, s.Address)}
		}
	}
	if failed != nil {
		return unanswered(CheckReverse, "what "+both(names)+" leads to", failed)
	}
	return Finding{Check: CheckReverse, Result: Failed,
		Text:   fmt.Sprintf("%s is %s in reverse DNS, which does not resolve to it", s.Address, both(names)),
		Remedy: "publish this, or have the provider of the address change its name",
		Record: addressRecord(names[0], s.Address)}
}

func both(names []string) string { return strings.Join(names, " and ") }

// ehlo checks that the name in EHLO is one of the address (RFC 5321, 4.1.1.1).
func (c *Checker) ehlo(ctx context.Context, s Source) Finding {
	if !inDNS(s.EHLO) {
		return Finding{Check: CheckEHLO, Result: Failed,
			Text:   fmt.Sprintf("the EHLO name %q is not a DNS name", s.EHLO),
			Remedy: fmt.Sprintf("set hostname = \"mta.your-domain.example\", or ehlo in source %q", s.Name)}
	}
	addrs, err := c.Resolver.Addresses(ctx, s.EHLO)
	switch {
	case err != nil:
		return unanswered(CheckEHLO, "the name in EHLO, "+s.EHLO+",", err)
	case slices.Contains(addrs, s.Address):
		return Finding{Check: CheckEHLO, Result: OK,
			Text: fmt.Sprintf("the EHLO name %s resolves to %s", s.EHLO, s.Address)}
	case len(addrs) == 0:
		return Finding{Check: CheckEHLO, Result: Failed, Text: fmt.Sprintf("the EHLO name %s has no address", s.EHLO),
			Remedy: "publish this", Record: addressRecord(s.EHLO, s.Address)}
	}
	return Finding{Check: CheckEHLO, Result: Failed,
		Text:   fmt.Sprintf("the EHLO name %s resolves to %s, not to %s", s.EHLO, joined(addrs), s.Address),
		Remedy: fmt.Sprintf("publish this too, or give source %q another name in ehlo", s.Name),
		Record: addressRecord(s.EHLO, s.Address)}
}

// inDNS reports whether a name can be in the public DNS: a machine's own short name is not.
func inDNS(name string) bool {
	return strings.Contains(name, ".") && !strings.HasSuffix(name, ".localdomain") && !strings.HasSuffix(name, ".local")
}

// nameOf is the name that a source's address should have.
func nameOf(s Source) string {
	if inDNS(s.EHLO) {
		return s.EHLO
	}
	return "mta.your-domain.example"
}

func joined(addrs []netip.Addr) string {
	var all []string
	for _, a := range addrs {
		all = append(all, a.String())
	}
	return both(all)
}
