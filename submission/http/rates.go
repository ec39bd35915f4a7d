package http

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/gcra"
)

// Rates are what a key, or all keys of a tenant, may ask for. Zero rates are no limit.
type Rates struct {
	Requests, Recipients gcra.Rate
	Octets               gcra.Rate // of bodies
}

func (r *Rates) of(what measure) gcra.Rate {
	return [measures]gcra.Rate{r.Requests, r.Recipients, r.Octets}[what]
}

// measure is what is limited.
type measure int

const (
	requests measure = iota
	recipients
	octets
	measures
)

// String is the end of a policy's name.
func (m measure) String() string { return [measures]string{"requests", "recipients", "octets"}[m] }

// Limits counts what keys and tenants ask for, at all listeners that share it. It is safe for use by
// many goroutines.
type Limits struct {
	now func() time.Time

	mu    sync.Mutex
	by    map[asker]*[measures]gcra.Limiter
	prune int // when by has so many, those that matter no more go
}

// asker is a key or a tenant.
type asker struct{ kind, name string }

// NewLimits makes a book without entries.
func NewLimits(now func() time.Time) *Limits {
	return &Limits{now: now, by: make(map[asker]*[measures]gcra.Limiter), prune: 1024}
}

// limit is one that applies to a request.
type limit struct {
	asker
	what measure
	rate gcra.Rate
}

// policy is its name in the fields of an answer.
func (l *limit) policy() string { return l.kind + "-" + l.what.String() }

// limits are those that apply to a request: its key's and its tenant's.
func (c *Call) limits() (all []limit) {
	cfg := &c.server.config
	if c.Identity.ID == "" {
		return nil
	}
	add := func(who asker, r Rates) {
		for what := range measures {
			if rate := r.of(what); !rate.Unlimited() {
				all = append(all, limit{who, what, rate})
			}
		}
	}
	add(asker{"key", c.Identity.ID}, cfg.Rates)
	if cfg.TenantRates != nil {
		add(asker{"tenant", c.Identity.Tenant}, cfg.TenantRates(c.Identity.Tenant))
	}
	return all
}

// charge takes what a request asks for from all its limits, or nothing, if one of them has not enough:
// then it is a 429. The limits' state goes into the answer.
func (c *Call) charge(n [measures]int) error {
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
		if d := book.of(now, l.asker)[l.what].Next(now, l.rate, n[l.what]).Sub(now); d > 0 && n[l.what] > 0 {
			wait, over = max(wait, d), append(over, l.policy())
		}
	}
	if over == nil {
		for _, l := range all {
			book.of(now, l.asker)[l.what].Take(now, l.rate, n[l.what])
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

// owe takes what has turned out only now. It may be more than there is: the next request waits.
func (c *Call) owe(what measure, n int64) {
	book := c.server.config.Limits
	if book == nil || n <= 0 {
		return
	}
	now := book.now()
	book.mu.Lock()
	defer book.mu.Unlock()
	for _, l := range c.limits() {
		if l.what == what {
			book.of(now, l.asker)[what].Take(now, l.rate, int(min(n, math.MaxInt32)))
		}
	}
}

// Recipients charges the recipients of the request. Over a limit it returns a 429.
func (c *Call) Recipients(n int) error { return c.charge([measures]int{recipients: n}) }

// of gives the limiters of a key or tenant. mu is held.
func (b *Limits) of(now time.Time, who asker) *[measures]gcra.Limiter {
	if there := b.by[who]; there != nil {
		return there
	}
	if len(b.by) >= b.prune {
		maps.DeleteFunc(b.by, func(_ asker, ls *[measures]gcra.Limiter) bool {
			return ls[requests].Paid(now) && ls[recipients].Paid(now) && ls[octets].Paid(now)
		})
		b.prune = max(1024, 2*len(b.by))
	}
	b.by[who] = new([measures]gcra.Limiter)
	return b.by[who]
}

// describe writes the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11).
// mu is held.
func (b *Limits) describe(now time.Time, all []limit, h http.Header) {
	var policies, states []string
	for _, l := range all {
		depth := l.rate.Depth()
		window := seconds(time.Duration(depth) * l.rate.Interval())
		unit := ""
		if l.what == octets {
			unit = `;qu="content-bytes"`
		}
		policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%d%s`, l.policy(), depth, window, unit))
		ls := b.of(now, l.asker)
		states = append(states,
			fmt.Sprintf(`"%s";r=%d;t=%d`, l.policy(), ls[l.what].Left(now, l.rate), seconds(ls[l.what].Whole(now))))
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// seconds rounds up.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
