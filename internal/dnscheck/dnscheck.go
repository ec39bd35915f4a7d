// Package dnscheck finds out what receivers will think of mail before any is sent: whether the DNS
// backs the addresses that mail leaves from and the domains that it names. Each finding is a sentence
// for people, with the record to publish where one is missing.
//
// It knows neither the configuration nor a running relay: Checker.Check is given sources and domains.
// It asks the DNS through Resolver, and starts a bounded number of goroutines, for which it waits.
package dnscheck

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"example.org/mta/internal/dkim"
)

// Result is what a finding means.
type Result string

// What a check can find. Only Failed makes receivers refuse mail or distrust it; Unknown says nothing
// about the sender: the DNS gave no answer, or there is nothing that can be asked from here.
const (
	OK      Result = "ok"
	Warning Result = "warning"
	Failed  Result = "failed"
	Unknown Result = "unknown"
)

// The checks by their names in findings.
const (
	CheckAddress    = "address"     // receivers can see the source's address
	CheckReverse    = "reverse"     // its reverse and forward DNS agree
	CheckEHLO       = "ehlo"        // EHLO's name leads to it
	CheckHELOSPF    = "ehlo-spf"    // SPF of EHLO's name, which counts for reports, whose sender is empty
	CheckList       = "dns-list"    // it is on no DNS block list
	CheckSPF        = "spf"         // SPF passes for MAIL FROM
	CheckDKIM       = "dkim"        // the published records fit the keys
	CheckDMARC      = "dmarc"       // a policy exists, and SPF or DKIM is aligned with From
	CheckMX         = "mx"          // bounces can come back
	CheckSTARTTLS   = "starttls"    // mail for us can come in by TLS
	CheckListener   = "listener"    // clients can submit mail by TLS
	CheckReturnPath = "return-path" // mail for the domain of return paths comes to this relay
)

// Finding is what one check found.
type Finding struct {
	Check   string     `json:"check"`
	Source  string     `json:"source,omitempty"`
	Address netip.Addr `json:"address,omitzero"`
	Domain  string     `json:"domain,omitempty"`
	// Listener is that of the relay, for what is about one.
	Listener string `json:"listener,omitempty"`
	Result   Result `json:"result"`
	Text     string `json:"text"`             // what was found, a sentence without its full stop
	Remedy   string `json:"remedy,omitempty"` // what to do about it
	Record   string `json:"record,omitempty"` // the line of a zone file to publish
}

// Source is where mail leaves from, as receivers see it.
type Source struct {
	Name    string
	Address netip.Addr // the zero Addr: it is not known
	EHLO    string
}

// Domain is one that mail is sent as.
type Domain struct {
	Name     string   // of the address in From, in A-label form
	MailFrom string   // the domain in MAIL FROM; "": Name
	Sources  []Source // from which its mail may leave
	Keys     []Key    // that sign its mail, or will
}

// Key is a DKIM key.
type Key struct {
	*dkim.Key
	Later bool // it does not sign yet
}

func (d *Domain) mailFrom() string {
	if d.MailFrom != "" {
		return d.MailFrom
	}
	return d.Name
}

// Checker is how it is checked. Resolver is needed.
type Checker struct {
	Resolver Resolver
	// StartTLS reports whether a mail exchanger offers STARTTLS. nil: nobody is asked.
	StartTLS func(ctx context.Context, host string) (bool, error)
	// Lists are DNS block lists of addresses, as "zen.spamhaus.org".
	Lists []string
	// Timeout bounds the checks of one source or domain; 0 is a minute.
	Timeout time.Duration
}

// atOnce is how many sources and domains are checked at a time.
const atOnce = 8

// Check gives the findings of each source, then those of each domain, in their order.
func (c *Checker) Check(ctx context.Context, sources []Source, domains []Domain) []Finding {
	found := make([][]Finding, len(sources)+len(domains))
	var g errgroup.Group
	g.SetLimit(atOnce)
	timeout := c.timeout()
	run := func(i int, check func(context.Context) []Finding) {
		g.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			found[i] = check(ctx)
			return nil
		})
	}
	lists := c.answering(ctx)
	for i, s := range sources {
		run(i, func(ctx context.Context) []Finding { return c.source(ctx, s, lists) })
	}
	for i := range domains {
		run(len(sources)+i, func(ctx context.Context) []Finding { return c.domain(ctx, &domains[i]) })
	}
	_ = g.Wait() // no check fails as a whole
	var all []Finding
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

