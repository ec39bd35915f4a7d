// Package dnscheck finds out what receivers will think of mail before any is sent: whether the DNS
// backs the addresses that mail leaves from and the domains that it names. Each finding is a sentence
// for people, with the record to publish where one is missing.
//
// It knows neither the configuration nor a running relay: Checker.Check is given sources and domains.
// It asks the DNS through Resolver, and starts a bounded number of goroutines, for which it waits.
package dnscheck

import (
	"context"
	"net/netip"
	"time"

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
