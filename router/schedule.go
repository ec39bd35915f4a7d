package router

import (
	"container/list"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/minheap"
)

// Allowance is Tony Finch's rule for when a message may have one more worker: while it has few,
// or while many are free. With ten times the free ones, a big envelope can have 91 of 100
// workers when it is alone, two can have 48 each, three about 32.
type Allowance struct {
	MaxMessageConcurrency int // workers that a message may have however few are free
	ScaleMaxConcurrency   int // and this many times the free ones
}

// Permits reports whether a message with so many workers may have another when so many are free.
func (a Allowance) Permits(running, free int) bool {
	return free > 0 && (running < a.MaxMessageConcurrency || running < a.ScaleMaxConcurrency*free)
}

// guard keeps the oldest message from waiting for ever while there is always somebody with
// less: once it has waited so long, a share of the workers serves the oldest first.
type guard struct {
	age     time.Duration // 0 is not a guard
	workers int           // how many may be under the guard at a time
}

// schedule says whose job a free worker takes. Tenants take turns (deficit round robin), so that
// nobody's mail waits behind all of somebody else's. Of a tenant's tiers the first goes first, with a
// share for each of the others. The allowance decides whether, least-running decides who: of a tier's
// messages the one with the fewest workers, the oldest among equals, so that a message with nothing running comes
// before all that have something. A decision costs O(log messages), however many jobs each has; tenants whose messages
// may have no more workers are looked at besides, and since each of those has some, there are no more of them than
// workers.
//
// It is a pure structure: no clock, no lock, no goroutine.
type schedule struct {
	allowance Allowance
	guard     guard
	guarded   int // workers under the guard

	seq     uint64
	waiting int // messages with waiting jobs
	tenants map[string]*tenant
	round   fair.Ring[*tenant] // those with waiting jobs
	arrival *list.List         // messages with waiting jobs, as *entry, oldest first
}

// tenant is those of a tenant's messages that have waiting jobs.
type tenant struct {
	fair.Member[*tenant]
	name    string
	turns   envelope.TierTurns
	waiting envelope.TierSet                         // those that have messages
	fewest  [envelope.TierCount]minheap.Heap[*entry] // by tier, fewest running first
}

func newTenant(name string) *tenant {
	t := &tenant{name: name}
	for i := range t.fewest {
		t.fewest[i] = minheap.New(before, func(e *entry, i int) { e.index = i })
	}
	t.Value = t
	return t
}

// next is the message whose turn it is of those that may have another worker; nil when there is none.
// Of a tier none may when the one with the fewest may not.
func (t *tenant) next(may func(*entry) bool) *entry {
	for left := t.waiting; left != 0; {
		tier := t.turns.Next(left)
		if e := t.fewest[tier].Top(); may(e) {
			return e
		}
		left = left.Without(tier)
	}
	return nil
}

// entry is a message with jobs: domains that wait to be looked up.
type entry struct {
	request Request
	waiting []string // of request.Domains, those not begun yet
	running int      // workers it has
	// most is how many workers it may have in any case; 0 leaves that to the allowance. A message
	// that has as many stays out of the schedule until one is done.
	most    int
	arrived time.Time
	seq     uint64 // grows with arrival
	tenant  *tenant
	index   int           // in its tier's heap; -1 when it is not there
	place   *list.Element // in arrival; nil when it is not there
	later   *entry        // its jobs that wait among the patient; nil when there were none
}

func (e *entry) tier() uint8 { return envelope.TierOf(e.request.Tier) }

// job is one domain of a message, being looked up by a worker.
type job struct {
	entry    *entry
	domain   string
	guarded  bool
	schedule *schedule // that gave it
	patient  bool      // its worker is one of the patient
}

func newSchedule(a Allowance, g guard) *schedule {
	return &schedule{allowance: a, guard: g, tenants: make(map[string]*tenant), arrival: list.New()}
}

