package share

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/cluster/term"
)

// Intervals of a holder.
const (
	answerWithin = 3 * time.Second // or it asks again
	settle       = time.Second     // between two asks, unless the owner wants one
	closing      = time.Second     // before a grant ends its connections begin to
)

// Holder is what one node has of the limits of one shard.
type Holder struct {
	term    term.Term
	order   term.Order // of the newest ask
	sent    time.Duration
	waiting bool          // for its answer
	lacking time.Duration // since when, if so
	until   time.Duration // the grants' end
	ended   int           // 1: those of connections have, 2: all have
	asked   time.Duration // the newest answered ask
	changed bool
	nudged  bool
	moved   bool     // since Moved was asked last
	stakes  []*stake // by name

	divisor int64         // of this node's reserve, 0: none
	from    time.Duration // when it may be used
	drawn   bool          // some of it is in use
}

// stake is a node's part of a limit.
type stake struct {
	Limit        // as this node has it
	by     Limit // as it was granted, the smallest of all nodes
	units  int64 // at most this many may be used
	target int64 // of these, at most so many from now on
	open   int64 // connections
	want   int64
	bucket bucket
	given  float64 // content of units that were given up

	reserved bool // units are of the reserve, and not granted
}

// NewHolder makes the holder of a process that has nothing. The process's first ask has the number after o.
func NewHolder(t term.Term, o term.Order) *Holder { return &Holder{term: t, order: o} }

func (h *Holder) find(name string) (int, bool) {
	return slices.BinarySearchFunc(h.stakes, name, func(s *stake, n string) int { return cmp.Compare(s.Name, n) })
}

// stake gives that of a limit, nil if this node has and wants none of it.
func (h *Holder) stake(name string) *stake {
	if i, ok := h.find(name); ok {
		return h.stakes[i]
	}
	return nil
}

// Want sets how a node has a limit now, and how many of its units it could use. A name can change between connections
// and a rate when nothing of it is held any more; until then, and when the limit is out of bounds, the node has less or
// nothing of it, and gets an error.
func (h *Holder) Want(l Limit, units int64, clock func() time.Duration) error {
	i, ok := h.find(l.Name)
	if !ok {
		if units <= 0 {
			return nil
		}
		if len(h.stakes) == most {
			return fmt.Errorf("limit %q is one of more than %d that fall to one owner", l.Name, most)
		}
		h.stakes = slices.Insert(h.stakes, i, &stake{Limit: Limit{Name: l.Name}})
	}
	s := h.stakes[i]
	var err error
	if s.Limit != l {
		if err = h.define(s, &l, clock); err != nil {
			units = 0
		}
	}
	if units = max(0, min(units, s.Units())); units != s.want {
		s.want, h.changed = units, true
		h.nudged = h.nudged || units == 0 && s.units > 0 // others may wait for it
	}
	return err
}

// define takes another definition.
func (h *Holder) define(s *stake, l *Limit, clock func() time.Duration) error {
	if err := l.check(); err != nil {
		return err
	}
	if (s.Connections > 0) != (l.Connections > 0) && s.units+s.open > 0 {
		return fmt.Errorf("limit %q becomes a rate, or no rate any more, while it is in use", l.Name)
	}
	s.fill(clock(), h.term.Drift)
	s.Limit, h.changed = *l, true
	if s.reserved {
		s.units, s.by = l.reserve(h.divisor), *l
		s.target, s.reserved = s.units, s.units > 0
	}
	return nil
}

// Reserve sets the part of each limit, one in divisor, that this node may use from a moment on, where it has no grant;
// 0: none. What it has used of an earlier one ends.
func (h *Holder) Reserve(now time.Duration, divisor int64, from time.Duration) {
	same := divisor == h.divisor && divisor > 0 && now >= from
	if h.divisor, h.from = divisor, from; same || !h.drawn {
		return
	}
	h.drawn, h.changed, h.moved = false, true, true
	for _, s := range h.stakes {
		if s.reserved {
			s.forgo()
		}
	}
}

// forgo ends the use of a reserve.
func (s *stake) forgo() { s.units, s.target, s.reserved = 0, 0, false }

// draw begins to use the reserve of a limit, if it is time.
func (h *Holder) draw(now time.Duration, s *stake) {
	if h.divisor == 0 || now < h.from || s.units > 0 || s.want+s.open == 0 {
		return
	}
	if units := s.reserve(h.divisor); units > 0 {
		s.units, s.target, s.by, s.bucket, s.reserved = units, units, s.Limit, bucket{at: now}, true
		h.drawn, h.moved = true, true
	}
}

