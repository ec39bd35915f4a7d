package config

import (
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
)

// Inbound is what a listener takes from anybody: reports about mail that the relay has sent.
//
// Within a listener: accepts reports about the relay's own mail (bounces, complaints, requests to unsubscribe) from
// anybody, and relays none of them. [bounces.md](bounces.md#reports-in) has a set-up to copy,
// [submission.md](submission.md#mail-for-the-relay-itself) the replies. The listener must be reachable by strangers, on
// port 25.
type Inbound struct {
	// The domains whose mail exchanger this listener is, such as `"b.example.com"`: the `return_path` of tenants.
	// All mail to them is the relay's own.
	Domains []string `conf:"domains"`
	// Addresses at these domains that feedback loops send to, such as `"fbl@b.example.com"`.
	Complaints []string `conf:"complaints"`
	// Mail to `u-TOKEN@` one of the domains has the effect of a click on a [link](submission.md#one-click-unsubscribe).
	Unsubscribe bool `conf:"unsubscribe"`
	// A mailbox elsewhere that gets what the relay does not understand, and mail to `postmaster@` and `abuse@` the
	// domains. Without it [`mta bounce list`](cli.md#mta-bounce) has such mail.
	Forward string `conf:"forward"`
}

// On reports whether there is inbound mail.
func (i *Inbound) On() bool { return len(i.Domains) > 0 }

// InboundDomain reports whether a listener takes mail for a domain, in A-label form, as the relay's own.
func (c *Config) InboundDomain(domain string) bool {
	return slices.ContainsFunc(c.Listeners, func(l *Listener) bool { return l.Inbound.has(domain) })
}

func (i *Inbound) has(domain string) bool {
	return slices.ContainsFunc(i.Domains, func(d string) bool {
		ascii, err := envelope.ToASCII(d)
		return err == nil && ascii == domain
	})
}

func (k checker) inbound(l *Listener) {
	in := &l.Inbound
	for _, d := range in.Domains {
		if ascii, err := envelope.ToASCII(d); err != nil || ascii == "" || strings.ContainsAny(d, "*[@") {
			k.problem(&l.block, "inbound.domains", `write it as "b.example.com"`, "domains: %s is not a domain",
				settings.Quoted(d))
		}
	}
	for _, set := range []struct {
		name  string
		there bool
	}{{"complaints", len(in.Complaints) > 0}, {"unsubscribe", in.Unsubscribe}, {"forward", in.Forward != ""}} {
		if set.there && !in.On() {
			k.problem(&l.block, "inbound."+set.name, `write domains = ["b.example.com"], too`,
				"inbound of listener %q has %s, but no domains: it takes nothing", l.Name, set.name)
			return
		}
	}
	if in.On() && !k.Accounting.Enabled {
		k.problem(&l.block, "inbound.domains", "remove the block inbound, or write accounting { enabled = true }",
			"inbound of listener %q would take reports and record none: the accounting log is off", l.Name)
	}
	for _, text := range in.Complaints {
		switch a, err := envelope.ParseAddress(text); {
		case err != nil || a.Null():
			k.problem(&l.block, "inbound.complaints", `write it as "fbl@b.example.com"`,
				"complaints: %s is not a mail address", settings.Quoted(text))
		case !in.has(a.Domain()):
			k.problem(&l.block, "inbound.complaints", "add its domain to domains, or use an address at one of them",
				"complaints: the domain of %s is not among domains", settings.Quoted(text))
		}
	}
	if in.Forward == "" {
		return
	}
	switch a, err := envelope.ParseAddress(in.Forward); {
	case err != nil || a.Null():
		k.problem(&l.block, "inbound.forward", `write it as "postmaster@corp.example"`,
			"forward: %s is not a mail address", settings.Quoted(in.Forward))
	case k.InboundDomain(a.Domain()):
		k.problem(&l.block, "inbound.forward", "name a mailbox elsewhere",
			"forward: %s is at an inbound domain of this relay: the mail would loop", settings.Quoted(in.Forward))
	}
}