// add takes a message in. It must have jobs waiting.
func (s *schedule) add(e *entry) {
	s.seq++
	e.seq = s.seq
	e.place = s.arrival.PushBack(e)
	s.enter(e)
}

// enter puts a message where next finds it. Its tenant joins the round with it.
func (s *schedule) enter(e *entry) {
	t := s.tenants[e.request.Tenant]
	if t == nil {
		t = newTenant(e.request.Tenant)
		s.tenants[t.name] = t
		s.round.Join(&t.Member)
	}
	e.tenant, t.Weight = t, e.request.Weight
	t.fewest[e.tier()].Push(e)
	t.waiting = t.waiting.With(e.tier())
	s.waiting++
}

// leave takes a message out. A tenant leaves the round with the last.
func (s *schedule) leave(e *entry) {
	t := e.tenant
	h := &t.fewest[e.tier()]
	if h.Remove(e.index); h.Len() == 0 {
		t.waiting = t.waiting.Without(e.tier())
	}
	s.waiting--
	if t.waiting == 0 {
		s.round.Leave(&t.Member)
		delete(s.tenants, t.name)
	}
}

// next takes the job for one of the free workers; false is nothing to do, or nobody who may.
func (s *schedule) next(now time.Time, free int) (job, bool) {
	if free <= 0 || s.waiting == 0 {
		return job{}, false
	}
	if e := s.longOverdue(now); e != nil && s.allowance.Permits(e.running, free) {
		s.guarded++
		return s.give(e, true), true
	}
	var e *entry
	may := func(e *entry) bool { return s.allowance.Permits(e.running, free) }
	if s.round.Pick(func(t *tenant) bool { e = t.next(may); return e != nil }) == nil {
		return job{}, false
	}
	return s.give(e, false), true
}

// longOverdue gives the message whose turn it is by the guard; nil when there is none.
func (s *schedule) longOverdue(now time.Time) *entry {
	if s.guard.age <= 0 || s.guarded >= s.guard.workers || s.arrival.Len() == 0 {
		return nil
	}
	if e := s.arrival.Front().Value.(*entry); now.Sub(e.arrived) >= s.guard.age {
		return e
	}
	return nil
}

// give takes a message's first job out.
func (s *schedule) give(e *entry, guarded bool) job {
	j := job{entry: e, domain: e.waiting[0], guarded: guarded, schedule: s}
	e.waiting = e.waiting[1:]
	e.running++
	s.round.Took(&e.tenant.Member)
	e.tenant.turns.Took(e.tier(), e.tenant.waiting)
	switch {
	case len(e.waiting) == 0:
		s.remove(e)
	case e.most > 0 && e.running >= e.most:
		s.leave(e)
	default:
		e.tenant.fewest[e.tier()].Fix(e.index)
	}
	return j
}

// done gives a job's worker back.
func (s *schedule) done(j job) {
	if j.guarded {
		s.guarded--
	}
	e := j.entry
	e.running--
	switch {
	case e.index >= 0:
		e.tenant.fewest[e.tier()].Fix(e.index)
	case len(e.waiting) > 0 && e.running < e.most:
		s.enter(e)
	}
}

// drain takes all waiting jobs out.
func (s *schedule) drain() []*entry {
	var out []*entry
	for s.arrival.Len() > 0 {
		e := s.arrival.Front().Value.(*entry)
		s.remove(e)
		out = append(out, e)
	}
	return out
}

// messages counts those with waiting jobs.
func (s *schedule) messages() int { return s.waiting }

func (s *schedule) remove(e *entry) {
	if e.index >= 0 {
		s.leave(e)
	}
	if e.place != nil {
		s.arrival.Remove(e.place)
		e.place = nil
	}
}

// before returns whose turn it is: who has the fewest running, the oldest among equals.
func before(a, b *entry) bool {
	if a.running != b.running {
		return a.running < b.running
	}
	return a.seq < b.seq
}