// using is the stake of a limit that is about to be used, nil without one.
func (h *Holder) using(now time.Duration, name string) *stake {
	h.expire(now)
	s := h.stake(name)
	if s != nil {
		h.draw(now, s)
	}
	return s
}

// uses is the definition by which the units let something pass.
func (s *stake) uses() Limit { return s.smaller(&s.by) }

func (s *stake) fill(now time.Duration, drift float64) {
	l := s.uses()
	s.bucket.fill(now, &l, s.units, drift)
}

// allowed is how many connections there may be.
func (s *stake) allowed() int64 { return min(s.target, s.Connections) }

// Lacks reports whether it is time for an ask for a limit of which the node wants some and has nothing.
func (h *Holder) Lacks(now time.Duration, name string) bool {
	s := h.stake(name)
	return s != nil && s.want > 0 && s.units == 0 && h.Due(now)
}

// Moved reports whether what the node may use has changed since Moved was called last, but for what has flowed.
func (h *Holder) Moved() bool {
	moved := h.moved
	h.moved = false
	return moved
}

// Leave wants nothing any more, and reports whether there is something that an ask would give up.
func (h *Holder) Leave() (more bool) {
	for _, s := range h.stakes {
		s.want = 0
		more = more || s.units > 0 && !s.reserved
	}
	return more
}

// expire ends what was granted. It comes before any use, as the process may have been stopped since the last.
func (h *Holder) expire(now time.Duration) {
	ended := 0
	switch {
	case now >= h.until:
		ended = 2
	case now >= h.until-closing:
		ended = 1
	}
	if ended <= h.ended {
		return
	}
	h.ended = ended
	for _, s := range h.stakes {
		if s.units > 0 && !s.reserved && (s.Connections > 0 || ended == 2) {
			s.units, s.target, s.given, h.changed, h.moved = 0, 0, 0, true, true
		}
	}
}

// Spend takes up to n events of a rate that happen now, and returns how many.
func (h *Holder) Spend(now time.Duration, name string, n int64) int64 {
	s := h.using(now, name)
	if s == nil || s.units == 0 || n <= 0 {
		return 0
	}
	s.fill(now, h.term.Drift)
	n = min(n, int64(s.bucket.content+grain))
	s.bucket.content -= float64(n)
	return n
}

// Return gives back events that have been spent and did not happen.
func (h *Holder) Return(now time.Duration, name string, n int64) {
	h.expire(now)
	if s := h.stake(name); s != nil && s.units > 0 {
		s.bucket.content += float64(n)
		s.fill(now, h.term.Drift) // not beyond its depth
	}
}

// Left is how many events of a rate may happen now, and which part of the rate the node has, from 0 to 1.
func (h *Holder) Left(now time.Duration, name string) (events int64, part float64) {
	s := h.using(now, name)
	if s == nil || s.units == 0 {
		return 0, 0
	}
	s.fill(now, h.term.Drift)
	return int64(s.bucket.content + grain), float64(s.units) / whole
}

// Next is how long it takes until a node has an event of a rate, and how many it can save up; 0, 0 without a share.
func (h *Holder) Next(now time.Duration, name string) (time.Duration, float64) {
	s := h.using(now, name)
	if s == nil || now >= h.until && !s.reserved {
		return 0, 0
	}
	l := s.uses()
	depth := l.depth(s.units)
	if depth < 1-grain {
		return 0, 0
	}
	lack := max(0, 1-s.bucket.content) / l.flow(s.units, h.term.Drift)
	return max(0, s.bucket.at-now+time.Duration(lack*float64(time.Second))+1), depth
}

// Allowed is how many connections there may be.
func (h *Holder) Allowed(now time.Duration, name string) int64 {
	if s := h.using(now, name); s != nil {
		return s.allowed()
	}
	return 0
}

// Open notes up to n new connections, and returns how many there may be.
func (h *Holder) Open(now time.Duration, name string, n int64) int64 {
	s := h.using(now, name)
	if s == nil {
		return 0
	}
	n = max(0, min(n, s.allowed()-s.open))
	s.open += n
	return n
}

