package queue

import (
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

const (
	// longestDoubt bounds how long a clock that went ahead is doubted.
	longestDoubt = 6 * time.Hour
	// longestSilence is how old the newest record may be at Open without a doubt about the clock.
	longestSilence = 24 * time.Hour
	// setBackShown is how long Stats.Clock reports that the clock was set back.
	setBackShown = time.Hour
)

// clockWatch compares the clock with one that nobody sets. Nothing may wait until a clock that was ahead shows
// the same time again. And no mail may be too old because the clock went ahead: ages are in doubt for as long as
// it went ahead, longestDoubt at most, in which an operator can set it right.
type clockWatch struct {
	wall    time.Time     // what the clock showed when it was looked at last
	running time.Time     // when that was, by the other
	ahead   time.Duration // by how much it may be ahead
	began   time.Time     // from when, by the other, ages are in doubt
	doubted time.Time     // and until when
	setBack time.Time     // when it was set back last, by the other
	by      time.Duration // and by how much
	// unlogged is set when there is something new to report.
	unlogged bool
}

// drift is by how much the clock went further than time went by or, below zero, less far.
func (w *clockWatch) drift(now, running time.Time) time.Duration {
	if w.wall.IsZero() {
		return 0
	}
	return now.Round(0).Sub(w.wall) - running.Sub(w.running)
}

// look takes note of what the clock shows, and returns its drift until then.
func (w *clockWatch) look(now, running time.Time) time.Duration {
	drift := w.drift(now, running)
	w.wall, w.running = now.Round(0), running
	switch {
	case drift < -schedule.ClockSlack:
		w.wasSetBack(-drift, running)
	case drift > schedule.ClockSlack:
		w.wentAhead(drift, running)
	}
	return drift
}

func (w *clockWatch) wentAhead(by time.Duration, running time.Time) {
	if !running.Before(w.doubted) {
		w.ahead, w.began, w.doubted = 0, running, running
	}
	w.ahead += by
	w.doubted = w.doubted.Add(min(by, longestDoubt))
	if end := w.began.Add(longestDoubt); w.doubted.After(end) { // also where it goes ahead again and again
		w.doubted = end
	}
	w.unlogged = true
}

func (w *clockWatch) wasSetBack(by time.Duration, running time.Time) {
	w.setBack, w.by, w.unlogged = running, by, true
	if w.ahead -= by; w.ahead <= schedule.ClockSlack {
		w.ahead, w.doubted = 0, time.Time{}
	}
}

// corrected is a time to wait for that was reckoned from now or, if the clock was set back a moment ago,
// perhaps from what it showed before.
func (w *clockWatch) corrected(until, now time.Time) time.Time {
	if w.by > 0 && w.running.Sub(w.setBack) < schedule.ClockSlack && until.After(now.Add(w.by)) {
		return until.Add(-w.by)
	}
	return until
}

// resume goes on with a doubt that was in force when the queue was closed.
func (w *clockWatch) resume(o *store.Opening, now, running time.Time) {
	if left := o.Doubted.Sub(now); left > 0 && left <= longestDoubt {
		w.wentAhead(o.Ahead, running)
		w.doubted = running.Add(left)
	}
}

// doubtful reports whether ages are in doubt, and for how long.
func (w *clockWatch) doubtful(running time.Time) time.Duration { return max(w.doubted.Sub(running), 0) }

// report is why an operator should look after the clock; "" when that is not so.
func (w *clockWatch) report(running time.Time) string {
	if left := w.doubtful(running); left > 0 {
		return fmt.Sprintf(
			"the clock jumped ahead by %s: it is wrong, or the relay was off or its machine suspended for that long. "+
				"No mail expires for another %s. Check time synchronisation (NTP)",
			w.ahead.Round(time.Second), left.Round(time.Second))
	}
	if !w.setBack.IsZero() && running.Sub(w.setBack) < setBackShown {
		return fmt.Sprintf(
			"the clock was set back by %s, %s ago; what waited for a time by the clock as it was waits as long from "+
				"then on. Check time synchronisation (NTP)", w.by.Round(time.Second),
			running.Sub(w.setBack).Round(time.Second))
	}
	return ""
}

// watchClock looks whether the clock was set, and logs that.
func (q *Queue) watchClock() {
	now, report := q.now(), ""
	q.mu.Lock()
	q.lookAtClock(now)
	q.clamp(now, schedule.ClockSlack)
	if q.clock.unlogged {
		q.clock.unlogged, report = false, q.clock.report(q.clock.running)
	}
	q.mu.Unlock()
	if report != "" {
		q.log.Error("queue: " + report)
	}
}

// lookAtClock looks whether the clock was set. The caller has q.mu.
func (q *Queue) lookAtClock(now time.Time) {
	if drift := q.clock.drift(now, time.Now()); drift.Abs() > schedule.ClockSlack {
		now = q.now() // the process may have been stopped between the two readings
	}
	drift := q.clock.look(now, time.Now())
	if drift.Abs() <= schedule.ClockSlack {
		return
	}
	if drift < 0 {
		q.clockWentBack(now, -drift)
	}
	q.w.renew.Store(true)
	q.nudge(q.kick.clock) // to log it
}

// NothingExpiresBefore is until when ages are in doubt, since the clock went ahead; the zero time when they are
// not. Till then no mail is to be given up for its age.
func (q *Queue) NothingExpiresBefore() time.Time {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookAtClock(now)
	if left := q.clock.doubtful(q.clock.running); left > 0 {
		return now.Add(left)
	}
	return time.Time{}
}

// clockWentBack makes what waits for a time wait as much shorter as the clock went back. Releases stay as
// they are: whoever scheduled a message named a time, and not how long it was to wait. The caller has q.mu.
func (q *Queue) clockWentBack(now time.Time, back time.Duration) {
	q.clamp(now, 0)
	at, before := uint32(now.Unix()), uint32(now.Add(back).Unix())
	q.s.Ascend(0, func(s schedule.Slot, e *schedule.Entry) bool {
		deferred := e.State() == schedule.Deferred
		if deferred {
			q.s.Unlink(s)
		}
		switch {
		case q.awaitsRelease(e):
		case deferred && e.Due > before:
			e.Due -= before - at
		default: // by the clock as it was, it was due
			e.Due = min(e.Due, at)
		}
		return true
	})
	q.s.Wheel.Rewind(at)
	q.s.Ascend(0, func(s schedule.Slot, e *schedule.Entry) bool {
		if e.State() == schedule.Deferred {
			q.s.Wheel.Add(s)
		}
		return true
	})
	for i := range q.ready.unsent {
		q.ready.unsent[i].from = min(q.ready.unsent[i].from, at)
	}
	q.few.recalled.hasten(at)
	for seg := range q.segs.All {
		seg.Rest = time.Time{}
	}
	for id := range q.cache.hot {
		q.cache.evict(id) // its envelope may have a time that lies ahead
	}
}

// awaitsRelease reports whether what a recipient waits for is the time that its message was scheduled for.
func (q *Queue) awaitsRelease(e *schedule.Entry) bool {
	start, ok := q.s.Starts.Find(e.ID)
	return ok && e.Attempts() == 0 && e.Due <= start
}

// clamp takes messages that seem to have been accepted later than now, by more than slack, for accepted now.
// The caller has q.mu.
func (q *Queue) clamp(now time.Time, slack time.Duration) {
	if q.s.Arrivals.Latest().After(now.Add(slack)) {
		q.s.Arrivals.Clamp(uint64(q.ids.Next(now)), now.UnixMilli())
		q.w.renew.Store(true)
	}
}

// forgetArrivals forgets when messages were accepted that are gone.
func (q *Queue) forgetArrivals() {
	first := ^uint64(0)
	q.s.Ascend(0, func(_ schedule.Slot, e *schedule.Entry) bool {
		first = e.ID
		return false
	})
	q.s.Arrivals.Forget(first)
}

// date corrects when a message was received, where its record has a time that lay ahead, and when it is released,
// where that was moved.
func (q *Queue) date(m *envelope.Message, id uint64) {
	q.mu.Lock()
	at := q.s.Arrivals.Of(id)
	if p, moved := q.few.moves[id]; moved {
		m.Release = p.ReleaseTime()
	}
	q.mu.Unlock()
	if !at.IsZero() && m.Received.After(at.Add(schedule.ClockSlack)) {
		m.Received = at.UTC()
	}
}
