package delivery

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
)

// tick is how often the clock looks after ages, expiry, stale records and what is to be written.
const tick = time.Second

// calls are the callers' functions that the clock will call.
type calls struct {
	done  []*work // their Done
	space []Flow  // OnSpace, for each
}

// clock is the scheduler's one long-lived goroutine: it wakes lanes when their time has come, calls
// Done for jobs that ended without a connection, reports space, and keeps house once a second.
// Close ends it, and waits for it.
func (s *Scheduler) clock() {
	defer close(s.stopped)
	timer := time.NewTimer(tick)
	defer timer.Stop()
	house := s.cfg.Now().Add(tick)
	for {
		now := s.cfg.Now()
		if !now.Before(house) {
			s.keepHouse(now)
			house = now.Add(tick)
		}
		s.mu.Lock()
		if s.changed.Swap(false) {
			s.useParts(now)
		}
		next := s.runTimers(now)
		if look := s.hurry(now); next.IsZero() || !look.IsZero() && look.Before(next) {
			next = look
		}
		due, closed := s.calls, s.closed
		s.calls = calls{}
		last := closed && s.total.live == 0
		s.mu.Unlock()
		for _, w := range due.done {
			w.Done(w.Job, w.results)
		}
		if !closed {
			for _, flow := range due.space {
				s.cfg.OnSpace(flow)
			}
		}
		if len(due.done)+len(due.space) > 0 {
			s.mu.Lock()
			for _, w := range due.done {
				s.leave(w.Job, now)
			}
			s.checkQuiet()
			s.mu.Unlock()
			continue
		}
		if last {
			s.save(true)
			return
		}
		if next.IsZero() || house.Before(next) {
			next = house
		}
		timer.Reset(max(next.Sub(s.cfg.Now()), 0))
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// signal wakes the clock.
func (s *Scheduler) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// wakesBefore returns whose timer comes first. Those that wait for the same rate wake at the same time, and
// one of them has it: they take turns.
func (l *lane) wakesBefore(o *lane) bool {
	if !l.wake.Equal(o.wake) {
		return l.wake.Before(o.wake)
	}
	return l.pace.charged < o.pace.charged
}

// setTimer has l run again at that time; zero takes its timer away.
func (s *Scheduler) setTimer(l *lane, at time.Time) {
	if l.wake.Equal(at) && (l.timer >= 0) == !at.IsZero() {
		return
	}
	l.wake = at
	switch {
	case at.IsZero():
		if l.timer >= 0 {
			s.timers.Remove(l.timer)
		}
		return
	case l.timer >= 0:
		s.timers.Fix(l.timer)
	default:
		s.timers.Push(l)
	}
	if s.timers.Top() == l {
		s.signal()
	}
}

// runTimers runs the lanes whose time has come, and gives the time of the next.
func (s *Scheduler) runTimers(now time.Time) time.Time {
	for s.timers.Len() > 0 {
		l := s.timers.Top()
		if l.wake.After(now) {
			return l.wake
		}
		s.timers.Pop()
		l.wake = time.Time{}
		l.run(now)
	}
	return time.Time{}
}

// keepHouse is what is done once a second.
func (s *Scheduler) keepHouse(now time.Time) {
	s.mu.Lock()
	for key, l := range s.lanes {
		s.expire(l, now)
		if l.slowDown(now) {
			l.run(now)
		}
		l.drain.tick(l, now)
		if l.waiting.n == 0 && l.running == 0 && l.opening == 0 && l.drain.idle() && now.Sub(l.used) > laneLife {
			s.dropLane(key, l, now)
			continue
		}
		l.nameBudgets(now)
		l.meet()
	}
	for c := range s.conns {
		s.watch(c, now)
	}
	s.sweepBudgets(now)
	s.forgetRefused(now)
	s.remind(now)
	s.db.Collect(now, func(p *destdb.Path) bool { return s.pools[p] != nil },
		func(site *destdb.Site) bool { return len(s.bySite[site.Name]) > 0 })
	s.mu.Unlock()
	s.save(false)
}

// nameBudgets keeps those of a lane from the sweep.
func (l *lane) nameBudgets(now time.Time) {
	for _, x := range l.scopes {
		x.b.named = now
	}
}

// sweepBudgets drops those that no lane names, when their rates are paid off.
func (s *Scheduler) sweepBudgets(now time.Time) {
	for key, b := range s.budgets {
		if b.division != nil {
			b.division.tick(b, s.limGen, now)
		}
		if b != s.total && !b.kind.ofOpening() && !b.named.Equal(now) && b.live == 0 && b.waiting == 0 && !b.inLine() &&
			b.messages.Paid(now) && b.connections.Paid(now) && b.division.forgotten(b, now) {
			if b.division != nil {
				b.division.forgo(b.division.limit, Scope{})
			}
			delete(s.budgets, key)
		}
	}
}

// laneLife is how long a lane without mail is remembered.
const laneLife = time.Hour

func (s *Scheduler) dropLane(key laneKey, l *lane, now time.Time) {
	l.stopWaiting()
	l.leave().call(now)
	s.setTimer(l, time.Time{})
	for _, p := range l.pools {
		if p.remove(l); len(p.lanes) == 0 {
			delete(s.pools, p.path)
		}
	}
	delete(s.lanes, key)
	s.bySite[key.site] = slices.DeleteFunc(s.bySite[key.site], func(o *lane) bool { return o == l })
	if len(s.bySite[key.site]) == 0 {
		delete(s.bySite, key.site)
	}
}

// expire gives back what has become too old while it waited here.
func (s *Scheduler) expire(l *lane, now time.Time) {
	what := cmp.Or(l.why.What, "a connection")
	for _, p := range l.waiting.expired(now) {
		s.fail(p, Result{Reply: reply.Local(451, reply.Enhanced{4, 4, 7}, "route",
			"the message expired while it waited: %s", what)})
	}
}

// stuckAfter is when a busy connection that moves nothing is cut, whatever it is in. The phases
// have shorter deadlines of their own; this one is for bodies that can't be read.
const stuckAfter = 15 * time.Minute

// watch ends connections that have been idle too long, are too old, or are stuck.
func (s *Scheduler) watch(c *connection, now time.Time) {
	switch {
	case c.session == nil:
		return
	case c.rec.Backlog == 0 && c.rec.Phase == destdb.Open && now.Sub(c.rec.Since) >= c.lane.limits.IdleTimeout,
		c.rec.Backlog > 0 && c.rec.Phase == destdb.Open && now.Sub(c.rec.Made) >= c.lane.limits.ActiveTimeout:
		c.retire()
	case c.leaving && c.rec.Backlog == 0 && now.Sub(c.rec.Since) >= quitPatience && c.missed():
		c.session.Close()
	}
	if sent := c.session.BytesSent(); sent != c.sent || c.rec.Backlog == 0 || c.last.After(c.looked) {
		c.sent, c.looked = sent, now
	} else if now.Sub(c.looked) >= stuckAfter {
		s.cfg.Log.Warn("connection is stuck and is cut", "host", c.host.String(), "session", c.id,
			"backlog", c.rec.Backlog)
		c.session.Close()
	}
}

// saveAtOnce bounds a batch: it is copied with the lock held.
const saveAtOnce = 1000

// Flush writes all that has changed.
func (s *Scheduler) Flush() error { return s.save(true) }

// save writes a batch of what has changed, or all of it. What fails is tried again with the next.
func (s *Scheduler) save(all bool) error {
	if s.cfg.Store == nil {
		return nil
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	for {
		s.mu.Lock()
		batch := s.db.Changed(saveAtOnce)
		s.mu.Unlock()
		if len(batch) == 0 {
			return nil
		}
		if err := s.cfg.Store.Save(batch); err != nil {
			s.cfg.Log.Warn("saving what is known of destinations", "error", err)
			s.mu.Lock()
			s.db.Again(batch)
			s.mu.Unlock()
			return fmt.Errorf("saving what is known of destinations: %w", err)
		}
		if !all {
			return nil
		}
	}
}
