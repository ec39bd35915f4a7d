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
	// Of tenants a sample is taken with each tenantEvery samples of all mail.
	tenantEvery   = 10
	tenantSamples = rateSamples/tenantEvery + 1
)

// Rates keeps what was counted in the last minute.
type Rates struct {
	mu           sync.Mutex // guards what follows
	all, tenants window
}

// window is samples, the oldest first.
type window []rateSample

// rateSample is what was counted until a time, by tenant; all mail is the tenant "".
type rateSample struct {
	at time.Time
	by map[string]tally.Counts
}

// Run takes a sample each second until ctx ends.
func (r *Rates) Run(ctx context.Context, now func() time.Time, t *tally.Tallies) {
	tick := time.NewTicker(rateEvery)
	defer tick.Stop()
	for i := 0; ; i++ {
		r.sample(now(), t.Total())
		if i%tenantEvery == 0 {
			r.add(&r.tenants, tenantSamples, rateSample{now(), t.Counts(tally.Tenant)})
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (r *Rates) sample(now time.Time, t tally.Tally) {
	r.add(&r.all, rateSamples, rateSample{now, map[string]tally.Counts{"": t.Counts}})
}

func (r *Rates) add(w *window, most int, s rateSample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(*w) == most {
		*w = append((*w)[:0], (*w)[1:]...)
	}
	*w = append(*w, s)
}

// OfTenants returns the rates of each tenant between the oldest sample and now.
func (r *Rates) OfTenants(now time.Time, by map[string]tally.Counts) map[string]api.Rates {
	return r.since(&r.tenants, now, by)
}

// PerSecond returns the rates of all mail between the oldest sample and now.
func (r *Rates) PerSecond(now time.Time, t tally.Tally) api.Rates {
	return r.since(&r.all, now, map[string]tally.Counts{"": t.Counts})[""]
}

// since returns what was counted since the oldest sample of a window, a second.
func (r *Rates) since(w *window, now time.Time, by map[string]tally.Counts) map[string]api.Rates {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[string]api.Rates, len(by))
	if len(*w) == 0 || !now.After((*w)[0].at) {
		return out
	}
	oldest := (*w)[0]
	per := func(n, then int64) float64 { return float64(n-then) / now.Sub(oldest.at).Seconds() }
	for name, c := range by {
		was := oldest.by[name]
		out[name] = api.Rates{
			Accepted: per(c.Accepted, was.Accepted), Delivered: per(c.Delivered, was.Delivered),
			Deferred: per(c.Deferred, was.Deferred), Bounced: per(c.Bounced+c.Expired, was.Bounced+was.Expired),
		}
	}
	return out
}
