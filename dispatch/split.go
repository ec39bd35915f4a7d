package dispatch

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// splitter picks the source of each job: one that the recipients had before, or one of the tenant's
// pool. Dedicated sources come first, as far as their warm-up has tokens.
type splitter struct {
	warm    *warmup.Controller
	missing func(source string) bool // on this machine
	now     func() time.Time
	// suspended reports whether mail from a source to a site can't leave, which may be so for hours.
	suspended func(site, source string) bool
	// waiting is how much mail waits for tokens.
	waiting func(parking.Key) int
}

// choice is the source that recipients take, or what they wait for.
type choice struct {
	source string // "" when all of them wait, or when there is none
	n      int    // recipients that take source; the others wait
	none   bool   // no source of the pool is there

	by      basis       // for jobs: what it follows from
	called  bool        // delivery has called for them
	expires time.Time   // they are given up then
	pace    *rules.Pace // of their campaign; nil: none
	again   bool        // beyond the pace: a retry, which waits in the tier below, behind fresh mail

	// Of a pool with dedicated sources.
	key   string      // the warm-up's name of source; "" when that is a shared one
	out   int         // recipients that the warm-up has let out
	wait  parking.Key // the tokens that those wait for that have no source
	own   string      // the only source that they wait for; "" is any of the pool
	asked string      // the warm-up's name of a source whose tokens its store is being asked for; "": of none
	until time.Time   // they wait so long, where they don't wait for ever
	waits bool        // they may wait for tokens, and not only for an answer of the warm-up's store
	first bool        // a source prefers them: they go before other mail that waits
	paid  *charge     // of a job from a source that a warm-up knows
	why   diversion   // of those that take a shared source
}

// stickyFor is how long after its acceptance a message that a warming source has no tokens for waits
// for just that source, which a host that greylists has seen before, and takes no shared one.
const stickyFor = 4 * time.Hour

// mail is recipients of one message that are to take a source together.
type mail struct {
	*envelope.Message
	route *route.Route
	via   string        // the source that they had at an attempt before, "" for none
	from  string        // the source that has called for them, "" for none
	n     int           // recipients
	turn  bool          // they have waited for tokens: it is their turn
	age   time.Duration // at which the message is given up
}

// choose picks the source for mail.
func (s *splitter) choose(pol *wiring.Policy, m mail) choice {
	pool := pol.Divided(m.Message, m.route)
	if pool == nil {
		source, ok := pol.SourceFor(m.Message, m.route, m.via, s.missing)
		return choice{source: source, none: !ok, n: m.n}
	}
	if m.via != "" && pool.Has(m.via) && !s.unusable(pol, m, m.via) && !pool.Excepts(m.via, m.Message) {
		if key, dedicated := pool.Key[m.via]; !dedicated {
			return choice{source: m.via, n: m.n}
		} else if c := s.again(pool, key, m); c.source != "" || s.sticks(m) {
			return c
		}
	}
	weight := pol.WeightsOf(pool.Of)
	if c, ok := s.fresh(pool, m, pol, weight); ok {
		return c
	}
	c, ok := s.fresh(pool, m, nil, weight) // delivery says what is wrong with the others
	c.none = !ok
	return c
}

// unusable reports whether mail can't leave from a source, by the hosts of its route, too, unless pol is nil.
func (s *splitter) unusable(pol *wiring.Policy, m mail, source string) bool {
	return s.missing(source) || pol != nil && !pol.Reaches(source, m.route)
}

// sticks reports whether mail waits for the source that it had before, and takes no other.
func (s *splitter) sticks(m mail) bool { return s.now().Before(m.Start().Add(stickyFor)) }

// again chooses the source that mail had before, as far as that has tokens.
func (s *splitter) again(pool *wiring.Pool, key string, m mail) choice {
	if s.warm.Charges(key) && s.suspended(m.route.Site, m.via) {
		if s.sticks(m) { // it waits for the end of that in delivery, and is charged then
			return choice{source: m.via, key: key, n: m.n}
		}
		return choice{}
	}
	first := pool.Prefers(m.Message)
	n, v := s.warm.Allowance(key, m.ask(false, first))
	c := choice{n: int(n), wait: m.tokensFor(pool), own: m.via, waits: true, first: first}
	if v == warmup.Asking {
		c.asked = key
	}
	if n > 0 {
		c.source, c.key, c.out = m.via, key, int(n)
	}
	return c
}

// ask is what the warm-up is asked for mail.
func (m *mail) ask(whole, preferred bool) warmup.Ask {
	return warmup.Ask{Provider: m.route.Provider, Recipients: int64(m.n), Whole: whole, Again: m.turn,
		Preferred: preferred}
}

// tokensFor is what mail waits for in a pool.
func (m *mail) tokensFor(pool *wiring.Pool) parking.Key {
	return tokens(pool.Name, cmp.Or(m.route.Provider, warmup.Other))
}

