package mta

import (
	"strings"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/config"
	"example.org/mta/submission"
)

// tallyScope is what a tally is of, sites apart.
type tallyScope uint8

const (
	tallyProvider tallyScope = iota
	tallySource
	tallyPool
	tallyTenant
	tallyListener
	tallyScopes int = iota
)

// tally is what became of recipients since the start of the relay.
type tally struct {
	accepted, delivered, deferred, bounced, expired int64

	messages int64                       // of a listener or tenant
	missing  [submission.NumFields]int64 // of a tenant: messages that came without each field
	refused  int64                       // of a listener

	failure   reply.Reply // the last one
	failureAt time.Time

	deliveredAt time.Time
	touched     time.Time // a site's
}

const (
	// maxSiteTallies bounds the memory for sites, to about 30 MB: the one that was idle longest of a
	// few makes room.
	maxSiteTallies   = 100_000
	evictFrom        = 16
	maxFailureOctets = 300 // kept of the text of a failure
)

// tallies are all of them.
type tallies struct {
	config func() *config.Config

	mu sync.Mutex // guards what follows
	// by has them by the names of the configuration's blocks. What has none there is counted under "", so
	// that strangers make no new ones.
	by    [tallyScopes]map[string]*tally
	sites map[string]*tally
}

func newTallies(cfg func() *config.Config) *tallies {
	t := &tallies{config: cfg, sites: make(map[string]*tally)}
	for scope := range t.by {
		t.by[scope] = make(map[string]*tally)
	}
	return t
}

// of gives the tally of a key, under the lock.
func (t *tallies) of(scope tallyScope, name string) *tally {
	c := t.by[scope][name]
	if c == nil {
		c = new(tally)
		t.by[scope][name] = c
	}
	return c
}

// ofSite is of for a site.
func (t *tallies) ofSite(name string, now time.Time) *tally {
	c := t.sites[name]
	if c == nil {
		if len(t.sites) >= maxSiteTallies {
			t.evict()
		}
		c = new(tally)
		t.sites[name] = c
	}
	c.touched = now
	return c
}

// evict forgets the site that was idle longest among some at random: a range over a map begins
// anywhere.
func (t *tallies) evict() {
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

// attempted counts what became of a recipient.
func (t *tallies) attempted(kind eventKind, o *outcomes, at attempt, now time.Time) {
	cfg := t.config()
	t.mu.Lock()
	defer t.mu.Unlock()
	count := func(scope tallyScope, name string) { t.of(scope, name).outcome(kind, &at.result.Reply, now) }
	if site := o.site(); site != "" {
		t.ofSite(site, now).outcome(kind, &at.result.Reply, now)
	}
	if o.route != nil {
		count(tallyProvider, o.route.Provider)
	}
	if at.result.Source != "" {
		count(tallySource, at.result.Source)
	}
	tenant := known(cfg, o.message.Tenant)
	count(tallyPool, cfg.PoolOf(tenant).Name)
	count(tallyTenant, tenant)
}

// known gives a tenant's name if the configuration has it, and else "".
func known(cfg *config.Config, tenant string) string {
	if cfg.Tenant(tenant) == nil {
		return ""
	}
	return tenant
}

func (c *tally) outcome(kind eventKind, r *reply.Reply, now time.Time) {
	switch kind {
	case eventDelivery:
		c.delivered++
		c.deliveredAt = now
		return
	case eventTransientFailure:
		c.deferred++
	case eventExpiration:
		c.expired++
	default:
		c.bounced++
	}
	c.failure, c.failureAt = *r, now
	if len(r.Text) > maxFailureOctets { // a copy, so that the whole is not kept alive
		c.failure.Text = strings.ToValidUTF8(strings.Clone(r.Text[:maxFailureOctets]), "") + "…"
	}
}

// received counts a message that was accepted, from a client or from the relay itself.
func (t *tallies) received(m *envelope.Message) {
	cfg, n := t.config(), int64(len(m.Recipients))
	tenant := known(cfg, m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(tallyTenant, tenant).accepted += n
	t.of(tallyPool, cfg.PoolOf(tenant).Name).accepted += n
}

// taken counts a message that a listener took.
func (t *tallies) taken(listener string, m *envelope.Message, missing submission.Fields) {
	tenant := known(t.config(), m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(tallyListener, listener)
	l.accepted += int64(len(m.Recipients))
	l.messages++
	of := t.of(tallyTenant, tenant)
	of.messages++
	for f := range missing.All() {
		of.missing[f]++
	}
}

// refused counts n refusals by a listener.
func (t *tallies) refused(listener string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.of(tallyListener, listener).refused += n
}

// site is get for a site.
func (t *tallies) site(name string) tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.sites[name]; c != nil {
		return *c
	}
	return tally{}
}

// get gives a copy of a tally; zero when nothing was counted.
func (t *tallies) get(scope tallyScope, name string) tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.by[scope][name]; c != nil {
		return *c
	}
	return tally{}
}

// total is over all tenants: each recipient has one, if "".
func (t *tallies) total() (sum tally) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.by[tallyTenant] {
		sum.accepted += c.accepted
		sum.delivered += c.delivered
		sum.deferred += c.deferred
		sum.bounced += c.bounced
		sum.expired += c.expired
	}
	return sum
}
