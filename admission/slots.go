package admission

import (
	"math"
	"time"
)

// slots are what is scarce: so many submissions at a time may be made durable. Those who wait are served by priority;
// within a level tenants take turns, each with its oldest. Its methods are called one at a time.
type slots struct {
	limit   float64
	longest int // how many may wait; 0: three times the limit
	busy    int
	waiting int
	lines   [Levels]line
	set     levels // with somebody in their lines
	turns   int    // slots that went by priority since one went by age

	in, out int       // since the last look
	done    int       // slots given back since then
	area    float64   // slot-seconds in use since the last look
	changed time.Time // when area was last brought up to date
}

// waiter is somebody in a line.
type waiter struct {
	priority   Priority
	tenant     string
	prev, next *waiter
	queued     bool
	kept       bool           // nobody takes its place
	since      time.Time      // of one that is kept
	ready      func(got bool) // called at most once: with a slot, or displaced
}

// line is the waiters of a level.
type line struct {
	turns   []*turns // the next one first
	of      map[string]*turns
	waiting int
	tenants int // with somebody waiting
}

// turns are a tenant's waiters, oldest first.
type turns struct {
	tenant      string
	first, last *waiter
	n           int
}

// bound is how many may wait: more could not be served in time.
func (s *slots) bound() int {
	if s.longest > 0 {
		return s.longest
	}
	return 3 * s.whole()
}

func (s *slots) whole() int { return max(int(math.Round(s.limit)), 1) }

// count brings the area up to date, before busy changes.
func (s *slots) count(now time.Time) {
	if d := now.Sub(s.changed); d > 0 {
		s.area += float64(s.busy) * d.Seconds()
	}
	s.changed = now // also when the clock was set back
}

// free reports whether the next one gets a slot.
func (s *slots) free() bool { return s.busy < s.whole() && s.waiting == 0 }

// spare reports whether somebody whom nobody else should delay gets a slot: a quarter more than there are.
func (s *slots) spare() bool { return s.busy < s.whole()+(s.whole()+3)/4 }

// enter takes a free slot (w may be nil then), or else a place in line for w. It reports false when
// the line is full of those who are as important or more.
func (s *slots) enter(w *waiter, now time.Time) bool {
	s.in++
	if s.free() {
		s.take(now)
		return true
	}
	if s.full(w.priority, w.tenant) {
		return false
	}
	if s.waiting >= s.bound() {
		worst, _ := s.set.last()
		displaced := s.lines[worst].longest().last // it has waited least
		if displaced.kept {
			return false
		}
		s.remove(displaced)
		displaced.ready(false)
	}
	s.append(w)
	return true
}

// full reports whether enter would find no place: all wait that may, and none of them is less important, or of a tenant
// that has more than its part of the line.
func (s *slots) full(p Priority, tenant string) bool {
	worst, _ := s.set.last()
	if s.waiting < s.bound() || worst > p {
		return false
	}
	l := &s.lines[worst]
	return worst < p || l.count(tenant)*l.tenants >= l.waiting
}

// join puts w in line, however long the line is, and to stay.
func (s *slots) join(w *waiter, now time.Time) {
	s.in++
	w.kept, w.since = true, now
	s.append(w)
}

func (s *slots) take(now time.Time) {
	s.count(now)
	s.busy++
	s.out++
}

// leave gives back a slot.
func (s *slots) leave(now time.Time) {
	s.count(now)
	s.busy--
	s.done++
	s.serve(now)
}

// resize changes how many slots there are.
func (s *slots) resize(limit float64, now time.Time) {
	s.limit = limit
	s.serve(now)
}

// serve gives free slots to those who wait.
func (s *slots) serve(now time.Time) {
	for s.busy < s.whole() {
		w := s.next(now)
		if w == nil {
			return
		}
		s.remove(w)
		s.take(now)
		w.ready(true)
	}
}

// Those who are complete and have waited for overdue get one slot in ageShare, whatever their priority:
// while more important ones keep coming they would wait until their clients give up.
const (
	overdue  = 2 * time.Second
	ageShare = 4
)

// next returns who gets the next slot, nil when nobody waits.
func (s *slots) next(now time.Time) *waiter {
	best, ok := s.set.first()
	if !ok {
		return nil
	}
	if s.turns++; s.turns >= ageShare {
		if w := s.oldest(); w != nil && now.Sub(w.since) >= overdue {
			s.turns = 0
			return w
		}
	}
	return s.lines[best].next()
}

// oldest returns who has waited longest of those who are kept, nil when there is none.
func (s *slots) oldest() (oldest *waiter) {
	for rest := s.set; ; {
		p, ok := rest.first()
		if !ok {
			return oldest
		}
		rest.remove(p)
		for _, t := range s.lines[p].turns {
			if w := t.first; w != nil && w.kept && (oldest == nil || w.since.Before(oldest.since)) {
				oldest = w
			}
		}
	}
}

// abandon takes a waiter out of its line, and reports whether it was still there.
func (s *slots) abandon(w *waiter) bool {
	if !w.queued {
		return false
	}
	s.remove(w)
	return true
}

func (s *slots) append(w *waiter) {
	s.set.add(w.priority)
	s.lines[w.priority].append(w)
	s.waiting++
}

func (s *slots) remove(w *waiter) {
	l := &s.lines[w.priority]
	if l.remove(w); l.waiting == 0 {
		s.set.remove(w.priority)
	}
	s.waiting--
}

// next returns the oldest waiter of the tenant whose turn it is. Somebody waits.
func (l *line) next() *waiter {
	for {
		t := l.turns[0]
		copy(l.turns, l.turns[1:])
		l.turns[len(l.turns)-1] = t
		if t.n > 0 {
			return t.first
		}
		l.turns = l.turns[:len(l.turns)-1]
		delete(l.of, t.tenant)
	}
}

// longest returns the turns of the tenant that has most waiters.
func (l *line) longest() (longest *turns) {
	for _, t := range l.turns {
		if longest == nil || t.n > longest.n {
			longest = t
		}
	}
	return longest
}

// count returns how many of a tenant wait.
func (l *line) count(tenant string) int {
	if t := l.of[tenant]; t != nil {
		return t.n
	}
	return 0
}

func (l *line) append(w *waiter) {
	t := l.of[w.tenant]
	if t == nil {
		if t = (&turns{tenant: w.tenant}); l.of == nil {
			l.of = make(map[string]*turns)
		}
		l.of[w.tenant], l.turns = t, append(l.turns, t)
	}
	w.queued, w.prev, w.next = true, t.last, nil
	if t.last != nil {
		t.last.next = w
	} else {
		t.first = w
		l.tenants++
	}
	t.last = w
	t.n++
	l.waiting++
}

func (l *line) remove(w *waiter) {
	t := l.of[w.tenant]
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		t.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		t.last = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
	if t.n--; t.n == 0 {
		l.tenants--
	}
	l.waiting--
}

// look returns what was seen since the last look, which was dt ago, and begins anew.
func (s *slots) look(now time.Time, dt time.Duration) Load {
	s.count(now)
	l := Load{
		In: s.in, Out: s.out, Done: s.done, Busy: s.area / dt.Seconds(),
		Waiting: s.waiting, Free: max(s.whole()-s.busy, 0), Limit: float64(s.whole()),
	}
	s.in, s.out, s.done, s.area = 0, 0, 0, 0
	return l
}