// fresh chooses for mail that has no source yet; false when the pool has none that is usable. Mail that may wait
// joins the mail that waits already, until it is its turn; it passes it where there are tokens for both. Mail that
// a shared source has called for doesn't wait anew.
func (s *splitter) fresh(pool *wiring.Pool, m mail, pol *wiring.Policy, weight weights) (choice, bool) {
	shared := s.usable(pool.Shared, pol, m, weight)
	p := warmup.Patience{Hold: pool.Hold || len(shared) == 0, Total: m.patience(pool), Turn: m.turn}
	until := m.Start().Add(p.Total)
	p.Left = until.Sub(s.now())
	wait := choice{wait: m.tokensFor(pool), waits: p.Hold || p.Left > 0, until: until, first: pool.Prefers(m.Message)}
	ask, line, n := m.ask(p.Whole(), wait.first), s.line(pool, &m), int64(m.n)
	if m.via == "" && pool.Takes(m.Message) {
		if join, behind := p.Join(line, n); join == n {
			ask.Behind = behind
		}
	}
	t := s.try(pool, m, pol, weight, &ask)
	if t.n == 0 && ask.Preferred { // those that don't prefer it
		ask.Preferred = false
		t = s.try(pool, m, pol, weight, &ask).after(t)
	}
	wait.asked = t.asked
	if ask.Behind > 0 && t.n == 0 {
		return wait, true
	}
	called := slices.Contains(shared, m.from)
	open := func(source string) bool { return !s.suspended(m.route.Site, source) }
	switch {
	case t.usable == 0 && len(shared) == 0:
		return choice{}, false
	case t.shut != nil && t.shuts == t.usable && (p.Hold || !slices.ContainsFunc(shared, open)):
		return choice{source: t.shut.Name, key: t.shut.Key, n: m.n}, true
	case t.n > 0:
		wait.source, wait.key, wait.n, wait.out = t.last.Name, t.last.Key, t.n, t.n
	case len(shared) > 0 && (t.shuts == t.usable || !p.Hold && (called || p.Stay(line, n, t.asked != "") < n)):
		if wait.source, wait.n = m.from, m.n; !called {
			wait.source, _ = wiring.Pick(shared, wiring.Spread(m.ID), weight)
		}
		wait.why = s.diversion(pool, m, p, t.shuts > 0 && t.shuts == t.usable)
	case t.usable < len(pool.Dedicated): // the others must not take what can't leave from them
		wait.own = t.last.Name
	}
	return wait, true
}

// weights are those of a pool's sources, nil when all are equal.
type weights func(source string) int

// closed reports whether a source takes no new mail.
func (w weights) closed(source string) bool { return w != nil && w(source) == 0 }

// usable gives the sources from which new mail can leave.
func (s *splitter) usable(sources []string, pol *wiring.Policy, m mail, weight weights) []string {
	not := func(source string) bool { return weight.closed(source) || s.unusable(pol, m, source) }
	if slices.ContainsFunc(sources, not) {
		return slices.DeleteFunc(slices.Clone(sources), not)
	}
	return sources
}

// tried is what came of asking a pool's dedicated sources for tokens.
type tried struct {
	n             int               // recipients that take the last one
	last, shut    *wiring.Dedicated // of those that are usable, and of those whose mail is suspended at the site
	usable, shuts int               // how many there are
	asked         string            // the warm-up's name of one whose tokens its store is being asked for; "": of none
}

// try asks dedicated sources for tokens, those that prefer the mail, or the others, each message in an
// order of its own, so that several share the mail by their weights.
func (s *splitter) try(pool *wiring.Pool, m mail, pol *wiring.Policy, weight weights, ask *warmup.Ask) (t tried) {
	n, at := uint64(len(pool.Dedicated)), wiring.Spread(m.ID)
	if weight != nil {
		at = pool.At(at, weight)
	}
	for i := range n {
		d := &pool.Dedicated[(at+i)%n]
		if d.Prefer.Has(m.Message) != ask.Preferred || d.Except.Has(m.Message) || weight.closed(d.Name) ||
			s.unusable(pol, m, d.Name) {
			continue
		}
		t.usable++
		if s.suspended(m.route.Site, d.Name) && s.warm.Charges(d.Key) {
			t.shut = d
			t.shuts++
			continue
		}
		t.last = d
		got, v := s.warm.Allowance(d.Key, *ask)
		if v == warmup.Asking {
			t.asked = d.Key
		}
		if t.n = int(got); got > 0 {
			return t
		}
	}
	return t
}

// after adds what was tried before.
func (t tried) after(before tried) tried {
	t.last, t.shut = cmp.Or(t.last, before.last), cmp.Or(t.shut, before.shut)
	t.usable, t.shuts = t.usable+before.usable, t.shuts+before.shuts
	t.asked = cmp.Or(t.asked, before.asked)
	return t
}

// patience is how long mail waits for a pool's tokens before it takes a shared source.
func (m *mail) patience(pool *wiring.Pool) time.Duration {
	return min(pool.Patience(m.Tenant, int(m.Tier)), m.age/2)
}

// poolLine is the warmup.Line of mail in a pool.
type poolLine struct {
	*splitter
	pool *wiring.Pool
	m    *mail
	at   parking.Key
}

func (s *splitter) line(pool *wiring.Pool, m *mail) *poolLine {
	return &poolLine{s, pool, m, m.tokensFor(pool)}
}

func (l *poolLine) Left(within time.Duration) (of, all int64) {
	for i := range l.pool.Dedicated {
		if d := &l.pool.Dedicated[i]; !d.Except.Has(l.m.Message) {
			n, total := l.warm.Left(d.Key, l.at.Provider, within)
			of, all = of+n, all+total
		}
	}
	return of, all
}

func (l *poolLine) Waiting() (of, all int64) {
	return int64(l.waiting(l.at)), int64(l.waiting(tokens(l.pool.Name, "")))
}
