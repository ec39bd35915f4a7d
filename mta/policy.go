package mta

import (
	"time"

	"mta/internal/envelope"
	"mta/internal/gcra"
	"mta/internal/route"
	"mta/mta/config"
)

// policy answers, from one configuration, what applies to a message. It is replaced as a whole
// at a reload.
type policy struct{ cfg *config.Config }

// source picks one of the sources of the message's pool. The same message gets the same one at
// each attempt, as greylisting wants it.
func (p *policy) source(m *envelope.Message) string {
	sources := p.cfg.PoolOf(m.Tenant).Shared
	return sources[spread(m.ID)%uint64(len(sources))]
}

// spread makes neighbouring ids differ in all bits (the finaliser of SplitMix64).
func spread(id envelope.ID) uint64 {
	x := uint64(id)
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// traffic gives the settings for a destination. Without a route, the domain alone decides.
func (p *policy) traffic(domain string, rt *route.Route) *config.Traffic {
	if rt != nil {
		return p.cfg.Traffic(rt.Domain, rt.Provider)
	}
	return p.cfg.Traffic(domain, "")
}

// retry gives the waits after a temporary failure.
func (p *policy) retry(domain string, rt *route.Route) retrySchedule {
	t := p.traffic(domain, rt)
	return retrySchedule{list: t.RetryInterval.List, interval: t.RetryInterval.First, max: t.MaxRetryInterval}
}

// expires is when a message for a destination is given up.
func (p *policy) expires(m *envelope.Message, domain string, rt *route.Route) time.Time {
	return m.Received.Add(p.traffic(domain, rt).MaxAge)
}

func rate(r config.Rate) gcra.Rate { return gcra.Rate{Events: r.Count, Per: r.Per} }
