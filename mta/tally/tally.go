// Package tally counts the outcomes of mail since the start of the relay: by the blocks of the configuration
// and by site for operators, and in a few metrics for Prometheus. It starts no goroutines.
package tally

import (
	"strings"
	"sync"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/submission/intake"
)

// Scope is a kind of block in the configuration.
type Scope uint8

// Scopes; sites are counted beside them.
const (
	Provider Scope = iota
	Source
	Pool
	Tenant
	Listener
	scopes int = iota
)

// Tally is what became of recipients since the start of the relay.
type Tally struct {
	Accepted, Delivered, Deferred, Bounced, Expired int64

	Messages int64                   // of a listener or tenant
	Missing  [intake.NumFields]int64 // of a tenant: messages that came without each field
	Refused  int64                   // of a listener

	Failure   reply.Reply // the last one
	FailureAt time.Time

	deliveredAt time.Time
	touched     time.Time // a site's
}

// Failing reports whether the last recipient failed.
func (c *Tally) Failing() bool { return c.FailureAt.After(c.deliveredAt) }

// Outcome is what became of one recipient at one try.
type Outcome struct {
	Kind    accounting.Type
	Message *envelope.Message
	Route   *route.Route // nil when none was found
	Site    string       // "" when the recipient waited for something else than a site
	Result  *delivery.Result
}

const (
	// maxSiteTallies bounds the memory for sites, to about 30 MB: the one that was idle longest of a
	// few makes room.
	maxSiteTallies   = 100_000
	evictFrom        = 16
	maxFailureOctets = 300 // kept of the text of a failure
)

// Tallies are all of them. They are safe for concurrent use.
type Tallies struct {
	config func() *config.Config

	mu sync.Mutex // guards what follows
	// by has them by the names of the configuration's blocks. What has none there is counted under "", so
	// that strangers make no new ones.
	by    [scopes]map[string]*Tally
	sites map[string]*Tally
}

// New returns tallies of nothing yet, by the blocks of the configuration that cfg returns.
func New(cfg func() *config.Config) *Tallies {
	t := &Tallies{config: cfg, sites: make(map[string]*Tally)}
	for scope := range t.by {
		t.by[scope] = make(map[string]*Tally)
	}
	return t
}

// of gives the tally of a key, under the lock.
func (t *Tallies) of(scope Scope, name string) *Tally {
	c := t.by[scope][name]
	if c == nil {
		c = new(Tally)
		t.by[scope][name] = c
	}
	return c
}

// ofSite is of for a site.
func (t *Tallies) ofSite(name string, now time.Time) *Tally {
	c := t.sites[name]
	if c == nil {
		if len(t.sites) >= maxSiteTallies {
			t.evict()
		}
		c = new(Tally)
		t.sites[name] = c
	}
	c.touched = now
	return c
}

// evict forgets the site that was idle longest among some at random: a range over a map begins
// anywhere.
func (t *Tallies) evict() {
	oldest, since, seen := "", time.Time{}, 0
	for name, c := range t.sites {
		if seen == 0 || c.touched.Before(since) {
			oldest, since = name, c.touched
		}
		if seen++; seen == evictFrom {
			break
		}
	}
	delete(t.sites, oldest)
}

// Attempted counts what became of a recipient.
func (t *Tallies) Attempted(o *Outcome, now time.Time) {
	cfg := t.config()
	t.mu.Lock()
	defer t.mu.Unlock()
	count := func(scope Scope, name string) { t.of(scope, name).outcome(o, now) }
	if o.Site != "" {
		t.ofSite(o.Site, now).outcome(o, now)
	}
	if o.Route != nil {
		count(Provider, o.Route.Provider)
	}
	if o.Result.Source != "" {
		count(Source, o.Result.Source)
	}
	tenant := known(cfg, o.Message.Tenant)
	count(Pool, cfg.PoolFor(tenant, o.Message.Pool).Name)
	count(Tenant, tenant)
}

// known gives a tenant's name if the configuration has it, and else "".
func known(cfg *config.Config, tenant string) string {
	if cfg.Tenant(tenant) == nil {
		return ""
	}
	return tenant
}

func (c *Tally) outcome(o *Outcome, now time.Time) {
	switch o.Kind {
	case accounting.Delivery:
		c.Delivered++
		c.deliveredAt = now
		return
	case accounting.TransientFailure:
		c.Deferred++
	case accounting.Expiration:
		c.Expired++
	default:
		c.Bounced++
	}
	r := &o.Result.Reply
	c.Failure, c.FailureAt = *r, now
	if len(r.Text) > maxFailureOctets { // a copy, so that the whole is not kept alive
		c.Failure.Text = strings.ToValidUTF8(strings.Clone(r.Text[:maxFailureOctets]), "") + "…"
	}
}

// Received counts a message that was accepted, from a client or from the relay itself.
func (t *Tallies) Received(m *envelope.Message) {
	cfg, n := t.config(), int64(len(m.Recipients))
	tenant := known(cfg, m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(Tenant, tenant).Accepted += n
	t.of(Pool, cfg.PoolFor(tenant, m.Pool).Name).Accepted += n
}

// Taken counts a message that a listener took.
func (t *Tallies) Taken(listener string, m *envelope.Message, missing intake.Fields) {
	tenant := known(t.config(), m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(Listener, listener)
	l.Accepted += int64(len(m.Recipients))
	l.Messages++
	of := t.of(Tenant, tenant)
	of.Messages++
	for f := range missing.All() {
		of.Missing[f]++
	}
}

// Refused counts n refusals by a listener.
func (t *Tallies) Refused(listener string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(Listener, listener).Refused += n
}

// Site is Get for a site.
func (t *Tallies) Site(name string) Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.sites[name]; c != nil {
		return *c
	}
	return Tally{}
}

// Get returns a copy of a tally; zero when nothing was counted.
func (t *Tallies) Get(scope Scope, name string) Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.by[scope][name]; c != nil {
		return *c
	}
	return Tally{}
}

// Total returns the sums over all tenants, that named "" included: each recipient is counted under one.
func (t *Tallies) Total() (sum Tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.by[Tenant] {
		sum.Accepted += c.Accepted
		sum.Delivered += c.Delivered
		sum.Deferred += c.Deferred
		sum.Bounced += c.Bounced
		sum.Expired += c.Expired
	}
	return sum
}
