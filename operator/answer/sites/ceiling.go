package sites

import (
	"cmp"
	"fmt"
	"slices"

	"example.org/mta/delivery"
	"example.org/mta/operator/api"
)

// bound is the most messages a second that one limit lets through.
type bound struct {
	perSecond float64
	what      string
}

// ceiling works out which of the limits on rates binds when mail leaves from these sources. Limits
// on connections bound no rate: how fast a connection is, is up to the host.
func (c *domainCase) ceiling(able []sourceCase) api.Ceiling {
	if len(able) == 0 {
		_, why := c.hindrance()
		return api.Ceiling{Binds: why}
	}
	common := slices.DeleteFunc(slices.Clone(able[0].limits.Shared), func(x delivery.NamedScope) bool {
		return slices.ContainsFunc(able, func(s sourceCase) bool { return !slices.Contains(s.limits.Shared, x) })
	})
	bounds := c.sharedBounds(&able[0].limits)
	for _, x := range common {
		bounds = c.scopeBounds(bounds, x.Scope, x.Name, &able[0].limits)
	}
	bounds = append(bounds, c.ownBounds(able, common)...)
	slices.SortStableFunc(bounds, func(a, b bound) int { return cmp.Compare(a.perSecond, b.perSecond) })
	var out api.Ceiling
	for i, b := range bounds {
		text := fmt.Sprintf("%s: %s", b.what, perSecond(b.perSecond))
		if i == 0 {
			out.PerSecond, out.Binds = b.perSecond, text
		} else {
			out.Others = append(out.Others, text)
		}
	}
	return out
}

// sharedBounds are of limits that all sources share.
func (c *domainCase) sharedBounds(l *delivery.Limits) []bound {
	bounds := c.scopeBounds(nil, l.Site, "site "+c.Site, l)
	bounds = c.scopeBounds(bounds, l.Tenant, "tenant "+c.tenant, l)
	bounds = c.scopeBounds(bounds, l.Relay, "the relay", l)
	bounds = c.ruleBounds(bounds, l, false)
	if c.Provider != "" {
		bounds = c.scopeBounds(bounds, l.Provider, "provider "+c.Provider, l)
	}
	return bounds
}

// ruleBounds are of operators' rules: of those about one source, or of the others.
func (c *domainCase) ruleBounds(bounds []bound, l *delivery.Limits, own bool) []bound {
	for _, r := range l.Rules {
		if own == (r.Source != "") {
			bounds = c.scopeBounds(bounds, delivery.Scope{MessageRate: r.Rate}, fmt.Sprintf("rule %d", r.Rule), l)
		}
	}
	return bounds
}

// ownBounds are of limits that each source has for itself. The sources together bind only if each
// of them is bound.
func (c *domainCase) ownBounds(able []sourceCase, common []delivery.NamedScope) []bound {
	total, what := 0.0, ""
	for i := range able {
		s := &able[i]
		own := c.scopeBounds(nil, s.limits.Path, "site "+c.Site+" from source "+s.Name, &s.limits)
		own = c.scopeBounds(own, s.limits.Source, "source "+s.Name, &s.limits)
		own = c.scopeBounds(own, s.limits.TenantPath, "tenant "+c.tenant+" from source "+s.Name, &s.limits)
		own = c.ruleBounds(own, &s.limits, true)
		for _, x := range s.limits.Shared {
			if !slices.Contains(common, x) {
				own = c.scopeBounds(own, x.Scope, x.Name, &s.limits)
			}
		}
		for _, a := range c.Actions {
			if a.Rate > 0 && (a.Source == "" || a.Source == s.Name) {
				own = append(own, bound{a.Rate, "slowed from source " + s.Name + " after " + a.Reason})
			}
		}
		for _, d := range c.drains {
			if d.source == s.Name {
				own = append(own, bound{d.rate.PerSecond(), "drain after an outage from source " + s.Name})
			}
		}
		if len(own) == 0 {
			return nil
		}
		least := slices.MinFunc(own, func(a, b bound) int { return cmp.Compare(a.perSecond, b.perSecond) })
		total += least.perSecond
		if what != "" {
			what += " + "
		}
		what += least.what
	}
	return []bound{{total, what}}
}

// scopeBounds adds what the rates of a scope allow: messages, and connections full of messages.
func (c *domainCase) scopeBounds(bounds []bound, s delivery.Scope, scope string, l *delivery.Limits) []bound {
	if !s.MessageRate.Unlimited() {
		bounds = append(bounds,
			bound{s.MessageRate.PerSecond(), c.whence(fmt.Sprintf("max_message_rate %v of %s", s.MessageRate, scope) +
				c.ofAll("max_message_rate", scope))})
	}
	if n := l.MaxDeliveriesPerConnection; !s.ConnectionRate.Unlimited() && n > 0 {
		bounds = append(bounds, bound{
			s.ConnectionRate.PerSecond() * float64(n),
			c.whence(fmt.Sprintf("max_connection_rate %v of %s", s.ConnectionRate, scope)+
				c.ofAll("max_connection_rate", scope)) +
				fmt.Sprintf(", %d messages each", n),
		})
	}
	return bounds
}

// perSecond writes a rate with as many digits as mean something.
func perSecond(r float64) string {
	if r >= 100 {
		return fmt.Sprintf("%.0f messages/s", r)
	}
	return fmt.Sprintf("%.3g messages/s", r)
}
