package router

import (
	"container/heap"
	"container/list"
	"time"
)

// Allowance is Tony Finch's rule for when a message may have one more worker: while it has few,
// or while many are free. With ten times the free ones, a big envelope can have 91 of 100
// workers when it is alone, two can have 48 each, three about 32.
type Allowance struct {
	MaxMessageConcurrency int // workers that a message may have however few are free
	ScaleMaxConcurrency   int // and this many times the free ones
}

// Permits says whether a message with so many workers may have another when so many are free.
func (a Allowance) Permits(running, free int) bool {
	return free > 0 && (running < a.MaxMessageConcurrency || running < a.ScaleMaxConcurrency*free)
}

// guard keeps the oldest message from waiting for ever while there is always somebody with
// less: once it has waited so long, a share of the workers serves the oldest first.
type guard struct {
	age     time.Duration // 0 is no guard
	workers int           // how many may be under the guard at a time
}

// schedule says whose job a free worker takes. The allowance decides whether, least-running
// decides who: the message with the fewest workers, the oldest among equals, so that a message
// with nothing running comes before all that have something. A decision costs O(log messages),
// however many jobs each has.
//
// It is a pure structure: no clock, no lock, no goroutine.
type schedule struct {
	allowance Allowance
	guard     guard
	guarded   int // workers under the guard

	seq     uint64
	fewest  byRunning  // the messages with waiting jobs, fewest running first
	arrival *list.List // the same, as *entry, oldest first
}

// entry is a message with jobs: domains that wait to be looked up.
type entry struct {
	request Request
	waiting []string // of request.Domains, those not begun yet
	running int      // workers it has
	arrived time.Time
	seq     uint64        // grows with arrival
	index   int           // in the heap; -1 when nothing waits
	place   *list.Element // in arrival
}

// job is one domain of a message, being looked up by a worker.
type job struct {
	entry   *entry
	domain  string
	guarded bool
}

func newSchedule(a Allowance, g guard) *schedule {
	return &schedule{allowance: a, guard: g, arrival: list.New()}
}

// add takes a message in. It must have jobs waiting.
func (s *schedule) add(e *entry) {
	s.seq++
	e.seq = s.seq
	e.place = s.arrival.PushBack(e)
	heap.Push(&s.fewest, e)
}

// next takes the job for one of the free workers; false is nothing to do, or nobody who may.
func (s *schedule) next(now time.Time, free int) (job, bool) {
	if len(s.fewest) == 0 || free <= 0 {
		return job{}, false
	}
	e, guarded := s.fewest[0], false
	if oldest := s.arrival.Front().Value.(*entry); s.guarding(oldest, now) && s.allowance.Permits(oldest.running, free) {
		e, guarded = oldest, true
		s.guarded++
	}
	// Who has more running is not permitted either, when the one with the fewest isn't.
	if !guarded && !s.allowance.Permits(e.running, free) {
		return job{}, false
	}
	j := job{entry: e, domain: e.waiting[0], guarded: guarded}
	e.waiting = e.waiting[1:]
	e.running++
	if len(e.waiting) == 0 {
		s.remove(e)
	} else {
		heap.Fix(&s.fewest, e.index)
	}
	return j, true
}

func (s *schedule) guarding(oldest *entry, now time.Time) bool {
	return s.guard.age > 0 && s.guarded < s.guard.workers && now.Sub(oldest.arrived) >= s.guard.age
}

// done gives a job's worker back.
func (s *schedule) done(j job) {
	if j.guarded {
		s.guarded--
	}
	j.entry.running--
	if j.entry.index >= 0 {
		heap.Fix(&s.fewest, j.entry.index)
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
func (s *schedule) messages() int { return len(s.fewest) }

func (s *schedule) remove(e *entry) {
	heap.Remove(&s.fewest, e.index)
	s.arrival.Remove(e.place)
	e.place = nil
}

// byRunning is a heap of messages.
type byRunning []*entry

func (h byRunning) Len() int { return len(h) }
func (h byRunning) Less(i, j int) bool {
	if h[i].running != h[j].running {
		return h[i].running < h[j].running
	}
	return h[i].seq < h[j].seq
}
func (h byRunning) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for container/heap alone.
func (h *byRunning) Push(x any) {
	e := x.(*entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for container/heap alone.
func (h *byRunning) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	e.index = -1
	*h = old[:len(old)-1]
	return e
}
