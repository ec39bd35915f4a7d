package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

// Checks is what the DNS is asked about sources and sender's domains: by 'mta check --dns', and by the relay itself.
//
// The DNS checks of sources and sender domains, made by [`mta check --dns`](cli.md#mta-check) and by the relay itself.
// [first-mail.md](first-mail.md) explains how to pass them.
type Checks struct {
	block
	// The relay checks once a day, first ten minutes after its start, and each hour while a check fails. A failure
	// raises the alarm `dns_checks`.
	Daily bool `conf:"daily"`
	// Domains in From to check, in addition to those of `dkim` and `tenant` blocks.
	Domains []string `conf:"domains" check:"hostname"`
	// The domain in MAIL FROM, if all mail has the same, such as `"bounce.example.com"`. Default: that in From.
	MailFrom string `conf:"mail_from" check:"hostname"`
	// DNS block lists of addresses, such as `["zen.spamhaus.org"]`. Many refuse to answer the resolvers of large
	// networks.
	DNSLists []string `conf:"dns_lists" check:"hostname"`
	// A source whose address is on one of `dns_lists`: `"alarm"`; or `"pause"` it, too: its mail leaves from the others
	// of its pools, of which none loses its last one. With `daily`, the relay then checks each hour, and resumes the
	// source.
	Listed string `conf:"listed" default:"alarm" oneof:"alarm pause"`
	// A source that half of the receiving networks (/24, /48), and five or more, block as one of spam within an hour,
	// while they take mail of others (if its pools have others): `"alarm"` (`sources`); or `"pause"` it for four
	// hours, too, as `listed` does. A network counts by most of its answers, if these were about mail of two tenants,
	// or two recipients of one; for the alarm one will do where all networks block. For a pause the networks that
	// block need a fifth of the mail that all networks with answers to the source had from all sources within the
	// hour. If several tenants may use the source, only networks with answers about mail of two count for a pause, and
	// all this must hold without the mail of any one tenant, too. A pause that an operator ends is not set again for
	// its time; `"alarm"` ends the pauses.
	Refused string `conf:"refused" default:"alarm" oneof:"alarm pause"`
}

// Seen is the address that receivers see of mail from the source, the zero Addr when the system or a
// proxy chooses it.
func (s *Source) Seen() netip.Addr {
	switch {
	case s.PublicAddress.IsValid():
		return s.PublicAddress
	case s.Proxy.Kind == SOCKS5:
		return netip.Addr{}
	}
	return s.Address
}

// SenderDomains lists the domains that mail is sent as, as far as the file names them, each once and
// without those of which only a pattern is known.
func (c *Config) SenderDomains() []string {
	var all []string
	seen := make(map[string]bool)
	add := func(domain string) {
		domain = domain[strings.LastIndexByte(domain, '@')+1:]
		if ascii, err := envelope.ToASCII(domain); err == nil && !strings.Contains(ascii, "*") && !seen[ascii] {
			seen[ascii] = true
			all = append(all, ascii)
		}
	}
	for _, d := range c.Checks.Domains {
		add(d)
	}
	for _, d := range c.DKIMs {
		for _, p := range d.Senders {
			add(string(p))
		}
	}
	for _, t := range c.Tenants {
		for _, s := range t.Senders {
			add(string(s))
		}
	}
	return all
}

// TenantsOf lists the tenants who send as a domain: those whose senders name it, else those whose mail
// the dkim blocks sign that fit it. None: it may be anybody.
func (c *Config) TenantsOf(domain string) (tenants []string) {
	for _, t := range c.Tenants {
		for _, s := range t.Senders {
			if string(s) == domain || strings.HasSuffix(string(s), "@"+domain) {
				tenants = append(tenants, t.Name)
				break
			}
		}
	}
	if len(tenants) > 0 {
		return tenants
	}
	for p := range wider(domain) {
		if p == everybody {
			break // an ESP's own signature says nothing of who sends as the domain
		}
		for _, d := range c.resolved.signers[p] {
			if len(d.Tenants) == 0 {
				return nil
			}
			tenants = append(tenants, d.Tenants...)
		}
	}
	return tenants
}

// SourcesOf lists the sources from which mail of tenants may leave, in the order of the file: of no
// tenants, those from which any mail may.
func (c *Config) SourcesOf(tenants []string) (sources []*Source) {
	pools := c.Pools
	if len(tenants) > 0 {
		pools = nil
		for _, t := range tenants {
			pools = append(pools, c.PoolOf(t))
		}
		for _, d := range c.Domains {
			if d.Pool != "" {
				pools = append(pools, c.Pool(d.Pool))
			}
		}
	}
	used := make(map[string]bool)
	for _, p := range pools {
		for _, name := range p.Sources() {
			used[name] = true
		}
	}
	for _, s := range c.Sources {
		if used[s.Name] || len(used) == 0 {
			sources = append(sources, s)
		}
	}
	return sources
}

// listed looks whether the relay can find out what it is to act on.
func (k checker) listed() {
	if c := &k.Checks; c.Listed == "pause" && (!c.Daily || len(c.DNSLists) == 0) {
		k.problem(&c.block, "listed", `also write daily = true and dns_lists = ["list.example.net"]`,
			"listed: no list is asked, so that no source will be paused")
	}
}

// checks are the tests that the tag check names.
var checks = map[string]func(string) error{
	"listen":          checkListen,
	"listen or off":   unlessEmpty(checkListen),
	"server":          checkServer,
	"plan preset":     unlessEmpty(func(s string) error { return settings.OneOf(s, warmup.PresetNames()) }),
	"hostname":        checkHostname,
	"domain or empty": checkReturnPath,
}

func unlessEmpty(check func(string) error) func(string) error {
	return func(s string) error {
		if s == "" {
			return nil
		}
		return check(s)
	}
}

func checkListen(s string) error {
	const remedy = `write it as "127.0.0.1:2525", "[::1]:2525", or ":2525" for all addresses of the machine`
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return settings.Wrong(remedy, "%s is not an address with a port", settings.Quoted(s))
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return settings.Wrong(remedy, "%s has an invalid port", settings.Quoted(s))
	}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		return settings.Wrong(remedy, "%s has no IP address before the port", settings.Quoted(s))
	}
	return nil
}

func checkServer(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if a, err := netip.ParseAddrPort(s); err == nil && a.Port() > 0 {
		return nil
	}
	return settings.Wrong(`write it as "192.0.2.53", "192.0.2.53:53" or "[2001:db8::53]:53"`,
		"%s is not the address of a name server", settings.Quoted(s))
}

func checkHostname(s string) error {
	if a, err := envelope.ToASCII(s); err != nil || a == "" || strings.HasPrefix(s, "[") && !isLiteral(s) {
		return settings.Wrong(`write a name that exists in the DNS, such as "mta1.example.com"`,
			"%s is not a host name", settings.Quoted(s))
	}
	return nil
}
