package operate

import (
	"context"
	"sync"
	"time"

	"example.org/mta/mta/control"
	"example.org/mta/mta/tally"
)

const (
	rateEvery   = time.Second
	rateSamples = 61 // a minute, both ends
)

// Rates keeps what was counted in the last minute.
type Rates struct {
	mu      sync.Mutex // guards samples and n
	samples [rateSamples]rateSample
	n       int // so many were taken
}

type rateSample struct {
	at    time.Time
	tally tally.Tally
}

// Run takes a sample each second until ctx ends.
func (r *Rates) Run(ctx context.Context, now func() time.Time, total func() tally.Tally) {
	tick := time.NewTicker(rateEvery)
	defer tick.Stop()
	for {
		r.sample(now(), total())
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

// PerSecond returns the rates between the oldest sample and now.
func (r *Rates) PerSecond(now time.Time, t tally.Tally) (out control.Rates) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == 0 {
		return out
	}
	oldest := &r.samples[0]
	if r.n > rateSamples {
		oldest = &r.samples[r.n%rateSamples]
	}
	d := now.Sub(oldest.at).Seconds()
	if d <= 0 {
		return out
	}
	per := func(now, then int64) float64 { return float64(now-then) / d }
	before := &oldest.tally
	return control.Rates{
		Accepted: per(t.Accepted, before.Accepted), Delivered: per(t.Delivered, before.Delivered),
		Deferred: per(t.Deferred, before.Deferred), Bounced: per(t.Bounced+t.Expired, before.Bounced+before.Expired),
	}
}
