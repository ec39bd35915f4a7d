package mta

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"mta/delivery"
	"mta/internal/envelope"
	"mta/internal/reply"
	"mta/internal/replyclass"
	"mta/internal/route"
	"mta/mta/config"
	"mta/queue"
	"mta/warmup"
)

// warmer is what the splitter needs of the warm-up.
type warmer interface {
	Choose(pool *warmup.Pool, message uint64, q warmup.Ask) warmup.Choice
	Look(ip string, q warmup.Ask) (int64, warmup.Verdict)
	Begin(ip, provider string, n int64) bool
	Drop(ip, provider string, n int64)
	Left(ip, provider string, within time.Duration) (of, all int64)
	Charges(source string) bool
	Report(ip, provider string, x warmup.Outcome)
}

// splitter picks the source of each job: one that the recipients had before, or one of the tenant's
// pool. Dedicated sources come first, as far as their warm-up has room.
type splitter struct {
	warm    warmer
	missing func(source string) bool // on this machine
	now     func() time.Time
	// suspended reports whether mail from a source to a site can't leave, which may be so for hours.
	suspended func(site, source string) bool
	// waiting is how much mail waits for tokens.
	waiting func(heldAt) int
}

// choice is the source that recipients take, or what they wait for.
type choice struct {
	source string // "" when all of them wait, or when there is none
	n      int    // recipients that take source; the others wait
	none   bool   // no source of the pool is there

	by basis // for jobs: what it follows from

	// Of a pool with dedicated sources.
	key   string    // the warm-up's name of source; "" when that is a shared one
	out   int       // recipients that the warm-up has let out
	wait  heldAt    // what those wait for that have no source
	own   string    // the only source that they wait for; "" is any of the pool
	until time.Time // they wait so long, where they don't wait for ever
	waits bool      // they may wait for tokens, and not only for an answer of the warm-up's store
	paid  *charge   // of a job from a source that a warm-up knows
}

// dividedPool is a pool with dedicated sources, as the warm-up has it: a source with a plan is known
// by its address there, since that is what providers know it by. A warm-up stays what it is when its
// source gets another name.
type dividedPool struct {
	warmup.Pool
	name     string
	patience func(tenant string, tier int) time.Duration
	source   map[string]string // by key
	key      map[string]string // by source, of the dedicated ones
}

func divide(cfg *config.Config, p *config.Pool) *dividedPool {
	patience := func(tenant string, tier int) time.Duration { return p.PatienceOf(cfg.Tenant(tenant), tier) }
	d := &dividedPool{name: p.Name, patience: patience, source: make(map[string]string), key: make(map[string]string)}
	d.Shared = p.Shared
	for _, name := range p.Shared {
		d.source[name] = name
	}
	for _, s := range p.Dedicated {
		key := warmupKey(cfg, s)
		d.Dedicated = append(d.Dedicated, key)
		d.source[key], d.key[s.Name] = s.Name, key
	}
	if p.Overflow == "hold" {
		d.Overflow = warmup.Hold
	}
	return d
}

// warmupKey is the warm-up's name of a dedicated source.
func warmupKey(cfg *config.Config, d *config.Dedicated) string {
	if d.Plan == "" {
		return d.Name
	}
	return cfg.Source(d.Name).Address.String()
}

// has says whether mail that had a source before may have it again.
func (d *dividedPool) has(source string) bool {
	_, dedicated := d.key[source]
	return dedicated || slices.Contains(d.Shared, source)
}

// stickyFor is how long after its acceptance a message that a warming source has no room for waits
// for just that source, which a host that greylists has seen before, and takes no shared one.
const stickyFor = 4 * time.Hour

// mail is recipients of one message that are to take a source together.
type mail struct {
	*envelope.Message
	route *route.Route
	via   string        // the source that they had at an attempt before, "" for none
	n     int           // recipients
	turn  bool          // they have waited for tokens: it is their turn
	age   time.Duration // at which the message is given up
}

