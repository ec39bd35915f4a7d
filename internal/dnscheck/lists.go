package dnscheck

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/miekg/dns"
)

// list is a DNS block list, and why it can't be asked if it can't.
type list struct {
	name string
	dead string
}

// Every list has the first of these and lacks the second (RFC 5782, 5). One that has ended answers
// nothing, or lists all the world.
var (
	alwaysListed = netip.AddrFrom4([4]byte{127, 0, 0, 2})
	neverListed  = netip.AddrFrom4([4]byte{127, 0, 0, 1})
)

// answering asks each list whether it works.
func (c *Checker) answering(ctx context.Context) []list {
	lists := make([]list, len(c.Lists))
	for i, name := range c.Lists {
		lists[i].name = name
		codes, err := c.codes(ctx, name, alwaysListed)
		if err == nil && len(codes) == 0 {
			err = fmt.Errorf("it does not list %s, as every list that works does", alwaysListed)
		}
		if err == nil {
			codes, err = c.codes(ctx, name, neverListed)
			if err == nil && len(codes) > 0 {
				err = fmt.Errorf("it lists %s, as no list that works does", neverListed)
			}
		}
		if err != nil {
			lists[i].dead = err.Error()
		}
	}
	return lists
}

// codes gives what a list has for an address: nothing if it is not listed.
func (c *Checker) codes(ctx context.Context, list string, a netip.Addr) ([]netip.Addr, error) {
	answers, err := c.Resolver.Addresses(ctx, listName(a, list))
	if err != nil {
		return nil, err
	}
	for _, code := range answers {
		if why := refusal(code); why != "" {
			return nil, fmt.Errorf("the list refuses to answer: %s", why)
		}
	}
	return answers, nil
}

// listName is the name of an address in a list (RFC 5782, 2.1 and 2.4).
func listName(a netip.Addr, list string) string {
	arpa, _ := dns.ReverseAddr(a.Unmap().String())
	arpa = strings.TrimSuffix(strings.TrimSuffix(arpa, "in-addr.arpa."), "ip6.arpa.")
	return arpa + list
}

var (
	loopback   = netip.MustParsePrefix("127.0.0.0/8")
	errorCodes = netip.MustParsePrefix("127.255.255.0/24")
)

// refusal returns why an answer is not about the address that was asked for, "" when it is.
func refusal(code netip.Addr) string {
	switch {
	case !loopback.Contains(code):
		return fmt.Sprintf("%s is not a valid answer of a block list; does the resolver rewrite answers?", code)
	case !errorCodes.Contains(code):
		return ""
	}
	switch code.As4()[3] {
	case 252:
		return fmt.Sprintf("it reports that its name is mistyped (%s)", code)
	case 254:
		return fmt.Sprintf("it does not serve public resolvers (%s): use your own resolver", code)
	case 255:
		return fmt.Sprintf("it has had too many queries (%s)", code)
	}
	return fmt.Sprintf("it answers with an error (%s)", code)
}

func (c *Checker) listed(ctx context.Context, s Source, l list) Finding {
	f := Finding{Check: CheckList, Result: Unknown}
	codes, err := []netip.Addr(nil), error(nil)
	if l.dead == "" {
		if codes, err = c.codes(ctx, l.name, s.Address); err != nil {
			l.dead = err.Error()
		}
	}
	switch {
	case l.dead != "":
		f.Text, f.Remedy = fmt.Sprintf("%s could not be queried: %s", l.name, l.dead),
			"read the list's terms of use, or leave it out of dns_lists"
	case len(codes) == 0:
		f.Result, f.Text = OK, fmt.Sprintf("%s is not on %s", s.Address, l.name)
	default:
		slices.SortFunc(codes, netip.Addr.Compare)
		f.Result, f.Text = Failed, fmt.Sprintf("%s is on %s (%s)", s.Address, l.name, joined(codes))
		f.Remedy = "find out what the address sent, end that, and ask the list to take it off"
		if texts, err := c.Resolver.Texts(ctx, listName(s.Address, l.name)); err == nil && len(texts) > 0 {
			f.Remedy += "; the list gives the reason: " + texts[0]
		}
	}
	return f
}
