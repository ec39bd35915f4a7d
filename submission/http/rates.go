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
	"example.org/mta/submission/intake"
)

// Rates are what a key, or all keys of a tenant, may ask for. Zero rates are no limit.
type Rates struct {
	Requests, Recipients gcra.Rate
	Octets               gcra.Rate // of bodies
	PerRelay             bool      // they are this relay's own, although others are shared
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
	now    func() time.Time
	shared SharedLimits // nil: what is asked for here is all

	mu    sync.Mutex
	by    map[asker]*[measures]paced
	prune int // when by has so many, those that matter no more go
}

// paced is what was taken at a rate.
type paced struct {
	gcra.Limiter
	rate gcra.Rate // as it was when the limit was looked at last
}

// asker is a key or a tenant.
type asker struct{ kind, name string }

// NewLimits makes a book without entries.
func NewLimits(now func() time.Time) *Limits {
	return &Limits{now: now, by: make(map[asker]*[measures]paced), prune: 1024}
}

// SharedLimits gives this relay its part of limits that it shares with others, by name.
type SharedLimits interface {
	// Charge takes events, if there are so many; Refund gives them back.
	Charge(name string, r gcra.Rate, n int64) intake.Part
	Refund(name string, r gcra.Rate, n int64)
	// Owe takes events that have happened, which may be more than there are.
	Owe(name string, r gcra.Rate, n int64)
	// Left is how many events may happen now.
	Left(name string, r gcra.Rate) int64
	Await(p intake.Part, until *time.Time) bool // as that of intake.SharedQuotas
}

// Share has the limits be those of all relays together. It is called before all else.
func (b *Limits) Share(s SharedLimits) { b.shared = s }

// limit is one that applies to a request.
type limit struct {
	asker
	what measure
	rate gcra.Rate
	own  bool // it is not shared
}

// policy is its name in the fields of an answer.
func (l *limit) policy() string { return l.kind + "-" + l.what.String() }

// name is that among relays.
func (l *limit) name() string { return l.kind + " " + l.asker.name + ": API " + l.what.String() }

// limits are those that apply to a request: its key's and its tenant's.
func (c *Call) limits() (all []limit) {
	cfg := &c.server.config
	if c.Identity.ID == "" {
		return nil
	}
	add := func(who asker, r Rates) {
		for what := range measures {
			if rate := r.of(what); !rate.Unlimited() {
				all = append(all, limit{who, what, rate, r.PerRelay})
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
	wait, over := book.charge(all, n)
	book.describe(all, c.Writer.Header())
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

// charge takes events from all limits, or returns which of them have not enough, and when they have.
func (b *Limits) charge(all []limit, n [measures]int) (wait time.Duration, over []string) {
	if b.shared != nil {
		return b.chargeParts(all, n)
	}
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, l := range all {
		if d := b.of(now, &l).Next(now, l.rate, n[l.what]).Sub(now); d > 0 && n[l.what] > 0 {
			wait, over = max(wait, d), append(over, l.policy())
		}
	}
	if over == nil {
		for _, l := range all {
			b.of(now, &l).Take(now, l.rate, n[l.what])
		}
	}
	return wait, over
}

// chargeParts is charge for this relay's parts: it waits for larger ones, and has asked for all of them by then.
func (b *Limits) chargeParts(all []limit, n [measures]int) (wait time.Duration, over []string) {
	taken := make([]*limit, 0, len(all))
	for until := (time.Time{}); ; {
		least := intake.Part{OK: true}
		wait, over, taken = time.Second, nil, taken[:0]
		for i := range all {
			l := &all[i]
			if n[l.what] == 0 {
				continue
			}
			p := b.take(l, n[l.what])
			if p.OK {
				taken = append(taken, l)
				continue
			}
			if least.OK || p.Patience < least.Patience {
				least = p
			}
			wait, over = max(wait, p.Wait), append(over, l.policy())
		}
		if least.OK {
			return 0, nil
		}
		for _, l := range taken {
			b.refund(l, n[l.what])
		}
		if !b.shared.Await(least, &until) {
			return wait, over
		}
	}
}

// take takes events of a limit, if there are so many. Nobody waits for more of one that is not shared.
func (b *Limits) take(l *limit, n int) intake.Part {
	if !l.own {
		return b.shared.Charge(l.name(), l.rate, int64(n))
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	x := b.of(now, l)
	if d := x.Next(now, l.rate, n).Sub(now); d > 0 {
		return intake.Part{Wait: d}
	}
	x.Take(now, l.rate, n)
	return intake.Part{OK: true}
}

// refund gives back what take has taken.
func (b *Limits) refund(l *limit, n int) {
	if !l.own {
		b.shared.Refund(l.name(), l.rate, int64(n))
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.of(b.now(), l).GiveBack(l.rate, n)
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
		switch {
		case l.what != what:
		case book.shared != nil && !l.own:
			book.shared.Owe(l.name(), l.rate, n)
		default:
			book.of(now, &l).Take(now, l.rate, int(min(n, math.MaxInt32)))
		}
	}
}

// Recipients charges the recipients of the request. Over a limit it returns a 429.
func (c *Call) Recipients(n int) error { return c.charge([measures]int{recipients: n}) }

// of gives the limiter of a limit. mu is held.
func (b *Limits) of(now time.Time, l *limit) *gcra.Limiter {
	all := b.by[l.asker]
	if all == nil {
		if len(b.by) >= b.prune {
			maps.DeleteFunc(b.by, func(_ asker, ls *[measures]paced) bool {
				return ls[requests].Paid(now) && ls[recipients].Paid(now) && ls[octets].Paid(now)
			})
			b.prune = max(1024, 2*len(b.by))
		}
		all = new([measures]paced)
		b.by[l.asker] = all
	}
	x := &all[l.what]
	if x.rate != l.rate {
		x.Change(now, x.rate, l.rate)
		x.rate = l.rate
	}
	return &x.Limiter
}

// describe writes the fields RateLimit-Policy and RateLimit (draft-ietf-httpapi-ratelimit-headers-11). What is left of
// a limit that relays share is left of this one's part.
func (b *Limits) describe(all []limit, h http.Header) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var policies, states []string
	for _, l := range all {
		depth := l.rate.Depth()
		window := seconds(time.Duration(depth) * l.rate.Interval())
		unit := ""
		if l.what == octets {
			unit = `;qu="content-bytes"`
		}
		policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%d%s`, l.policy(), depth, window, unit))
		var left int64
		var whole time.Duration
		if b.shared != nil && !l.own {
			left = b.shared.Left(l.name(), l.rate)
			whole = time.Duration(max(0, int64(depth)-left)) * l.rate.Interval()
		} else {
			x := b.of(now, &l)
			left, whole = int64(x.Left(now, l.rate)), x.Whole(now)
		}
		states = append(states, fmt.Sprintf(`"%s";r=%d;t=%d`, l.policy(), left, seconds(whole)))
	}
	h.Set("RateLimit-Policy", strings.Join(policies, ", "))
	h.Set("RateLimit", strings.Join(states, ", "))
}

// seconds rounds up.
func seconds(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
