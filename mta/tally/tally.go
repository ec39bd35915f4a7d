// Package tally counts the outcomes of mail since the start of the relay: by the blocks of the configuration
// and by site for operators, and in a few metrics for Prometheus. It starts no goroutines.
package tally

import (
	"strings"
	"sync"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/operator/history"
	"example.org/mta/submission/intake"
)

// Scope is a kind of block in the configuration, or Site.
type Scope uint8

// Scopes.
const (
	Provider Scope = iota
	Source
	Pool
	Tenant
	Listener
	Site       // no block: they come and go
	scopes int = iota
)

// Counts are numbers of recipients.
type Counts struct {
	Accepted, Delivered, Deferred, Bounced, Expired int64
	Blocked                                         int64 // attempts that were refused as spam
	Late                                            int64 // deliveries after more than LateAfter
}

// LateAfter is the time from acceptance, or release, after which a delivery counts as late.
const LateAfter = 30 * time.Minute

// Tally is what became of recipients since the start of the relay.
type Tally struct {
	Counts

	Messages int64                   // of a listener or tenant
	Octets   int64                   // of a listener: the contents of those
	Missing  [intake.NumFields]int64 // of a tenant: messages that came without each field
	Refused  int64                   // of a listener or tenant

	Failure   reply.Reply // the last one
	FailureAt time.Time

	deliveredAt time.Time
	touched     time.Time // a site's

	delays *history.Histogram // of deliveries, while somebody watches
	recent int64              // recipients since Busy was asked last
}

// Failing reports whether the last recipient failed.
func (c *Tally) Failing() bool { return c.FailureAt.After(c.deliveredAt) }

// Outcome is what became of recipients of a message at one try.
type Outcome struct {
	Kind    accounting.Type
	Message *envelope.Message
	Route   *route.Route // nil when none was found
	Site    string       // "" when the recipient waited for something else than a site
	Result  *delivery.Result
	Class   bounce.Class // of its reply

	Recipients int64 // that it stands for
}

// Covers reports whether it stands for a recipient with this result, of the same class, too.
func (o *Outcome) Covers(r *delivery.Result) bool {
	return o.Result.Source == r.Source && o.Result.Attempted == r.Attempted && o.Result.Reply == r.Reply &&
		o.Result.Session == r.Session
}

const (
	// maxSiteTallies bounds the memory for sites, to about 30 MB: the one that was idle longest of a
	// few makes room.
	maxSiteTallies   = 100_000
	evictFrom        = 16
	maxFailureOctets = 300 // kept of the text of a reply
)

// Tallies are all of them. They are safe for concurrent use.
type Tallies struct {
	config func() *config.Config

	mu sync.Mutex // guards what follows
	// by has them by the names of the configuration's blocks, and by site. What has no block is counted under
	// "", so that strangers make no new ones.
	by     [scopes]map[string]*Tally
	paths  map[Path]*Tally // of attempts
	total  Tally
	busy   [scopes][]string // what had recipients of late
	recent recents
	voices voices
}

// New returns tallies of nothing yet, by the blocks of the configuration that cfg returns.
func New(cfg func() *config.Config) *Tallies {
	t := &Tallies{config: cfg, total: Tally{delays: new(history.Histogram)},
		recent: recents{by: make(map[string]*recent)},
		paths:  make(map[Path]*Tally), voices: voices{all: make(map[voice]*answers)}}
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
	if sites := t.by[Site]; sites[name] == nil && len(sites) >= maxSiteTallies {
		delete(sites, idlest(sites, func(c *Tally) time.Time { return c.touched }))
	}
	c := t.of(Site, name)
	c.touched = now
	return c
}

// idlest returns the name of the site that was idle longest among some at random: a range over a map begins
// anywhere.
func idlest[T any](sites map[string]T, touched func(T) time.Time) (name string) {
	since, seen := time.Time{}, 0
	for n, c := range sites {
		if at := touched(c); seen == 0 || at.Before(since) {
			name, since = n, at
		}
		if seen++; seen == evictFrom {
			break
		}
	}
	return name
}