func (c *Checker) timeout() time.Duration {
	if c.Timeout <= 0 {
		return time.Minute
	}
	return c.Timeout
}

func (c *Checker) source(ctx context.Context, s Source, lists []list) []Finding {
	if f, ok := visible(s); !ok {
		return []Finding{f}
	}
	out := []Finding{c.reverse(ctx, s), c.ehlo(ctx, s)}
	if inDNS(s.EHLO) {
		out = append(out, c.heloSPF(ctx, s))
	}
	for _, l := range lists {
		out = append(out, c.listed(ctx, s, l))
	}
	for i := range out {
		out[i].Source, out[i].Address = s.Name, s.Address
	}
	return out
}

func (c *Checker) domain(ctx context.Context, d *Domain) []Finding {
	spf := c.spf(ctx, d)
	keys := c.dkim(ctx, d)
	out := append(append(spf, keys...), c.dmarc(ctx, d, spf, keys))
	out = append(out, c.bounces(ctx, d)...)
	for i := range out {
		out[i].Domain = d.Name
	}
	return out
}

// Count counts the findings of a result.
func Count(found []Finding, r Result) (n int) {
	for i := range found {
		if found[i].Result == r {
			n++
		}
	}
	return n
}

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

// Resolver asks the DNS. Where there is no such record, or no such name, there is nothing and no
// error; an error says that nothing could be learned. Names have no final dot.
type Resolver interface {
	Addresses(ctx context.Context, host string) ([]netip.Addr, error)
	Exchangers(ctx context.Context, domain string) ([]Exchanger, error)
	Texts(ctx context.Context, name string) ([]string, error)
	Names(ctx context.Context, addr netip.Addr) ([]string, error)
}

// Exchanger is an MX record. Host "" is the root: the domain takes no mail (RFC 7505).
type Exchanger struct {
	Preference uint16
	Host       string
}

// forSPF is a Resolver as the SPF library wants it, which distinguishes "no such record" from "no answer" by
// net.DNSError (RFC 7208, 2.6 and 4.6.4).
type forSPF struct{ r Resolver }

func (f forSPF) LookupTXT(ctx context.Context, name string) ([]string, error) {
	texts, err := f.r.Texts(ctx, name)
	return texts, dnsError(name, len(texts), err)
}

func (f forSPF) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	exchangers, err := f.r.Exchangers(ctx, name)
	var out []*net.MX
	for _, e := range exchangers {
		out = append(out, &net.MX{Host: e.Host + ".", Pref: e.Preference})
	}
	return out, dnsError(name, len(out), err)
}

func (f forSPF) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	addrs, err := f.r.Addresses(ctx, host)
	var out []net.IPAddr
	for _, a := range addrs {
		out = append(out, net.IPAddr{IP: a.AsSlice()})
	}
	return out, dnsError(host, len(out), err)
}

func (f forSPF) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, err
	}
	names, err := f.r.Names(ctx, a)
	var out []string
	for _, n := range names {
		out = append(out, n+".")
	}
	return out, dnsError(addr, len(out), err)
}

func dnsError(name string, found int, err error) error {
	switch {
	case err != nil:
		return &net.DNSError{Err: err.Error(), Name: name, IsTemporary: true}
	case found == 0:
		return &net.DNSError{Err: "no such record", Name: name, IsNotFound: true}
	}
	return nil
}

// addressRecord is the line of a zone file that gives a name an address.
func addressRecord(name string, a netip.Addr) string {
	if a.Is4() {
		return name + ". IN A " + a.String()
	}
	return name + ". IN AAAA " + a.String()
}

func textRecord(name, text string) string { return dkim.TextRecord(name, text) }

// unanswered is a finding about which the DNS said nothing.
func unanswered(check, what string, err error) Finding {
	return Finding{Check: check, Result: Unknown, Text: what + " could not be checked: " + err.Error(),
		Remedy: "try again later; if this persists, check the domain's name servers and those in resolver { }"}
}
