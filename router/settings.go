package router

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
)

// Settings are what a reload may change. A zero number or time has a default.
type Settings struct {
	// Self are the names under which others know this relay: its hostname, and those that it has
	// as a mail exchanger. SelfAddrs are where it listens (see ListenerAddrs). Mail is never sent
	// there.
	Self      []string
	SelfAddrs []netip.AddrPort

	Port          uint16 // of mail exchangers; 25
	AllowLoopback bool   // exchangers may be at loopback addresses: for tests and the demo
	RefusePrivate bool   // exchangers may not be at private addresses (RFC 1918, RFC 4193)
	NoIPv4        bool
	NoIPv6        bool
	MaxHosts      int // addresses of a route, and exchangers looked up for it; 20

	Workers               int // look-ups of domains at once; 100
	MaxMessageConcurrency int // see Allowance; 2
	ScaleMaxConcurrency   int // see Allowance; 10
	VerifyWorkers         int // of the workers, how many Verify may have at most; 10
	// After GuardAge a message is served by age by one worker in ten, also if others have fewer running;
	// 5 min, below zero never.
	GuardAge time.Duration

	Timeout     time.Duration // for routing one domain; 45 s
	FirstTry    time.Duration // after which it may be interrupted, and gets the whole Timeout later; 2 s
	MaxRouteAge time.Duration // a route is kept as long as its DNS records, and no longer than this; 5 min

	Smarthosts []SmarthostRoute
	// ByDNS are domains, or patterns, whose mail goes to their exchangers although a wider pattern has a smarthost.
	ByDNS     []string
	Providers []Provider
}

// SmarthostRoute sends the mail for some domains to a smarthost instead of to their exchangers.
type SmarthostRoute struct {
	Domains string      // example.com, *.example.com (all below), * (all others); see CheckPattern
	Hosts   []Smarthost // tried in this order; see CheckSmarthosts
}

// Provider is an operator of many sites, known by the names of its exchangers.
type Provider struct {
	Name string
	MX   []string // mx1.example.com, *.example.com; see CheckPattern
}

// settings are Settings made ready for use. They are not changed any more.
type settings struct {
	Settings
	names      map[string]bool
	self       map[netip.AddrPort]bool
	smarthosts patterns[[]Smarthost]
	providers  patterns[string]
}

// Validate returns what is wrong with the settings.
func (s Settings) Validate() error {
	_, err := s.compile()
	return err
}

func (s Settings) compile() (*settings, error) {
	s.Port = cmp.Or(s.Port, 25)
	s.MaxHosts = cmp.Or(s.MaxHosts, 20)
	s.Workers = cmp.Or(s.Workers, 100)
	s.MaxMessageConcurrency = cmp.Or(s.MaxMessageConcurrency, 2)
	s.ScaleMaxConcurrency = cmp.Or(s.ScaleMaxConcurrency, 10)
	s.VerifyWorkers = cmp.Or(s.VerifyWorkers, 10)
	s.GuardAge = cmp.Or(s.GuardAge, 5*time.Minute)
	s.Timeout = cmp.Or(s.Timeout, 45*time.Second)
	s.FirstTry = cmp.Or(s.FirstTry, 2*time.Second)
	s.MaxRouteAge = cmp.Or(s.MaxRouteAge, 5*time.Minute)
	c := &settings{Settings: s, names: make(map[string]bool), self: make(map[netip.AddrPort]bool)}
	if s.NoIPv4 && s.NoIPv6 {
		return nil, fmt.Errorf("both IPv4 and IPv6 are switched off: no host can be reached")
	}
	for _, name := range s.Self {
		name, err := CheckPattern(name)
		if err != nil {
			return nil, fmt.Errorf("own name: %w", err)
		}
		c.names[name] = true
	}
	for _, a := range s.SelfAddrs {
		c.self[netip.AddrPortFrom(a.Addr().Unmap(), a.Port())] = true
	}
	for _, r := range s.Smarthosts {
		pattern, err := CheckPattern(r.Domains)
		if err == nil {
			err = CheckSmarthosts(r.Hosts)
		}
		if err == nil && !c.smarthosts.add(pattern, r.Hosts) {
			err = fmt.Errorf("has two routes")
		}
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", r.Domains, err)
		}
	}
	for _, domains := range s.ByDNS {
		pattern, err := CheckPattern(domains)
		if err == nil && !c.smarthosts.add(pattern, nil) {
			err = fmt.Errorf("has two routes")
		}
		if err != nil {
			return nil, fmt.Errorf("domain %q: %w", domains, err)
		}
	}
	for _, p := range s.Providers {
		for _, mx := range p.MX {
			pattern, err := CheckPattern(mx)
			if err == nil && !c.providers.add(pattern, p.Name) {
				err = fmt.Errorf("belongs to another provider too")
			}
			if err != nil {
				return nil, fmt.Errorf("provider %q: mx %q: %w", p.Name, mx, err)
			}
		}
	}
	return c, nil
}