// choose picks the source for mail.
func (s *splitter) choose(pol *policy, m mail) choice {
	pool := pol.divided(m.Tenant)
	if pool == nil {
		source, ok := pol.sourceFor(m.Message, m.route, m.via, s.missing)
		return choice{source: source, none: !ok, n: m.n}
	}
	unusable := func(source string) bool { return s.missing(source) || !pol.reaches(source, m.route) }
	if m.via != "" && pool.has(m.via) && !unusable(m.via) {
		if key, dedicated := pool.key[m.via]; !dedicated {
			return choice{source: m.via, n: m.n}
		} else if c := s.again(pool, key, m); c.source != "" || s.sticks(m) {
			return c
		}
	}
	if c, ok := s.fresh(pool, m, unusable); ok {
		return c
	}
	c, ok := s.fresh(pool, m, s.missing) // delivery says what is wrong with the others
	c.none = !ok
	return c
}

// sticks reports whether mail waits for the source that it had before, and takes no other.
func (s *splitter) sticks(m mail) bool { return s.now().Before(m.Start().Add(stickyFor)) }

// again chooses the source that mail had before, as far as that has tokens.
func (s *splitter) again(pool *dividedPool, key string, m mail) choice {
	if s.warm.Charges(key) && s.suspended(m.route.Site, m.via) {
		if s.sticks(m) { // it waits for the end of that in delivery, and is charged then
			return choice{source: m.via, key: key, n: m.n}
		}
		return choice{}
	}
	n, _ := s.warm.Look(key, m.ask(false))
	c := choice{n: int(n), wait: pool.heldAt(m), own: m.via, waits: true}
	if n > 0 {
		c.source, c.key, c.out = m.via, key, int(n)
	}
	return c
}

// ask is what the warm-up is asked for mail.
func (m *mail) ask(whole bool) warmup.Ask {
	return warmup.Ask{Provider: m.route.Provider, Recipients: int64(m.n), Whole: whole, Again: m.turn}
}

// heldAt is what mail of the pool waits for.
func (d *dividedPool) heldAt(m mail) heldAt {
	return heldAt{d.name, cmp.Or(m.route.Provider, warmup.Other)}
}

// fresh chooses for who has no source yet; false when the pool has none that is usable. What may wait
// joins what waits already, until it is its turn.
func (s *splitter) fresh(pool *dividedPool, m mail, unusable func(source string) bool) (choice, bool) {
	able := pool.Pool
	if slices.ContainsFunc(able.Shared, unusable) {
		able.Shared = slices.DeleteFunc(slices.Clone(able.Shared), unusable)
	}
	holds, left := holds(&able), s.patience(pool, m)
	waits := holds || left > 0
	wait := choice{wait: pool.heldAt(m), waits: waits, until: s.now().Add(left)}
	if waits {
		able.Overflow = warmup.Hold
	}
	if waits && !m.turn && m.via == "" && s.waiting(wait.wait) > 0 && (holds || s.fits(pool, m, left)) {
		return wait, true
	}
	var usable, suspended string // the last of these
	all, shut := 0, 0
	able.Skip = func(key string) bool {
		source := pool.source[key]
		if unusable(source) {
			return true
		}
		usable = source
		all++
		if !s.warm.Charges(key) || !s.suspended(m.route.Site, source) {
			return false
		}
		suspended = source
		shut++
		return true
	}
	c := s.warm.Choose(&able, spread(m.ID), m.ask(!holds && (left <= 0 || !m.turn)))
	if !holds && c.Source == "" && !c.Asking && len(able.Shared) > 0 && !s.fits(pool, m, left) {
		c = warmup.Choice{Source: able.Shared[spread(m.ID)%uint64(len(able.Shared))], Recipients: int64(m.n)}
	}
	open := func(source string) bool { return !s.suspended(m.route.Site, source) }
	switch {
	case all+len(able.Shared) == 0:
		return choice{}, false
	case shut > 0 && shut == all && (holds || !slices.ContainsFunc(able.Shared, open)):
		return choice{source: suspended, key: pool.key[suspended], n: m.n}, true
	case c.Source == "":
		if all < len(pool.Dedicated) { // the others must not take what can't leave from them
			wait.own = usable
		}
		return wait, true
	}
	wait.source, wait.n = pool.source[c.Source], int(c.Recipients)
	if _, dedicated := pool.key[wait.source]; dedicated {
		wait.key, wait.out = c.Source, wait.n
	}
	return wait, true
}

// patience is how long mail still waits for tokens before it takes a shared source.
func (s *splitter) patience(pool *dividedPool, m mail) time.Duration {
	p := min(pool.patience(m.Tenant, int(m.Tier)), m.age/2)
	return m.Start().Add(p).Sub(s.now())
}

