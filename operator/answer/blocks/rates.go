package blocks

import (
	"context"
	"sync"
	"time"

	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
)

const (
	rateEvery   = time.Second
	rateSamples = 61 // a minute, both ends
)

// Rates keeps what was counted in the last minute.
type Rates struct {
	mu      sync.Mutex // guards what follows
	samples [rateSamples]rateSample
	n       int // so many were taken
	// tenants are samples of each tenant, the oldest first.
	tenants []tenantSample
}

// tenantSample is what was counted for each tenant. One is taken with each tenantEvery samples of all mail.
type tenantSample struct {
	at time.Time
	by map[string]tally.Counts
}

const (
	tenantEvery   = 10
	tenantSamples = rateSamples/tenantEvery + 1
)

type rateSample struct {
	at    time.Time
	tally tally.Tally
}

// Run takes a sample each second until ctx ends.
func (r *Rates) Run(ctx context.Context, now func() time.Time, t *tally.Tallies) {
	tick := time.NewTicker(rateEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		r.sample(now(), t.Total())
		if i%tenantEvery == 0 {
			r.sampleTenants(now(), t.Counts(tally.Tenant))
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Rates) sample(now time.Time, t tally.Tally) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples[r.n%rateSamples] = rateSample{now, t}
	r.n++
}

func (r *Rates) sampleTenants(now time.Time, by map[string]tally.Counts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.tenants) == tenantSamples {
		r.tenants = append(r.tenants[:0], r.tenants[1:]...)
	}
	r.tenants = append(r.tenants, tenantSample{now, by})
}

// OfTenants returns the rates of each tenant between the oldest sample and now.
func (r *Rates) OfTenants(now time.Time, by map[string]tally.Counts) map[string]api.Rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]api.Rates, len(by))
	if len(r.tenants) == 0 {
		return out
	}
	oldest := &r.tenants[0]
	for name, c := range by {
		out[name] = ratesOf(c, oldest.by[name], now.Sub(oldest.at))
	}
	return out
}

// PerSecond returns the rates between the oldest sample and now.
func (r *Rates) PerSecond(now time.Time, t tally.Tally) (out api.Rates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return out
	}
	oldest := &r.samples[0]
	if r.n > rateSamples {
		oldest = &r.samples[r.n%rateSamples]
	}
	return ratesOf(countsOf(&t), countsOf(&oldest.tally), now.Sub(oldest.at))
}

func countsOf(t *tally.Tally) tally.Counts {
	return tally.Counts{Accepted: t.Accepted, Delivered: t.Delivered, Deferred: t.Deferred, Bounced: t.Bounced, Expired: t.Expired}
}

// ratesOf returns what was counted in a time, a second.
func ratesOf(now, before tally.Counts, in time.Duration) (out api.Rates) {
	if in <= 0 {
		return out
	}
	per := func(now, then int64) float64 { return float64(now-then) / in.Seconds() }
	return api.Rates{
		Accepted: per(now.Accepted, before.Accepted), Delivered: per(now.Delivered, before.Delivered),
		Deferred: per(now.Deferred, before.Deferred), Bounced: per(now.Bounced+now.Expired, before.Bounced+before.Expired),
	}
}
