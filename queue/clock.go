package queue

import (
	"context"
	"slices"
	"time"

	"example.org/mta/queue/schedule"
)

const (
	// atOnce is how many entries are looked at before the lock is given to others.
	atOnce = 1024
	// maxWarnings bounds the warnings that wait to be handed out, at once or again, and maxEarly those that have to
	// wait for their time.
	maxWarnings, maxEarly = 4096, 65536
	// A sweep for what is too old is made every second, or less often when it takes long: it may
	// take a hundredth of the time.
	minSweep, maxSweep, sweepShare = time.Second, time.Minute, 100
)

// runClock moves what is due to where Next finds it, and sweeps.
func (q *Queue) runClock(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	s := sweeper{q: q}
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-q.kick.clock:
		}
		q.watchClock()
		wait := q.tick()
		wait = min(wait, s.run())
		timer.Reset(max(wait, time.Millisecond))
	}
}

// tick hands out what is due and says how long there is nothing more to do. The lock is given to
// others in between, however many are due at once.
func (q *Queue) tick() time.Duration {
	for {
		now := q.now()
		q.mu.Lock()
		seconds := uint32(now.Unix())
		more := q.s.Wheel.Advance(seconds, atOnce, func(s schedule.Slot, e *schedule.Entry) {
			q.makeDue(s, e, seconds)
		})
		next, ok := q.s.Wheel.Next()
		q.mu.Unlock()
		if more {
			continue
		}
		if !ok {
			return maxSweep
		}
		return time.Unix(int64(next), 0).Sub(now)
	}
}

// sweeper looks through the schedule for what is too old, in every state but leased: a leased
// recipient is its holder's affair until it comes back.
type sweeper struct {
	q    *Queue
	next time.Time
}

// run sweeps if it is time, and says when it is time again.
func (s *sweeper) run() time.Duration {
	now := s.q.now()
	if wait := s.next.Sub(now); wait > 0 && wait <= maxSweep {
		return wait
	}
	s.q.warnAgain()
	s.q.AgeOn()
	if s.q.cfg.Leaving == nil && s.q.NothingExpiresBefore().IsZero() {
		s.sweep(now)
		s.expire(now)
		s.endWaits(&s.q.few.waits, now)
	}
	s.endWaits(&s.q.few.recalled, now) // whatever the clock shows: nothing is given up by that
	took := s.q.now().Sub(now)
	wait := min(max(sweepShare*took, minSweep), maxSweep)
	s.next = now.Add(wait)
	return wait
}

// sweep looks at all entries that are old enough for something, oldest first.
func (s *sweeper) sweep(now time.Time) {
	q := s.q
	longest, delay := age(q.cfg.MaxAge), age(q.cfg.DelayAfter)
	floor := longest
	if delay > 0 && (floor == 0 || delay < floor) {
		floor = delay
	}
	if floor == 0 {
		return
	}
	q.mu.Lock()
	q.forgetArrivals()
	end := q.s.Arrivals.After(now.Add(-floor))
	q.mu.Unlock()
	q.eachBefore(end, func(slot schedule.Slot, e *schedule.Entry) { s.look(now, longest, delay, slot, e) })
}

// age is what a function of the configuration returns, 0 for none.
func age(f func() time.Duration) time.Duration {
	if f == nil {
		return 0
	}
	return f()
}

// eachBefore calls look, under the lock, with each entry whose id is below end. The lock is given to others in
// between.
func (q *Queue) eachBefore(end uint64, look func(schedule.Slot, *schedule.Entry)) {
	for at, more := uint64(0), true; more; {
		at, more = q.part(at, end, look)
	}
}

// part is eachBefore for some entries from id at on. It says where to go on.
func (q *Queue) part(at, end uint64, look func(schedule.Slot, *schedule.Entry)) (next uint64, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	q.s.Ascend(at, func(slot schedule.Slot, e *schedule.Entry) bool {
		if e.ID >= end {
			return false
		}
		if n++; n > atOnce && e.ID != at {
			more = true
			return false
		}
		at = e.ID
		next = e.ID + 1
		look(slot, e)
		return true
	})
	return next, more
}

func (s *sweeper) look(now time.Time, longest, delay time.Duration, slot schedule.Slot, e *schedule.Entry) {
	q := s.q
	if !expirable(e) {
		return
	}
	age := now.Sub(q.s.Start(e.ID))
	if longest > 0 && age >= longest {
		q.unlist(slot, e)
		q.end(slot, e, schedule.Expiring)
		return
	}
	if delay > 0 && age >= delay && !e.Warned() && !e.Warning() {
		q.warn(e)
	}
}

// warn lets Next tell of a recipient's delay.
func (q *Queue) warn(e *schedule.Entry) {
	n := len(q.ready.warnings)
	if n > 0 && q.ready.warnings[n-1].id == e.ID {
		q.ready.warnings[n-1].rcpts = append(q.ready.warnings[n-1].rcpts, e.Rcpt)
		e.SetWarning(true)
		return
	}
	if n+len(q.ready.unsent) >= maxWarnings || len(q.ready.early) >= maxEarly {
		return // the next sweep finds it again
	}
	q.ready.warnings = append(q.ready.warnings, warning{id: e.ID, rcpts: []uint16{e.Rcpt}})
	e.SetWarning(true)
	q.due.Signal()
}

// warnAgain lets Next hand out again, in their time, the delay warnings that were not sent.
func (q *Queue) warnAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.passed()
	for _, list := range []*[]warning{&q.ready.unsent, &q.ready.early} {
		*list = slices.DeleteFunc(*list, func(w warning) bool {
			if w.from > now {
				return false
			}
			q.ready.warnings = append(q.ready.warnings, w)
			q.due.Signal()
			return true
		})
	}
}
