package wiring

import (
	"slices"

	"example.org/mta/delivery"
	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

// Limits makes the limits of mail along a route, from a source, on behalf of a tenant. A source or tenant
// that the configuration doesn't have adds none.
func (p *Policy) Limits(rt *route.Route, source, tenant string) delivery.Limits {
	d := &p.Config.Delivery
	l := trafficLimits(p.Config.Traffic(rt.Domain, rt.Provider))
	l.Provider = scope(p.Config.Budget(rt.Provider))
	l.Relay = delivery.Scope{MessageRate: rate(d.MaxMessageRate), ConnectionRate: rate(d.MaxConnectionRate)}
	if s := p.Config.Source(source); s != nil {
		l.Source = delivery.Scope{Connections: s.ConnectionLimit, MessageRate: rate(s.MaxMessageRate),
			ConnectionRate: rate(s.MaxConnectionRate)}
	}
	if t := p.Config.Tenant(tenant); t != nil {
		l.Tenant = delivery.Scope{MessageRate: rate(t.MaxMessageRate)}
		l.TenantPath = delivery.Scope{MessageRate: rate(t.MaxMessageRatePerSource)}
	}
	for _, own := range p.Config.OwnLimits(source, rt.Domain, rt.Provider) {
		if own.Pooled {
			l.Path = l.Path.Least(scopePerSource(own.Limits))
			l.Share("site "+rt.Site+" from "+own.Who, scope(own.Limits))
		} else {
			l.Path = l.Path.Least(scope(own.Limits))
		}
		l.Share("provider "+rt.Provider+" from "+own.Who, scope(own.Together))
		l.MaxDeliveriesPerConnection = delivery.Smaller(l.MaxDeliveriesPerConnection, own.MaxDeliveriesPerConnection)
		l.MaxRecipients = delivery.Smaller(l.MaxRecipients, own.MaxRecipientsPerBatch)
	}
	if p.Relays != nil {
		p.divide(&l, rt, source, tenant)
	}
	return l
}

func scope(l config.Limits) delivery.Scope {
	return delivery.Scope{Connections: l.ConnectionLimit, MessageRate: rate(l.MaxMessageRate),
		ConnectionRate: rate(l.MaxConnectionRate)}
}

func scopePerSource(l config.Limits) delivery.Scope {
	return delivery.Scope{Connections: l.ConnectionLimitPerSource, MessageRate: rate(l.MaxMessageRatePerSource),
		ConnectionRate: rate(l.MaxConnectionRatePerSource)}
}

func trafficLimits(t *config.Traffic) delivery.Limits {
	return delivery.Limits{
		Host: delivery.Scope{Connections: t.ConnectionLimitPerHost},
		Path: scopePerSource(t.Limits),
		Site: scope(t.Limits),

		MaxDeliveriesPerConnection: t.MaxDeliveriesPerConnection,
		MaxRecipients:              t.MaxRecipientsPerBatch,
		IdleTimeout:                t.IdleTimeout,
		ActiveTimeout:              t.ActiveTimeout,
		HostRetry:                  t.HostRetryInterval,
		MaxHostRetry:               t.MaxHostRetryInterval,
		ConnectTimeout:             t.Timeouts.Connect,
		Timeouts: smtpclient.Timeouts{
			Greeting: t.Timeouts.Greeting,
			Hello:    t.Timeouts.EHLO,
			Mail:     t.Timeouts.Mail,
			Rcpt:     t.Timeouts.Rcpt,
			Data:     t.Timeouts.Data,
			Block:    t.Timeouts.Block,
			Dot:      t.Timeouts.Dot,
			Quit:     t.Timeouts.Quit,
		},
		MaxMode: map[string]smtpclient.Mode{
			"lockstep":   smtpclient.LockStep,
			"pipelining": smtpclient.Pipelined,
		}[t.Pipelining],
	}
}

func rate(r config.Rate) gcra.Rate { return gcra.Rate{Events: r.Count, Per: r.Per} }

// Backoff makes the back-off rules: those of the configuration, then the built-in ones except those
// whose name the configuration uses.
func Backoff(cfg *config.Config) []delivery.Rule {
	var rules []delivery.Rule
	for _, b := range cfg.Backoffs {
		rule := delivery.Rule{
			Name:        b.Name,
			Provider:    b.Provider,
			Codes:       b.Codes,
			Classes:     b.ClassList(),
			Pattern:     b.Pattern.Compile(),
			Session:     b.Session,
			Fewer:       b.Fewer,
			Suspend:     b.Suspend,
			Rate:        rate(b.Rate),
			RateFactor:  b.RateFactor,
			Connections: b.Connections,
			BySource:    b.BySource,
			After:       rate(b.After),
		}
		if b.Slows() {
			rule.Slow = b.Slow
		}
		rules = append(rules, rule)
	}
	own := len(rules)
	for _, r := range delivery.DefaultRules() {
		if !slices.ContainsFunc(rules[:own], func(o delivery.Rule) bool { return o.Name == r.Name }) {
			rules = append(rules, r)
		}
	}
	return rules
}
