package share

import (
	"cmp"
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
	until   time.Duration // the grants' end
	asked   time.Duration // the newest answered ask
	changed bool
	nudged  bool
	stakes  []*stake // by name
}

// stake is a node's part of a limit.
type stake struct {
	Limit
	units  int64 // at most this many may be used
	target int64 // of these, at most so many from now on
	open   int64 // connections
	want   int64
	bucket bucket
	given  float64 // content of units that were given up
}

// NewHolder makes the holder of a process that has nothing. The process's first ask has the number after o.
func NewHolder(t term.Term, o term.Order, limits []Limit) *Holder {
	h := &Holder{term: t, order: o}
	for _, l := range limits {
		h.stakes = append(h.stakes, &stake{Limit: l})
	}
	slices.SortFunc(h.stakes, func(x, y *stake) int { return cmp.Compare(x.Name, y.Name) })
	return h
}

// stake gives that of a limit; one that is not shared has nothing.
func (h *Holder) stake(name string) *stake {
	i, ok := slices.BinarySearchFunc(h.stakes, name, func(s *stake, n string) int { return cmp.Compare(s.Name, n) })
	if !ok {
		return &stake{}
	}
	return h.stakes[i]
}

// Want sets how many units a node could use of a limit.
func (h *Holder) Want(name string, units int64) {
	s := h.stake(name)
	units = max(0, min(units, s.Units()))
	if units != s.want {
		s.want, h.changed = units, true
		h.nudged = h.nudged || units == 0 && s.units > 0 // others may wait for it
	}
}

// Leave wants nothing any more, and reports whether there is something that an ask would give up.
func (h *Holder) Leave() (more bool) {
	for _, s := range h.stakes {
		s.want = 0
		more = more || s.units > 0
	}
	return more
}

// expire ends what was granted. It comes before any use, as the process may have been stopped since the last.
func (h *Holder) expire(now time.Duration) {
	if now < h.until-closing {
		return
	}
	for _, s := range h.stakes {
		if s.units > 0 && (s.Connections > 0 || now >= h.until) {
			s.units, s.target, s.given, h.changed = 0, 0, 0, true
		}
	}
}

// Spend takes up to n events of a rate that happen now, and returns how many.
func (h *Holder) Spend(now time.Duration, name string, n int64) int64 {
	h.expire(now)
	s := h.stake(name)
	if s.units == 0 || n <= 0 {
		return 0
	}
	s.bucket.fill(now, &s.Limit, s.units, h.term.Drift)
	n = min(n, int64(s.bucket.content))
	s.bucket.content -= float64(n)
	return n
}

// Next is how long it takes until a node has an event of a rate, and how many it can save up; 0, 0 without a share.
func (h *Holder) Next(now time.Duration, name string) (time.Duration, float64) {
	s := h.stake(name)
	if s.units < s.Least() || now >= h.until {
		return 0, 0
	}
	flow := s.Rate * (1 - h.term.Drift) * float64(s.units) / float64(s.Units())
	lack := max(0, 1-s.bucket.content) / flow
	return max(0, s.bucket.at-now+time.Duration(lack*float64(time.Second))+1), float64(s.units) / perEvent
}

// Open notes up to n new connections, and returns how many there may be.
func (h *Holder) Open(now time.Duration, name string, n int64) int64 {
	h.expire(now)
	s := h.stake(name)
	n = max(0, min(n, s.target-s.open))
	s.open += n
	return n
}

// Over is how many open connections must end: within closing when the grant has ended, and otherwise as soon as their
// transactions do.
func (h *Holder) Over(now time.Duration, name string) (n int64, ended bool) {
	h.expire(now)
	s := h.stake(name)
	return max(0, s.open-s.target), s.units == 0
}

// Close notes that n connections have ended.
func (h *Holder) Close(name string, n int64) {
	s := h.stake(name)
	s.open -= n
	h.changed = h.changed || s.units > s.target
}

// Nudge has the holder ask at once.
func (h *Holder) Nudge() { h.nudged = true }

// Due reports whether it is time for an ask; more: the ask would carry more than shares.
func (h *Holder) Due(now time.Duration, more bool) bool {
	h.expire(now)
	switch {
	case h.waiting:
		return now-h.sent >= answerWithin
	case h.nudged:
		return true
	case h.changed || more:
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
	h.sent, h.waiting, h.changed, h.nudged = now, true, false, false
	var items []Item
	for _, s := range h.stakes {
		keep := s.want
		if keep > 0 {
			keep = max(keep, s.Least())
		}
		s.lower(now, h.term.Drift, max(min(keep, s.target), s.open))
		if s.units > 0 || s.want > 0 || s.given > 0 {
			items = append(items, Item{s.Name, s.units, s.want, s.given})
			s.given = 0
		}
	}
	return h.order, items
}

// lower gives up all units beyond n, with their content.
func (s *stake) lower(now time.Duration, drift float64, n int64) {
	if n >= s.units {
		return
	}
	s.bucket.fill(now, &s.Limit, s.units, drift)
	s.given += s.bucket.part(s.units-n, s.units)
	s.units, s.target = n, min(n, s.target)
}

// Awaits reports whether the answer to an ask would count.
func (h *Holder) Awaits(o term.Order) bool { return h.waiting && o == h.order }

// Answer takes in the answer to an ask, and reports whether it counts: only that of the newest ask does.
func (h *Holder) Answer(now time.Duration, o term.Order, grants []Grant) bool {
	h.expire(now)
	if !h.Awaits(o) {
		return false
	}
	h.waiting, h.asked, h.until = false, h.sent, h.sent+h.term.Holds()
	for _, g := range grants {
		s := h.stake(g.Limit)
		if g.Units < 0 || g.Units > s.Units() || !(g.Content >= 0 && g.Content <= float64(s.Burst)) {
			continue // no owner gives that
		}
		s.bucket.fill(now, &s.Limit, s.units, h.term.Drift)
		s.lower(now, h.term.Drift, max(g.Units, s.open))
		h.nudged = h.nudged || s.given > 0
		s.units, s.target = max(g.Units, s.units), g.Units
		s.bucket.content += g.Content
	}
	return true
}
