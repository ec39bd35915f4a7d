package mta

import (
	"slices"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
)

// policy answers, from one configuration, what applies to a message. It is replaced as a whole
// at a reload.
type policy struct {
	cfg     *config.Config
	divides map[*config.Pool]*dividedPool // the pools with dedicated sources
}

func newPolicy(cfg *config.Config) *policy {
	p := &policy{cfg: cfg, divides: make(map[*config.Pool]*dividedPool)}
	for _, pool := range cfg.Pools {
		if len(pool.Dedicated) > 0 {
			p.divides[pool] = divide(cfg, pool)
		}
	}
	return p
}

// weight is a tenant's among tenants.
func (p *policy) weight(tenant string) int {
	if t := p.cfg.Tenant(tenant); t != nil {
		return t.Weight
	}
	return 1
}

// divided gives the pool of a tenant's mail when it has dedicated sources, else nil.
func (p *policy) divided(tenant string) *dividedPool {
	if len(p.divides) == 0 {
		return nil
	}
	return p.divides[p.cfg.PoolOf(tenant)]
}

// source picks one of the sources of the message's pool. The same message gets the same one at
// each attempt, as greylisting wants it.
func (p *policy) source(m *envelope.Message) string {
	sources := p.cfg.PoolOf(m.Tenant).Shared
	return sources[spread(m.ID)%uint64(len(sources))]
}

// stays gives what a reload asks of waiting jobs: whether the source is of the job's pool, and is to the
// warm-up what it was. A job of a source that comes under a plan has no token, and would leave uncounted.
// A job whose TLS is another now is made anew.
func (p *policy) stays(before *policy) func(*delivery.Job) bool {
	return func(j *delivery.Job) bool {
		key, ok := p.keyOf(j)
		was, _ := before.keyOf(j)
		return ok && key == was && p.demand(j.Message, j.Route) == j.Demand
	}
}

// keyOf gives the warm-up's name of a job's source, "" of a shared one; false when it is not of the pool.
func (p *policy) keyOf(j *delivery.Job) (key string, ok bool) {
	if pool := p.divided(j.Message.Tenant); pool != nil {
		return pool.key[j.Source], pool.has(j.Source)
	}
	return "", slices.Contains(p.cfg.PoolOf(j.Message.Tenant).Shared, j.Source)
}

// sourceFor picks the source that the message had before, via, or as source does, and another one of
// the pool where that is missing on this machine or reaches no host of the route (nil: not known).
// The mail of a missing source spreads over all others. It reports false when all are missing.
func (p *policy) sourceFor(m *envelope.Message, rt *route.Route, via string, missing func(source string) bool) (string, bool) {
	if via != "" && slices.Contains(p.cfg.PoolOf(m.Tenant).Shared, via) && !missing(via) && p.reaches(via, rt) {
		return via, true
	}
	first := p.source(m)
	if !missing(first) && p.reaches(first, rt) {
		return first, true
	}
	var present, able []string
	for _, name := range p.cfg.PoolOf(m.Tenant).Shared {
		if missing(name) {
			continue
		}
		present = append(present, name)
		if p.reaches(name, rt) {
			able = append(able, name)
		}
	}
	if len(able) == 0 {
		able = present // delivery says what is wrong with them
	}
	if len(able) == 0 {
		return first, false
	}
	// Spread anew: the first spread's remainder is what is common to all mail of a missing source.
	return able[spread(envelope.ID(spread(m.ID)))%uint64(len(able))], true
}

// reaches reports whether a source can connect to any host of a route.
func (p *policy) reaches(source string, rt *route.Route) bool {
	s := p.cfg.Source(source)
	if s == nil {
		return false
	}
	if rt == nil {
		return true
	}
	from := delivery.Source{Address: s.Address}
	for _, tier := range rt.Tiers {
		if slices.ContainsFunc(tier, from.Reaches) {
			return true
		}
	}
	return false
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
	return m.Start().Add(p.traffic(domain, rt).MaxAge)
}

func rate(r config.Rate) gcra.Rate { return gcra.Rate{Events: r.Count, Per: r.Per} }
