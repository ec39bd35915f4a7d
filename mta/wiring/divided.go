package wiring

import (
	"cmp"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
)

// divide names the limits that the relays of a cluster share: those of provider, domain, source, pool and tenant
// blocks. Of all others, but the relay's, each relay has an equal part, at least one connection.
func (p *Policy) divide(l *delivery.Limits, rt *route.Route, source, tenant string) {
	n, site, path := p.Relays(), "site "+rt.Site, "site "+rt.Site+" from source "+source
	if tenant != "" {
		l.Divided = divided(l.Divided, "tenant "+tenant, l.Tenant)
		l.TenantPath = part(l.TenantPath, n)
		return
	}
	l.Host = part(l.Host, n)
	traffic := p.Config.Traffic(rt.Domain, rt.Provider)
	byBlock := func(setting string) bool {
		origin := traffic.Origin(setting)
		return strings.HasPrefix(origin, "domain ") || strings.HasPrefix(origin, "provider ")
	}
	together := l.Site
	take(&together, &l.Site, n, byBlock("connection_limit"), byBlock("max_message_rate"),
		byBlock("max_connection_rate"))
	l.Divided = divided(l.Divided, site, together)
	together, l.Path = scopePerSource(traffic.Limits), scopePerSource(traffic.Limits)
	take(&together, &l.Path, n, byBlock("connection_limit_per_source"), byBlock("max_message_rate_per_source"),
		byBlock("max_connection_rate_per_source"))
	for _, own := range p.Config.OwnLimits(source, rt.Domain, rt.Provider) {
		s := scope(own.Limits)
		if own.Pooled {
			s = scopePerSource(own.Limits)
		}
		together, l.Path = together.Least(s), l.Path.Least(s)
	}
	l.Divided = divided(l.Divided, path, together)
	l.Divided = divided(l.Divided, "source "+source, l.Source)
	l.Divided = divided(l.Divided, "provider "+rt.Provider, l.Provider)
	l.Divided = append(l.Divided, l.Shared...)
}

// divided adds a scope that limits anything.
func divided(list []delivery.NamedScope, name string, s delivery.Scope) []delivery.NamedScope {
	if s != (delivery.Scope{}) {
		list = append(list, delivery.NamedScope{Name: name, Scope: s})
	}
	return list
}

// take leaves in together what the relays divide, and in own this relay's part of the rest.
func take(together, own *delivery.Scope, n int, connections, messages, openings bool) {
	part := part(*own, n)
	if connections {
		part.Connections = own.Connections
	} else {
		together.Connections = 0
	}
	if messages {
		part.MessageRate = own.MessageRate
	} else {
		together.MessageRate = gcra.Rate{}
	}
	if openings {
		part.ConnectionRate = own.ConnectionRate
	} else {
		together.ConnectionRate = gcra.Rate{}
	}
	*own = part
}

// part is a relay's of a limit that each of n has.
func part(s delivery.Scope, n int) delivery.Scope {
	if s.Connections > 0 {
		s.Connections = max(s.Connections/n, 1)
	}
	for _, r := range []*gcra.Rate{&s.MessageRate, &s.ConnectionRate} {
		if !r.Unlimited() {
			per := cmp.Or(r.Per, time.Second)
			*r = gcra.Rate{Events: r.Events, Per: per * time.Duration(n), Burst: max(r.Depth()/n, 1)}
		}
	}
	return s
}
