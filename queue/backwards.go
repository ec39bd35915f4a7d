package queue

import (
	"time"

	"mta/internal/envelope"
	"mta/queue/schedule"
)

// clockWatch notices that the clock was set back. Nothing may wait until a clock that was ahead says the
// same again.
type clockWatch struct {
	wall    time.Time // what the clock said when it was looked at last
	running time.Time // and when that was, by a clock that nobody sets
}

// look compares how far the clock went with how much time went by. It returns by how much it fell behind.
func (w *clockWatch) look(now time.Time) (back time.Duration) {
	now, running := now.Round(0), time.Now()
	if !w.wall.IsZero() {
		back = w.wall.Add(running.Sub(w.running)).Sub(now)
	}
	if back > clockSlack {
		return back
	}
	w.wall, w.running = now, running
	return 0
}

// watchClock looks whether the clock was set back.
func (q *Queue) watchClock() {
	now := q.now()
	q.mu.Lock()
	back := q.clock.look(now)
	q.mu.Unlock()
	if back > 0 {
		q.clockWentBack(now, back)
	}
	q.clampArrivals(now, clockSlack)
}

// clockWentBack makes what waits for a time wait as much shorter as the clock went back. Releases stay as
// they are: whoever scheduled a message named a time, and not how long it was to wait.
func (q *Queue) clockWentBack(now time.Time, back time.Duration) {
	q.log.Error("queue: the clock went back; what waits for a time by the clock as it was waits as long from now on", "by", back.Round(time.Second), "now", now)
	q.clampArrivals(now, 0)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.clock = clockWatch{}
	at, before := uint32(now.Unix()), uint32(now.Add(back).Unix())
	q.table.Ascend(0, func(s schedule.Slot, e *schedule.Entry) bool {
		deferred := e.State() == schedule.Deferred
		if deferred {
			q.table.Unlink(s)
		}
		switch {
		case q.awaitsRelease(e):
		case !deferred:
			e.Due = min(e.Due, at)
		case e.Due > before: // by the clock as it was
			e.Due -= before - at
		case e.Due > at+longestRetry: // it was due by the clock as it was, and had not been taken yet
			e.Due = at
		}
		return true
	})
	q.wheel.Rewind(at)
	q.table.Ascend(0, func(s schedule.Slot, e *schedule.Entry) bool {
		if e.State() == schedule.Deferred {
			q.wheel.Add(s)
		}
		return true
	})
	for i := range q.unsent {
		q.unsent[i].from = min(q.unsent[i].from, at)
	}
	for seg := range q.segs.all {
		seg.rest = time.Time{}
	}
	for id := range q.hot {
		q.cool(id) // its envelope may have a time that lies ahead
	}
}

// longestRetry is longer than any wait for another attempt, in seconds: what waits for a later time was not
// deferred by a clock that is right.
const longestRetry = 40 * 24 * 60 * 60

// awaitsRelease reports whether what a recipient waits for is the time that its message was scheduled for.
func (q *Queue) awaitsRelease(e *schedule.Entry) bool {
	start, ok := q.starts.find(e.ID)
	return ok && e.Attempts() == 0 && e.Due <= start
}

// clampArrivals takes messages that seem to have been accepted later than now, by more than slack, for
// accepted now.
func (q *Queue) clampArrivals(now time.Time, slack time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if n := len(q.arrivals.all); n > 0 && q.arrivals.all[n-1].at > now.Add(slack).UnixMilli() {
		q.arrivals.clamp(uint64(q.ids.Next(now)), now.UnixMilli())
		q.w.renew.Store(true)
	}
}

// forgetArrivals forgets when messages were accepted that are gone.
func (q *Queue) forgetArrivals() {
	first := ^uint64(0)
	q.table.Ascend(0, func(_ schedule.Slot, e *schedule.Entry) bool {
		first = e.ID
		return false
	})
	q.arrivals.forget(first)
}

// date corrects when a message was received, where its record has a time that lay ahead.
func (q *Queue) date(m *envelope.Message, id uint64) {
	q.mu.Lock()
	at := q.arrivals.of(id)
	q.mu.Unlock()
	if !at.IsZero() && m.Received.After(at.Add(clockSlack)) {
		m.Received = at.UTC()
	}
}
