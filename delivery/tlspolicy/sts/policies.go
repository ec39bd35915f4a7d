package sts

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

const (
	checkAfter = time.Hour // a domain's record is looked at again
	// after a failure; doubled each time, up to checkAfter (RFC 8461, 3.3 wants 5 minutes)
	retryAfter = 5 * time.Minute
	// a policy is fetched again, whatever its id (RFC 8461, 3.3), or after half its lifetime
	renewAfter  = 24 * time.Hour
	forgetAfter = 30 * 24 * time.Hour // without mail for the domain its policy is not renewed, and expires
	minLifetime = time.Minute         // of a policy with a max_age below it, lest each message fetch it

	// what was found out of a domain without a policy holds no longer, if nothing else is known
	absentFor = 24 * time.Hour

	dnsTimeout   = 5 * time.Second
	fetchTimeout = 20 * time.Second // a third of what RFC 8461, 3.3 suggests: the first mail to a domain waits
)

// Resolver is what is wanted of the DNS.
type Resolver interface {
	// TXT gives the TXT records of a name, the strings of each joined; none and no error when the DNS says that there
	// are none.
	TXT(ctx context.Context, name string) ([]string, error)
}

// Store keeps policies over restarts, by domain. It may lose some, or all.
type Store interface {
	Load() (map[string][]byte, error)
	// Save keeps values under their names, in place of those before; nil removes.
	Save(values map[string][]byte) error
}

// Config is what Policies are made from. Resolver and Transport are needed, the rest has defaults.
type Config struct {
	Resolver  Resolver
	Transport http.RoundTripper // see NewTransport
	Store     Store             // nil: nothing is kept over restarts
	Log       *slog.Logger      // nil: nowhere
	Now       func() time.Time  // time.Now
	// Changed is called when other hosts, or another mode, count for a domain than those that callers were given. It
	// must not block. May be nil.
	Changed func(domain string)
	// Failed is called when a look-up has found no policy, or could not renew one, for domains that have none too: see
	// Failure.Kind. It must not block. May be nil.
	Failed func(domain string, f *Failure)

	Lookups   int // in the DNS at once; 128
	Fetches   int // at once that mail waits for; 64. Renewals have an eighth of it on top
	MaxMemory int // of policies, in octets, about; 64 MiB. What is known to have none has an eighth of it on top
}

func (c *Config) setDefaults() {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	if c.Failed == nil {
		c.Failed = func(string, *Failure) {}
	}
	for v, d := range map[*int]int{&c.Lookups: 128, &c.Fetches: 64, &c.MaxMemory: 64 << 20} {
		if *v <= 0 {
			*v = d
		}
	}
}

// Policies is the policies of all domains that mail was for. It is safe for use by many goroutines.
type Policies struct {
	cfg      Config
	log      *slog.Logger
	now      func() time.Time
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	running  sync.WaitGroup
	lookups  gate
	fetches  gate          // that mail waits for
	renewals gate          // that nobody waits for
	changed  chan struct{} // something has to be written

	mu struct { // guards what is known and what is being looked up
		sync.Mutex
		policies *shelf
		absent   *shelf // domains that are known to have none
		calls    map[string]*call
		dirty    map[string]bool // domains whose record has to be written
		unsaved  bool            // the last time that failed
		closed   bool
		counts   Counts
	}
}

// call is a domain being looked up.
type call struct {
	domain  string
	force   bool // the policy is fetched, whatever its id
	urgent  bool // somebody waits
	waiting []func(*Policy, error)
}

// Counts are counters since the start.
type Counts struct {
	Fetched   uint64        // policies
	Unchanged uint64        // look-ups that showed that the cached policy is the current one
	Failed    [kinds]uint64 // look-ups and fetches that gave none, by Kind
}