// Occupy notes how many units of a lasting limit are in use from now on, if they are granted, or forced. It reports
// whether it has.
func (h *Holder) Occupy(now time.Duration, name string, units int64, forced bool) bool {
	s := h.using(now, name)
	if s == nil || units > s.allowed() && !forced {
		return false
	}
	h.changed = h.changed || units != s.open && max(units, s.open) > s.target
	s.open = units
	return true
}

// Over is how many open connections must end: within closing when the grant has ended, and otherwise as soon as their
// transactions do.
func (h *Holder) Over(now time.Duration, name string) (n int64, ended bool) {
	s := h.using(now, name)
	if s == nil {
		return 0, true
	}
	return max(0, s.open-s.allowed()), s.units == 0
}

// Close notes that n connections have ended.
func (h *Holder) Close(name string, n int64) {
	if s := h.stake(name); s != nil {
		s.open -= n
		h.changed = h.changed || s.units > s.target
	}
}

// Nudge has the holder ask at once.
func (h *Holder) Nudge() { h.nudged = true }

// Due reports whether it is time for an ask.
func (h *Holder) Due(now time.Duration) bool {
	h.expire(now)
	if h.divisor > 0 && now >= h.from {
		for _, s := range h.stakes {
			h.draw(now, s)
		}
	}
	switch {
	case h.waiting:
		return now-h.sent >= answerWithin
	case h.nudged:
		return true
	case h.changed:
		return now-h.sent >= settle
	}
	return h.busy() && now-h.asked >= h.term.Length/20
}

func (h *Holder) busy() bool {
	return slices.ContainsFunc(h.stakes, func(s *stake) bool { return s.units > 0 || s.want > 0 })
}

// Ask makes an ask, the newest from now on. It gives up what is held and not wanted.
func (h *Holder) Ask(now time.Duration) (term.Order, []Item) {
	h.expire(now)
	h.order.Seq++
	if !h.waiting {
		h.lacking = now
	}
	h.sent, h.waiting, h.changed, h.nudged = now, true, false, false
	var items []Item
	h.stakes = slices.DeleteFunc(h.stakes, func(s *stake) bool {
		keep := s.want
		if keep > 0 {
			l := s.uses()
			keep = max(l.worth(keep, &s.Limit), l.Least())
		}
		var held, used int64
		if !s.reserved {
			s.lower(now, h.term.Drift, max(min(keep, s.target), s.open))
			held = s.units
		}
		if s.Lasting && s.open > held {
			used = s.open
		}
		if held > 0 || s.want > 0 || s.given > 0 || used > 0 {
			items = append(items, Item{s.Limit, held, s.want, s.given, used})
			s.given = 0
			return false
		}
		return s.open == 0
	})
	return h.order, items
}

// lower gives up all units beyond n, with their content.
func (s *stake) lower(now time.Duration, drift float64, n int64) {
	if n >= s.units {
		return
	}
	s.fill(now, drift)
	s.given += s.bucket.part(s.units-n, s.units)
	s.units, s.target = n, min(n, s.target)
}

// Unanswered is for how long this node has asked, and has no answer.
func (h *Holder) Unanswered(now time.Duration) time.Duration {
	if !h.waiting {
		return 0
	}
	return now - h.lacking
}

// Awaits reports whether the answer to an ask would count.
func (h *Holder) Awaits(o term.Order) bool { return h.waiting && o == h.order }

// Answer takes in the answer to an ask, and reports whether it counts: only that of the newest ask does.
func (h *Holder) Answer(now time.Duration, o term.Order, grants []Grant) bool {
	h.expire(now)
	if !h.Awaits(o) {
		return false
	}
	h.waiting, h.asked, h.until, h.ended = false, h.sent, h.sent+h.term.Holds(), 0
	for _, g := range grants {
		s := h.stake(g.Name)
		if s == nil || g.check() != nil || (s.Connections > 0) != (g.Connections > 0) || g.Units < 0 ||
			g.Units > g.Limit.Units() || !(g.Content >= 0 && g.Content <= float64(g.Burst)) {
			continue // no owner gives that
		}
		if s.reserved && g.Units == 0 {
			continue
		} else if s.reserved {
			s.forgo()
		}
		s.fill(now, h.term.Drift)
		s.lower(now, h.term.Drift, max(g.Units, s.open))
		h.nudged = h.nudged || s.given > 0
		h.moved = h.moved || g.Units != s.target || g.Content > 0 || g.Limit != s.by
		s.units, s.target, s.by = max(g.Units, s.units), g.Units, g.Limit
		s.bucket.content += g.Content
	}
	return true
}