// fits reports whether the plans of a pool can take mail, and what waits already, within a time and today.
func (s *splitter) fits(pool *dividedPool, m mail, within time.Duration) bool {
	switch {
	case within <= 0:
		return false
	case m.turn: // it was let in, and waits out its time unless the day is full
		within = 24 * time.Hour
	}
	at := pool.heldAt(m)
	var of, all int64
	for _, key := range pool.Dedicated {
		n, total := s.warm.Left(key, at.provider, within)
		of, all = of+n, all+total
	}
	n := int64(m.n)
	return int64(s.waiting(at))+n <= of && int64(s.waiting(heldAt{pool: pool.name}))+n <= all
}

// holds says whether mail waits for which no dedicated source has room.
func holds(p *warmup.Pool) bool { return p.Overflow == warmup.Hold || len(p.Shared) == 0 }

// charge is the way of a job from a source that a warm-up knows: what of it is charged, and what the
// provider makes of it.
type charge struct {
	warm          warmer
	key, provider string
	out           int          // recipients that were let out
	begun         atomic.Int64 // of those, charged
	refused       atomic.Bool  // there were no tokens when a transaction was to begin
}

// drop notes that a job of the choice comes to nothing.
func (c *choice) drop() {
	if c.paid != nil {
		c.paid.end(nil, nil)
	}
}

// begin is Job.MayBegin.
func (c *charge) begin(recipients int) bool {
	if !c.warm.Begin(c.key, c.provider, int64(recipients)) {
		c.refused.Store(true)
		return false
	}
	c.begun.Add(int64(recipients))
	return true
}

// end notes that the job is done.
func (c *charge) end(recipients []queue.Pending, results []delivery.Result) {
	c.warm.Drop(c.key, c.provider, int64(c.out)-c.begun.Load())
	for i := range results {
		r := &results[i]
		if !r.Attempted || r.Session == "" { // what is said of a connection is heard by refused
			continue
		}
		before := find(recipients, r.Recipient)
		if x, ok := warmupOutcome(r.Reply, before.Attempts, before.Last); ok {
			c.warm.Report(c.key, c.provider, x)
		}
	}
}

// warmupOutcome says what a reply means for the health of a warm-up, false when it means nothing: what
// this relay says itself, a host's own trouble, greylisting. A deferral counts once for a recipient, at
// the first or, if that was none that counts, at the second attempt: attempts were made before, and last
// answered the last of them.
func warmupOutcome(r reply.Reply, attempts int, last reply.Reply) (warmup.Outcome, bool) {
	class := replyclass.Of(r)
	switch {
	case r.OK():
		return warmup.Delivered, true
	case class == replyclass.Ours:
		return 0, false
	case r.Permanent() && class.AboutUs():
		return warmup.PolicyRefusal, true
	case r.Permanent() && (class == replyclass.InvalidRecipient || class == replyclass.InactiveMailbox || class == replyclass.Uncategorized):
		return warmup.HardBounce, true
	case r.Permanent() || class.AboutRecipient():
		return warmup.NotAboutUs, true // a provider that looks at mailbox and message blocks nobody
	}
	counts := counted(class, attempts) && attempts < 2 && !(attempts == 1 && counted(replyclass.Of(last), 0))
	switch {
	case class.AboutUs() && class != replyclass.TooManyConnections && counts:
		return warmup.PolicyRefusal, true
	case class.AboutUs() && class != replyclass.TooManyConnections:
		return warmup.RefusedAgain, true
	}
	return warmup.Deferred, counts
}

// counted reports whether a deferral of that class, after so many attempts, counts against a warm-up. A
// first one without a reason is most often greylisting (RFC 6647).
func counted(c replyclass.Class, attempts int) bool {
	return c.AboutUs() || attempts > 0 && (c == replyclass.Unexplained || c == replyclass.Uncategorized)
}

// refusedOutcome says what it means that a host ended a connection before any transaction, false when it
// means nothing. That is about this sender, never about an address.
func refusedOutcome(r reply.Reply) (warmup.Outcome, bool) {
	switch class := replyclass.Of(r); {
	case class == replyclass.TooManyConnections:
		return warmup.Deferred, true
	case class.AboutUs():
		return warmup.PolicyRefusal, true
	}
	return 0, false
}
