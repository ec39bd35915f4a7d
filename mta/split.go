package mta

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/replyclass"
	"example.org/mta/internal/route"
	"example.org/mta/mta/config"
	"example.org/mta/queue"
	"example.org/mta/warmup"
)

// splitter picks the source of each job: one that the recipients had before, or one of the tenant's
// pool. Dedicated sources come first, as far as their warm-up has room.
type splitter struct {
	warm    *warmup.Controller
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
	first bool      // a source prefers them: they go before other mail that waits
	paid  *charge   // of a job from a source that a warm-up knows
	why   diversion // of those that take a shared source
}

// dividedPool is a pool with dedicated sources, as the warm-up has it: a source with a plan is known
// by its address there, since that is what providers know it by. A warm-up stays what it is when its
// source gets another name.
type dividedPool struct {
	name      string
	shared    []string
	dedicated []dedicated
	hold      bool // what has no room waits
	selective bool // a dedicated source prefers or excepts some mail
	patience  func(tenant string, tier int) time.Duration
	key       map[string]string // by source, of the dedicated ones
}

// dedicated is a source of a pool that is its own.
type dedicated struct {
	name, key      string
	prefer, except selectors
}

func divide(cfg *config.Config, p *config.Pool) *dividedPool {
	patience := func(tenant string, tier int) time.Duration { return p.PatienceOf(cfg.Tenant(tenant), tier) }
	d := &dividedPool{name: p.Name, shared: p.Shared, hold: p.Overflow == "hold", patience: patience, key: make(map[string]string)}
	for _, s := range p.Dedicated {
		x := dedicated{s.Name, warmupKey(cfg, s), newSelectors(s.Prefer), newSelectors(s.Except)}
		d.dedicated = append(d.dedicated, x)
		d.selective = d.selective || len(x.prefer)+len(x.except) > 0
		d.key[x.name] = x.key
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
	return dedicated || slices.Contains(d.shared, source)
}

// excepts reports whether mail doesn't take one of the dedicated sources.
func (d *dividedPool) excepts(source string, m *envelope.Message) bool {
	return d.selective && slices.ContainsFunc(d.dedicated, func(x dedicated) bool { return x.name == source && x.except.has(m) })
}

// takes reports whether any of the dedicated sources takes mail.
func (d *dividedPool) takes(m *envelope.Message) bool {
	return !d.selective || slices.ContainsFunc(d.dedicated, func(x dedicated) bool { return !x.except.has(m) })
}

// prefers reports whether one of the dedicated sources prefers mail.
func (d *dividedPool) prefers(m *envelope.Message) bool {
	return d.selective && slices.ContainsFunc(d.dedicated, func(x dedicated) bool { return x.prefer.has(m) })
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
	if m.via != "" && pool.has(m.via) && !s.unusable(pol, m, m.via) && !pool.excepts(m.via, m.Message) {
		if key, dedicated := pool.key[m.via]; !dedicated {
			return choice{source: m.via, n: m.n}
		} else if c := s.again(pool, key, m); c.source != "" || s.sticks(m) {
			return c
		}
	}
	if c, ok := s.fresh(pool, m, pol); ok {
		return c
	}
	c, ok := s.fresh(pool, m, nil) // delivery says what is wrong with the others
	c.none = !ok
	return c
}

// unusable reports whether mail can't leave from a source, by the hosts of its route, too, unless pol is nil.
func (s *splitter) unusable(pol *policy, m mail, source string) bool {
	return s.missing(source) || pol != nil && !pol.reaches(source, m.route)
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
	first := pool.prefers(m.Message)
	n, _ := s.warm.Look(key, m.ask(false, first))
	c := choice{n: int(n), wait: pool.heldAt(m), own: m.via, waits: true, first: first}
	if n > 0 {
		c.source, c.key, c.out = m.via, key, int(n)
	}
	return c
}

// ask is what the warm-up is asked for mail.
func (m *mail) ask(whole, preferred bool) warmup.Ask {
	return warmup.Ask{Provider: m.route.Provider, Recipients: int64(m.n), Whole: whole, Again: m.turn, Preferred: preferred}
}

// heldAt is what mail of the pool waits for.
func (d *dividedPool) heldAt(m mail) heldAt {
	return heldAt{d.name, cmp.Or(m.route.Provider, warmup.Other)}
}

// fresh chooses for who has no source yet; false when the pool has none that is usable. What may wait
// joins what waits already, until it is its turn; it passes it where there are tokens for both.
func (s *splitter) fresh(pool *dividedPool, m mail, pol *policy) (choice, bool) {
	shared := s.usable(pool.shared, pol, m)
	holds, until := pool.hold || len(shared) == 0, pool.waitsUntil(m)
	left := until.Sub(s.now())
	wait := choice{wait: pool.heldAt(m), waits: holds || left > 0, until: until, first: pool.prefers(m.Message)}
	ask := m.ask(!holds && (left <= 0 || !m.turn), wait.first)
	if wait.waits && !m.turn && m.via == "" && pool.takes(m.Message) {
		if n := s.waiting(wait.wait); n > 0 && (holds || s.fits(pool, m, left)) {
			ask.Behind = int64(n)
		}
	}
	t := s.try(pool, m, pol, &ask)
	if t.n == 0 && ask.Preferred { // those that don't prefer it
		ask.Preferred = false
		t = s.try(pool, m, pol, &ask).after(t)
	}
	if ask.Behind > 0 && t.n == 0 {
		return wait, true
	}
	open := func(source string) bool { return !s.suspended(m.route.Site, source) }
	switch {
	case t.usable == 0 && len(shared) == 0:
		return choice{}, false
	case t.shut != nil && t.shuts == t.usable && (holds || !slices.ContainsFunc(shared, open)):
		return choice{source: t.shut.name, key: t.shut.key, n: m.n}, true
	case t.n > 0:
		wait.source, wait.key, wait.n, wait.out = t.last.name, t.last.key, t.n, t.n
	case len(shared) > 0 && (t.shuts == t.usable || !holds && !t.asking && !s.fits(pool, m, left)):
		wait.source, wait.n = shared[spread(m.ID)%uint64(len(shared))], m.n
		wait.why = s.diversion(pool, m, left, t.shuts > 0 && t.shuts == t.usable)
	case t.usable < len(pool.dedicated): // the others must not take what can't leave from them
		wait.own = t.last.name
	}
	return wait, true
}

// usable gives the sources from which mail can leave.
func (s *splitter) usable(sources []string, pol *policy, m mail) []string {
	for _, source := range sources {
		if s.unusable(pol, m, source) {
			return slices.DeleteFunc(slices.Clone(sources), func(source string) bool { return s.unusable(pol, m, source) })
		}
	}
	return sources
}

// tried is what came of asking a pool's dedicated sources for tokens.
type tried struct {
	n             int        // recipients that take the last one
	last, shut    *dedicated // of those that are usable, and of those whose mail is suspended at the site
	usable, shuts int        // how many there are
	asking        bool       // the warm-up's store is being asked
}

// try asks dedicated sources for tokens, those that prefer the mail, or the others, each message in an
// order of its own, so that several share the mail.
func (s *splitter) try(pool *dividedPool, m mail, pol *policy, ask *warmup.Ask) (t tried) {
	n := uint64(len(pool.dedicated))
	for i := range n {
		d := &pool.dedicated[(spread(m.ID)+i)%n]
		if d.prefer.has(m.Message) != ask.Preferred || d.except.has(m.Message) || s.unusable(pol, m, d.name) {
			continue
		}
		t.usable++
		if s.suspended(m.route.Site, d.name) && s.warm.Charges(d.key) {
			t.shut = d
			t.shuts++
			continue
		}
		t.last = d
		got, v := s.warm.Look(d.key, *ask)
		if t.n = int(got); got > 0 {
			return t
		}
		t.asking = t.asking || v == warmup.Asking
	}
	return t
}

// after adds what was tried before.
func (t tried) after(before tried) tried {
	t.last, t.shut = cmp.Or(t.last, before.last), cmp.Or(t.shut, before.shut)
	t.usable, t.shuts = t.usable+before.usable, t.shuts+before.shuts
	t.asking = t.asking || before.asking
	return t
}

// waitsUntil is until when mail waits for tokens before it takes a shared source.
func (d *dividedPool) waitsUntil(m mail) time.Time {
	return m.Start().Add(min(d.patience(m.Tenant, int(m.Tier)), m.age/2))
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
	for i := range pool.dedicated {
		if d := &pool.dedicated[i]; !d.except.has(m.Message) {
			n, total := s.warm.Left(d.key, at.provider, within)
			of, all = of+n, all+total
		}
	}
	n := int64(m.n)
	return int64(s.waiting(at))+n <= of && int64(s.waiting(heldAt{pool: pool.name}))+n <= all
}

// charge is the way of a job from a source that a warm-up knows: what of it is charged, and what the
// provider makes of it.
type charge struct {
	warm          *warmup.Controller
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