// Attempted counts what became of recipients.
func (t *Tallies) Attempted(o *Outcome, now time.Time) {
	cfg := t.config()
	t.mu.Lock()
	defer t.mu.Unlock()
	count := func(scope Scope, name string) {
		c := t.of(scope, name)
		c.outcome(o, now)
		t.seen(c, scope, name, o.Recipients)
	}
	t.total.outcome(o, now)
	if o.Result.Attempted {
		path := Path{o.Result.Source, o.Route.Provider}
		c := t.paths[path]
		if c == nil {
			c = new(Tally)
			t.paths[path] = c
		}
		c.outcome(o, now)
	}
	if o.Site != "" {
		t.ofSite(o.Site, now)
		count(Site, o.Site)
		try := o.try(now)
		t.recent.add(o.Site, try)
		if !o.Message.Generated() { // strangers can have the relay write to them
			t.voices.hear(&try, o.Message.Tenant, o.Recipients)
		}
	}
	if o.Route != nil {
		count(Provider, o.Route.Provider)
	}
	if o.Result.Source != "" {
		count(Source, o.Result.Source)
	}
	tenant := known(cfg, o.Message.Tenant)
	way := config.WayOf(o.Message, "")
	if way.Tenant = tenant; o.Route != nil {
		way.Domain = o.Route.Domain
	}
	count(Pool, cfg.PoolBy(way).Name)
	count(Tenant, tenant)
}

// delay is how long a message took from its acceptance or release to its delivery.
func (o *Outcome) delay(now time.Time) time.Duration { return max(now.Sub(o.Message.Start()), 0) }

// known gives a tenant's name if the configuration has it, and else "".
func known(cfg *config.Config, tenant string) string {
	if cfg.Tenant(tenant) == nil {
		return ""
	}
	return tenant
}

func (c *Tally) outcome(o *Outcome, now time.Time) {
	n := o.Recipients
	switch o.Kind {
	case accounting.Delivery:
		c.Delivered += n
		c.deliveredAt = now
		took := o.delay(now)
		if took > LateAfter {
			c.Late += n
		}
		if c.delays != nil {
			c.delays.Add(took, n)
		}
		return
	case accounting.TransientFailure:
		c.Deferred += n
	case accounting.Expiration:
		c.Expired += n
	default:
		c.Bounced += n
	}
	if o.Class == bounce.SpamBlock && o.Result.Attempted {
		c.Blocked += n
	}
	c.Failure, c.FailureAt = short(o.Result.Reply), now
}

// short cuts the text of a long reply: a copy, so that the whole is not kept alive.
func short(r reply.Reply) reply.Reply {
	if len(r.Text) > maxFailureOctets {
		r.Text = strings.ToValidUTF8(strings.Clone(r.Text[:maxFailureOctets]), "") + "…"
	}
	return r
}

// try is an outcome as it is kept.
func (o *Outcome) try(now time.Time) Try {
	r := o.Result
	return Try{
		At: now, Kind: o.Kind, Message: o.Message.ID, Source: r.Source, Host: r.Host, Session: r.Session,
		Attempted: r.Attempted,
		Class:     o.Class, Reply: short(r.Reply),
	}
}

// Received counts a message that was accepted, from a client or from the relay itself.
func (t *Tallies) Received(m *envelope.Message) {
	cfg, n := t.config(), int64(len(m.Recipients))
	tenant := known(cfg, m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.Accepted += n
	of := t.of(Tenant, tenant)
	of.Accepted += n
	t.seen(of, Tenant, tenant, n)
	way := config.WayOf(m, "")
	if way.Tenant = tenant; !cfg.PoolsDiffer() {
		t.of(Pool, cfg.PoolBy(way).Name).Accepted += n
		return
	}
	for i := range m.Recipients {
		way.Domain = m.Recipients[i].Address.Domain()
		t.of(Pool, cfg.PoolBy(way).Name).Accepted++
	}
}

// Taken counts a message that a listener took.
func (t *Tallies) Taken(listener string, m *envelope.Message, missing intake.Fields) {
	tenant := known(t.config(), m.Tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.of(Listener, listener)
	l.Accepted += int64(len(m.Recipients))
	l.Messages++
	l.Octets += m.Size
	of := t.of(Tenant, tenant)
	of.Messages++
	for f := range missing.All() {
		of.Missing[f]++
	}
}

// Refused counts n refusals by a listener, of a tenant as far as it is known.
func (t *Tallies) Refused(listener, tenant string, n int64) {
	tenant = known(t.config(), tenant)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.total.Refused += n
	t.of(Listener, listener).Refused += n
	t.of(Tenant, tenant).Refused += n
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
func (t *Tallies) Total() Tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.total
}

// Counts returns those of each name in a scope.
func (t *Tallies) Counts(scope Scope) map[string]Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[string]Counts, len(t.by[scope]))
	for name, c := range t.by[scope] {
		all[name] = c.Counts
	}
	return all
}

// Path is the way of an attempt, by blocks of the configuration.
type Path struct{ Source, Provider string }

// Paths counts the attempts of each source at each provider. What ended without an attempt is not among them.
func (t *Tallies) Paths() map[Path]Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make(map[Path]Counts, len(t.paths))
	for path, c := range t.paths {
		all[path] = c.Counts
	}
	return all
}
