package mta

import (
	"slices"
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
	Choose(pool *warmup.Pool, message uint64, wants []warmup.Want) warmup.Choice
	Retake(source string, wants []warmup.Want) warmup.Choice
	Charges(source string) bool
	Valid(warmup.Grant) bool
	Refund(g warmup.Grant, provider string, n int64)
	Report(ip, provider string, x warmup.Outcome)
}

// splitter picks the source of each job: one that the recipients had before, or one of the tenant's
// pool. Dedicated sources come first, as far as their warm-up has room.
type splitter struct {
	warm    warmer
	missing func(source string) bool // on this machine
	now     func() time.Time
	// heldBack says why mail from a source would have to wait, for room in delivery or for long.
	heldBack func(m *envelope.Message, rt *route.Route, source string) delivery.Held
}

// choice is the source that a job takes, or why it takes none.
type choice struct {
	source string // "" when it waits, or when there is none
	none   bool   // no source of the pool is there
	unpaid bool   // source is held back, so that no token was taken: the job may not begin, and is chosen for anew

	by basis // for jobs: what it follows from

	// Of a pool with dedicated sources.
	warm  warmup.Choice
	key   string // the warm-up's name of source; "" when that is a shared one
	wants warmup.Want
}

// waits says under which key the job waits for its warm-up, "" when it doesn't.
func (c *choice) waits() string {
	if c.source == "" && !c.none {
		return c.warm.Hold
	}
	return ""
}

// dividedPool is a pool with dedicated sources, as the warm-up has it: a source with a plan is known
// by its address there, since that is what providers know it by. A warm-up stays what it is when its
// source gets another name.
type dividedPool struct {
	warmup.Pool
	source map[string]string // by key
	key    map[string]string // by source, of the dedicated ones
}

func divide(cfg *config.Config, p *config.Pool) *dividedPool {
	d := &dividedPool{source: make(map[string]string), key: make(map[string]string)}
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

// choose picks the source for n recipients of a message along a route. via is the source that they
// had at an attempt before, "" for none.
func (s *splitter) choose(pol *policy, m *envelope.Message, rt *route.Route, via string, n int) choice {
	pool := pol.divided(m.Tenant)
	if pool == nil {
		source, ok := pol.sourceFor(m, rt, via, s.missing)
		return choice{source: source, none: !ok}
	}
	unusable := func(source string) bool { return s.missing(source) || !pol.reaches(source, rt) }
	want := warmup.Want{Provider: rt.Provider, Recipients: int64(n)}
	wants := [1]warmup.Want{want}
	if via != "" && pool.has(via) && !unusable(via) {
		key, dedicated := pool.key[via]
		if !dedicated {
			return choice{source: via}
		}
		patient := holds(&pool.Pool) || s.now().Before(m.Start().Add(stickyFor))
		if s.warm.Charges(key) && s.heldBack(m, rt, via) != delivery.NotHeld {
			if patient {
				return choice{source: via, unpaid: true}
			}
		} else if c := s.warm.Retake(key, wants[:]); c.Source != "" || patient {
			return pool.chosen(c, want)
		}
	}
	if c, ok := s.fresh(pool, m, rt, wants[:], unusable); ok {
		return c
	}
	c, ok := s.fresh(pool, m, rt, wants[:], s.missing) // delivery says what is wrong with the others
	c.none = !ok
	return c
}

// fresh chooses for who has no source yet; false when the pool has none that is usable. All is asked
// beforehand: a token that is charged and given back leaves a warm-up that counts as used, and would not
// go back a stage when idle; one for mail that waits in delivery is lost to others, or to the hour.
func (s *splitter) fresh(pool *dividedPool, m *envelope.Message, rt *route.Route, wants []warmup.Want, unusable func(source string) bool) (choice, bool) {
	able := pool.Pool
	if slices.ContainsFunc(able.Shared, unusable) {
		able.Shared = slices.DeleteFunc(slices.Clone(able.Shared), unusable)
	}
	usable, held := 0, 0
	waitsFor, least := "", delivery.NotHeld // the source that is held back for the least, as far as is known
	mustWait := func(source string) bool {
		why := s.heldBack(m, rt, source)
		if why != delivery.NotHeld && (waitsFor == "" || why < least) {
			waitsFor, least = source, why
		}
		return why != delivery.NotHeld
	}
	able.Skip = func(key string) bool {
		source := pool.source[key]
		if unusable(source) {
			return true
		}
		usable++
		if !s.warm.Charges(key) || !mustWait(source) {
			return false
		}
		held++
		return true
	}
	c := s.warm.Choose(&able, spread(m.ID), wants)
	open := func(source string) bool { return !mustWait(source) }
	switch {
	case usable+len(able.Shared) == 0:
		return choice{}, false
	case held > 0 && held == usable && (holds(&able) || !slices.ContainsFunc(able.Shared, open)):
		return choice{source: waitsFor, unpaid: true}, true
	case c.Source == "" && !c.Asking() && least == delivery.NoRoom: // the others' tokens may be an hour away
		return choice{source: waitsFor, unpaid: true}, true
	}
	return pool.chosen(c, wants[0]), true
}

// holds says whether mail waits for which no dedicated source has room.
func holds(p *warmup.Pool) bool { return p.Overflow == warmup.Hold || len(p.Shared) == 0 }

func (d *dividedPool) chosen(c warmup.Choice, want warmup.Want) choice {
	out := choice{source: d.source[c.Source], warm: c, wants: want}
	if _, dedicated := d.key[out.source]; dedicated {
		out.key = c.Source
	}
	return out
}

// valid says whether the job may still be sent on what was charged for it.
func (s *splitter) valid(c *choice) bool { return c.key == "" || s.warm.Valid(c.warm.Grant) }

// giveBack returns what was charged for n recipients of whom the provider has seen nothing.
func (s *splitter) giveBack(c *choice, n int) {
	if c.key != "" && n > 0 {
		s.warm.Refund(c.warm.Grant, c.wants.Provider, int64(n))
	}
}

// tell reports what the provider made of a job's recipients, and returns what was charged for those
// of whom it has seen nothing.
func (s *splitter) tell(c *choice, recipients []queue.Pending, results []delivery.Result) {
	if c.key == "" {
		return
	}
	unseen := 0
	for i := range results {
		r := &results[i]
		if !r.Attempted || r.Session == "" { // what is said of a connection is heard by refused
			unseen++
			continue
		}
		before := find(recipients, r.Recipient)
		if x, ok := warmupOutcome(r.Reply, before.Attempts, before.Last); ok {
			s.warm.Report(c.key, c.wants.Provider, x)
		}
	}
	s.giveBack(c, unseen)
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
