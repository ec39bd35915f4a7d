package http

import (
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/gcra"
)

// Limits counts the requests of keys and tenants, at all listeners that share it. It is safe for use by many
// goroutines.
type Limits struct {
	now func() time.Time

	mu    sync.Mutex
	by    map[asker]*gcra.Limiter
	prune int // when by has so many, those that matter no more go
}

// asker is a key or a tenant.
type asker struct{ kind, name string }

// NewLimits makes a book without entries.
func NewLimits(now func() time.Time) *Limits {
	return &Limits{now: now, by: make(map[asker]*gcra.Limiter), prune: 1024}
}

// limit is one that applies to a request.
type limit struct {
	asker
	rate gcra.Rate
}

// policy is its name in the fields of an answer.
func (l *limit) policy() string { return l.kind + "-requests" }

// limits are those that apply to a request: its key's and its tenant's.
func (c *Call) limits() (all []limit) {
	cfg := &c.server.config
	if c.Identity.ID == "" {
		return nil
	}
	if !cfg.Rate.Unlimited() {
		all = append(all, limit{asker{"key", c.Identity.ID}, cfg.Rate})
	}
	if cfg.TenantRate != nil {
		if rate := cfg.TenantRate(c.Identity.Tenant); !rate.Unlimited() {
			all = append(all, limit{asker{"tenant", c.Identity.Tenant}, rate})
		}
	}
	return all
}

// charge takes a request from all its limits, or nothing, if one of them has not enough: then it is a 429. The limits'
// state goes into the answer.
func (c *Call) charge() error {
	all := c.limits()
	book := c.server.config.Limits
	if book == nil || len(all) == 0 {
		return nil
	}
	now := book.now()
	book.mu.Lock()
	defer book.mu.Unlock()
	var wait time.Duration
	var over []string
	for _, l := range all {
		if d := book.of(now, l.asker).Next(now, l.rate, 1).Sub(now); d > 0 {
			wait, over = max(wait, d), append(over, l.policy())
		}
	}
	if over == nil {
		for _, l := range all {
			book.of(now, l.asker).Take(now, l.rate, 1)
		}
	}
	book.describe(now, all, c.Writer.Header())
	if over == nil {
		return nil
	}
	return &Problem{
		// The type and its member are those of the draft about the fields.
		Type: "https://iana.org/assignments/http-problem-types#quota-exceeded", Title: "Limit exceeded",
		Status:     http.StatusTooManyRequests,
		Detail:     "the limit " + strings.Join(over, " and ") + " is reached: wait as long as Retry-After says",
		RetryAfter: wait,
		Extra:      map[string]any{"violated-policies": over}, Reason: "rate",
	}
}

// of gives the limiter of a key or tenant. mu is held.
func (b *Limits) of(now time.Time, who asker) *gcra.Limiter {
	if there := b.by[who]; there != nil {
		return there
	}
	if len(b.by) >= b.prune {
		for who, l := range b.by {
			if l.Paid(now) {
				delete(b.by, who)
			}
		}
		b.prune = max(1024, 2*len(b.by))
	}
	b.by[who] = new(gcra.Limiter)
	return b.by[who]
}

// describe writes the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11).
// mu is held.
func (b *Limits) describe(now time.Time, all []limit, h http.Header) {
	var policies, states []string
	for _, l := range all {
		depth := l.rate.Depth()
		window := seconds(time.Duration(depth) * l.rate.Interval())
		policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%d`, l.policy(), depth, window))
		limiter := b.of(now, l.asker)
		states = append(states,
			fmt.Sprintf(`"%s";r=%d;t=%d`, l.policy(), limiter.Left(now, l.rate), seconds(limiter.Whole(now))))
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// seconds rounds up.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
