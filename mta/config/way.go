package config

import (
	"fmt"
	"strings"

	"example.org/mta/internal/envelope"
)

// Way is what decides from which pool mail leaves and whose route it takes.
type Way struct {
	Tenant string
	Pool   string // that the message names, "" for none
	Sender envelope.Address
	Domain string          // of the recipient, or whose route it takes; "" where it is not known
	Detour envelope.Detour // by which an operator has rerouted it
}

// WayOf returns the way of a message's recipients at a domain.
func WayOf(m *envelope.Message, domain string) Way {
	return Way{Tenant: m.Tenant, Pool: m.Pool, Sender: m.Sender, Domain: domain, Detour: m.Detour}
}

// PoolBy returns the pool that mail leaves from: that of its detour, else of the recipient's domain, else of the
// sender's domain, each where the configuration has one, else its own, see PoolFor.
func (c *Config) PoolBy(w Way) *Pool {
	if w.Detour.Pool != "" {
		if p := c.Pool(w.Detour.Pool); p != nil {
			return p
		}
	}
	if c.resolved.domainPools && w.Domain != "" {
		for d := range c.matching(w.Domain) {
			if d.Pool != "" {
				return c.Pool(d.Pool)
			}
		}
	}
	if s := c.senderBlock(w.Sender, func(s *SenderDomain) bool { return s.Pool != "" }); s != nil {
		return c.Pool(s.Pool)
	}
	return c.PoolFor(w.Tenant, w.Pool)
}

// PoolsDiffer reports whether the pool of a message depends on the domains of its recipients.
func (c *Config) PoolsDiffer() bool { return c.resolved.domainPools }

// RouteBy returns the domain whose route mail takes: that of its detour, where the configuration has a route for it;
// the name of the sender's route, unless a block narrower than "*" has one for the recipient's domain; else the
// recipient's domain.
func (c *Config) RouteBy(w Way) string {
	if w.Detour.Route != "" && c.HasRoute(w.Detour.Route) {
		return w.Detour.Route
	}
	if s := c.senderBlock(w.Sender, func(s *SenderDomain) bool { return len(s.Route) > 0 }); s != nil {
		if d := c.routeBlock(w.Domain); d == nil || d.Pattern == "*" {
			return s.RouteName()
		}
	}
	return w.Domain
}

// HasRoute reports whether the configuration has a route for a domain, in A-label form and lower case.
func (c *Config) HasRoute(domain string) bool {
	d := c.routeBlock(domain)
	return d != nil && len(d.Route) > 0
}

// routeBlock returns the block that decides about the route of a domain, nil if there is none.
func (c *Config) routeBlock(domain string) *Domain {
	for d := range c.matching(domain) {
		if d.Set("route") {
			return d
		}
	}
	return nil
}

// senderBlock returns the most specific block of a sender's domain that has a setting, nil if there is none. The null
// sender has none.
func (c *Config) senderBlock(sender envelope.Address, has func(*SenderDomain) bool) *SenderDomain {
	if len(c.SenderDomainBlocks) == 0 || sender.Null() {
		return nil
	}
	for p := range wider(sender.Domain()) {
		if s := c.resolved.senders[p]; s != nil && has(s) {
			return s
		}
	}
	return nil
}

// RouteName is the name by which router and queue know the route of the block. No domain has it (RFC 6761, 6.4).
func (s *SenderDomain) RouteName() string {
	name, wide := strings.CutPrefix(string(s.Pattern), "*")
	if wide {
		name = "any-sender" + name
	}
	return name + ".sender-route.invalid"
}

// waysOfSenders looks at the pools and routes of senders' domains, and at the pools of recipients' domains.
func (k checker) waysOfSenders() {
	for _, d := range k.Domains {
		if d.Pool != "" && k.Pool(d.Pool) == nil {
			k.reference(&d.block, "pool", "pool", d.Pool, k.Names("pool"))
		}
	}
	for _, s := range k.SenderDomainBlocks {
		if s.Pool != "" && k.Pool(s.Pool) == nil {
			k.reference(&s.block, "pool", "pool", s.Pool, k.Names("pool"))
		}
		if s.Set("route") && len(s.Route) == 0 {
			k.problem(&s.block, "route", `write a host, such as route = ["smtp://relay.example.net:587"], or remove it`,
				"%s has an empty route", s.Title())
		}
		k.loops(&s.block, s.Route)
		k.credentials(&s.block, fmt.Sprintf("sender_domain %q", string(s.Pattern)), s.Smarthosts, "")
	}
}