// New makes Policies and reads the store. When that fails it begins without, and logs it.
func New(cfg Config) *Policies {
	cfg.setDefaults()
	p := &Policies{cfg: cfg, log: cfg.Log, now: cfg.Now, changed: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	for g, free := range map[*gate]int{&p.lookups: cfg.Lookups, &p.fetches: cfg.Fetches,
		&p.renewals: max(cfg.Fetches/8, 1)} {
		g.free, g.running = free, &p.running
	}
	p.mu.policies, p.mu.absent = newShelf(cfg.MaxMemory), newShelf(cfg.MaxMemory/8)
	p.mu.calls, p.mu.dirty = make(map[string]*call), make(map[string]bool)
	p.load()
	return p
}

// Known gives the policy of a domain when it is known, be it that there is none: then it is one that demands nothing.
// What is due to be looked at again is, in the background: mail waits at its first meeting with a domain only, and
// where a policy has expired.
func (p *Policies) Known(domain string) (policy *Policy, known bool) {
	if !isDomain(domain) {
		return none, true // an address literal
	}
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.known(domain, now)
}

// known is Known with p.mu held.
func (p *Policies) known(domain string, now time.Time) (*Policy, bool) {
	e := p.find(domain)
	if e == nil || !e.counts(now) {
		return nil, false
	}
	e.used = now
	if !now.Before(e.next) {
		p.call(domain)
	}
	return e.demand(), true
}

// find gives the entry of a domain, nil when nothing is known. p.mu is held.
func (p *Policies) find(domain string) *entry {
	if e := p.mu.policies.get(domain); e != nil {
		return e
	}
	return p.mu.absent.get(domain)
}

// Ask calls done with the policy of a domain, at once when it is known, else from another goroutine when it has been
// looked up, or with ErrClosed.
func (p *Policies) Ask(domain string, done func(*Policy, error)) {
	if !isDomain(domain) {
		done(none, nil)
		return
	}
	now := p.now()
	p.mu.Lock()
	policy, known := p.known(domain, now)
	var err error
	switch {
	case known:
	case p.mu.closed:
		err = ErrClosed
	default:
		c := p.call(domain)
		c.urgent = true
		c.waiting = append(c.waiting, done)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	done(policy, err)
}

// Lookup is Ask for those who wait. The error is ErrClosed, or the context's.
func (p *Policies) Lookup(ctx context.Context, domain string) (*Policy, error) {
	type answer struct {
		policy *Policy
		err    error
	}
	answers := make(chan answer, 1)
	p.Ask(domain, func(policy *Policy, err error) { answers <- answer{policy, err} })
	select {
	case a := <-answers:
		return a.policy, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Doubt is for a policy that mail can't be sent by: it may have changed. It is fetched again in the background, unless
// that was tried in the last five minutes. Until then the policy stands (RFC 8461, 5).
func (p *Policies) Doubt(domain string) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.mu.policies.get(domain)
	if e == nil || now.Sub(e.fetched) < retryAfter || e.failure != nil && now.Sub(e.failure.At) < retryAfter {
		return
	}
	p.call(domain).force = true
}

// Refresh looks a domain up anew, whatever is known of it, and fetches its policy. It is for operators. The error is
// ErrName, ErrClosed, or the context's; whether the policy could be had is in the status.
func (p *Policies) Refresh(ctx context.Context, domain string) (Status, error) {
	if err := CheckName(domain); err != nil {
		return Status{}, err
	}
	done := make(chan error, 1)
	p.mu.Lock()
	if p.mu.closed {
		p.mu.Unlock()
		return Status{}, ErrClosed
	}
	c := p.call(domain)
	c.force, c.urgent = true, true
	c.waiting = append(c.waiting, func(_ *Policy, err error) { done <- err })
	p.mu.Unlock()
	select {
	case err := <-done:
		status, _ := p.Status(domain)
		return status, err
	case <-ctx.Done():
		return Status{}, ctx.Err()
	}
}

// Status is what is known of a domain, for people.
type Status struct {
	Policy  *Policy   // nil: none
	ID      string    // of the policy
	Fetched time.Time // and when it was
	Expires time.Time
	Next    time.Time // when the domain is looked at again
	Failure *Failure  // of the last attempt; nil after a good one
	Looking bool      // it is being looked up
}

// Status returns what is known of a domain; false when nothing is.
func (p *Policies) Status(domain string) (s Status, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, s.Looking = p.mu.calls[domain]
	e := p.find(domain)
	if e == nil {
		return s, false
	}
	s.Next, s.Failure = e.next, e.failure
	if e.holds(p.now()) {
		s.Policy, s.ID, s.Fetched, s.Expires = e.policy, e.id, e.fetched, e.expires()
	}
	return s, true
}

// Stats are counters since the start, and sizes now.
type Stats struct {
	Counts
	Policies int // that are cached, of any mode
	Absent   int // domains that are known to have none
	Looking  int // domains being looked up
}

// Stats gives the counters.
func (p *Policies) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{Counts: p.mu.counts, Policies: p.mu.policies.len(), Absent: p.mu.absent.len(),
		Looking: len(p.mu.calls)}
}
