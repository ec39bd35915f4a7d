package wiring

import (
	"cmp"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

// divide names the limits that the relays of a cluster share: those of provider, domain, source, pool and tenant
// blocks, unless they are each relay's own. Of all others, but the relay's, each relay has an equal part, at least one
// connection.
func (p *Policy) divide(l *delivery.Limits, rt *route.Route, source, tenant string) {
	n, site, path := p.Relays(), "site "+rt.Site, "site "+rt.Site+" from source "+source
	if p.perNode["tenant "+tenant] {
		return
	} else if tenant != "" {
		l.Divided = divided(l.Divided, "tenant "+tenant, l.Tenant)
		l.TenantPath = part(l.TenantPath, n)
		return
	}
	l.Host = part(l.Host, n)
	traffic := p.Config.Traffic(rt.Domain, rt.Provider)
	l.Path = scopePerSource(traffic.Limits)
	p.apportion(l, site, &l.Site, n, traffic, "")
	p.apportion(l, path, &l.Path, n, traffic, "_per_source")
	for _, own := range p.Config.OwnLimits(source, rt.Domain, rt.Provider) {
		s, name := scope(own.Limits), path
		if own.Pooled {
			s, name = scopePerSource(own.Limits), path+" by "+own.Who
		}
		if l.Path = l.Path.Least(s); !p.perNode[own.Who] {
			l.Divided = divided(l.Divided, name, s)
		}
	}
	if who := "source " + source; !p.perNode[who] {
		l.Divided = divided(l.Divided, who, l.Source)
	}
	if who := "provider " + rt.Provider; !p.perNode[who] {
		l.Divided = divided(l.Divided, who, l.Provider)
	}
	for _, x := range l.Shared {
		if who := x.Name[strings.LastIndex(x.Name, " from ")+len(" from "):]; !p.perNode[who] {
			l.Divided = append(l.Divided, x)
		}
	}
}

// apportion divides what blocks have set of a scope, and leaves the relay its part of the rest. The limits of a domain
// block are named by it: other mail of the site does not have them.
func (p *Policy) apportion(
	l *delivery.Limits, name string, own *delivery.Scope, n int, t *config.Traffic, suffix string,
) {
	all := *own
	*own = part(all, n)
	for _, x := range []struct {
		setting string
		keep    func(to *delivery.Scope)
	}{
		{"connection_limit", func(to *delivery.Scope) { to.Connections = all.Connections }},
		{"max_message_rate", func(to *delivery.Scope) { to.MessageRate = all.MessageRate }},
		{"max_connection_rate", func(to *delivery.Scope) { to.ConnectionRate = all.ConnectionRate }},
	} {
		at := name
		switch block, _, _ := strings.Cut(t.Origin(x.setting+suffix), " ("); {
		case p.perNode[block]:
			x.keep(own)
			continue
		case strings.HasPrefix(block, "domain "):
			at += " for " + block
		case !strings.HasPrefix(block, "provider "):
			continue
		}
		var one delivery.Scope
		x.keep(own)
		x.keep(&one)
		l.Divided = divided(l.Divided, at, one)
	}
}

// divided adds a scope that limits anything, to that of the name if there is one.
func divided(list []delivery.NamedScope, name string, s delivery.Scope) []delivery.NamedScope {
	if s == (delivery.Scope{}) {
		return list
	}
	for i := range list {
		if list[i].Name == name {
			list[i].Scope = list[i].Least(s)
			return list
		}
	}
	return append(list, delivery.NamedScope{Name: name, Scope: s})
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