func (s *settings) allowance() Allowance {
	return Allowance{s.MaxMessageConcurrency, s.ScaleMaxConcurrency}
}

func (s *settings) guarding() guard {
	return guard{age: max(0, s.GuardAge), workers: max(1, s.Workers/10)}
}

// Smarthost is a relay that configuration names for a domain. It is reached at its addresses; its
// MX records are not looked at.
type Smarthost struct {
	Host string // a name in A-label form, or an IP address
	Port uint16
	Auth *route.Auth // nil without
	// Implicit is TLS from the first octet (RFC 8314).
	Implicit bool
	// Answer stands in place of a host, see route.Inside.
	Answer string
}

// String gives the smarthost as it stands in the configuration, without user and password.
func (h Smarthost) String() string {
	if h.Answer != "" {
		return h.Answer
	}
	u := url.URL{Scheme: "smtp", Host: h.address()}
	if h.Implicit {
		u.Scheme = "smtps"
	}
	return u.String()
}

// via stands between a domain and a host in the name of a route. No domain has a space.
const via = " via "

// Via is the name of the route by which the mail for a domain goes to a host, given as [Smarthost.String] has it. The
// route itself is the domain's, with its settings.
func Via(domain, host string) string { return domain + via + host }

// DomainOf is the domain of a route's name.
func DomainOf(name string) string {
	domain, _, _ := strings.Cut(name, via)
	return domain
}

// parseSmarthost is the inverse of String for a host.
func parseSmarthost(text string) (h Smarthost, err error) {
	u, err := url.Parse(text)
	if err != nil {
		return h, err
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return Smarthost{Host: u.Hostname(), Port: uint16(port), Implicit: u.Scheme == "smtps"}, err
}

// address is host:port, with brackets around an IPv6 address.
func (h Smarthost) address() string {
	return net.JoinHostPort(h.Host, strconv.Itoa(int(h.Port)))
}

// CheckSmarthosts says whether these can be one route. It has one way of TLS and one user for all
// of its hosts, so that a fall-back is never weaker than the first choice.
func CheckSmarthosts(hosts []Smarthost) error {
	if len(hosts) == 0 {
		return errors.New("route names no host")
	}
	first := hosts[0]
	for _, h := range hosts {
		switch {
		case h.Answer != "" && len(hosts) == 1:
		case h.Answer != "":
			return fmt.Errorf("%q must be the only entry of a route", h.Answer)
		case h.Host == "" || h.Port == 0:
			return errors.New("host of a route has no name or no port")
		case h.Implicit != first.Implicit:
			return errors.New("all hosts of a route must have the same TLS: smtp:// and smtps:// can't be mixed")
		case (h.Auth == nil) != (first.Auth == nil) || h.Auth != nil && *h.Auth != *first.Auth:
			return errors.New("all hosts of a route must have the same user and password")
		}
	}
	return nil
}

// patterns finds what was configured for a name: "mail.example.com" is that name, "*.example.com"
// all names below, "*" all names. The most exact one wins.
type patterns[V any] struct {
	exact map[string]V
	below map[string]V // by the part after "*."
	rest  *V
}

// CheckPattern returns what is wrong with a pattern of a route or a provider, and gives it in the
// form in which it is compared: lower case, A-labels.
func CheckPattern(pattern string) (string, error) {
	switch {
	case pattern == "*":
		return pattern, nil
	case pattern == "":
		return "", errors.New("pattern is empty, use \"*\" for all names")
	case strings.HasPrefix(pattern, "["):
		addr, err := parseLiteral(pattern)
		if err != nil {
			return "", err
		}
		return literalName(addr), nil
	}
	name, wild := strings.CutPrefix(pattern, "*.")
	if strings.Contains(name, "*") {
		return "", errors.New("a * can only stand alone or before the first dot, as in *.example.com")
	}
	name, err := envelope.ToASCII(name)
	if err != nil {
		return "", err
	}
	if wild {
		name = "*." + name
	}
	return name, nil
}

// add puts v under a checked pattern, and says false when one is there already.
func (p *patterns[V]) add(pattern string, v V) bool {
	if pattern == "*" {
		if p.rest != nil {
			return false
		}
		p.rest = &v
		return true
	}
	m := &p.exact
	name, wild := strings.CutPrefix(pattern, "*.")
	if wild {
		m = &p.below
	}
	if _, ok := (*m)[name]; ok {
		return false
	}
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[name] = v
	return true
}

// find gives what is configured for a name.
func (p *patterns[V]) find(name string) (v V, ok bool) {
	if v, ok = p.exact[name]; ok {
		return v, true
	}
	if len(p.below) > 0 && !strings.HasPrefix(name, "[") {
		for rest := name; ; {
			i := strings.IndexByte(rest, '.')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			if v, ok = p.below[rest]; ok {
				return v, true
			}
		}
	}
	if p.rest != nil {
		return *p.rest, true
	}
	return v, false
}
