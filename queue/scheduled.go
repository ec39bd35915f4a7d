package queue

import (
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// enterRecipient puts a recipient that was just accepted on the schedule: to be handed out at
// once or, by its plan, on the wheel.
func (q *Queue) enterRecipient(e schedule.Entry, names schedule.Names, p store.Plan) {
	if p.Scheduled() {
		e.Due = p.Due(e.ID, int(e.Rcpt))
	}
	s := q.s.Append(e, names, schedule.Due)
	q.s.Keys.Hold(q.s.At(s))
	if e.Due > q.passed() && p.Scheduled() {
		q.deferEntry(s, q.s.At(s))
		return
	}
	q.s.Push(q.ready.fresh[e.Tier()], s)
}

// scheduledLater reports whether a recipient waits for the time that its sender asked for: it was
// never routed, and its release is still to come. The caller has q.mu.
func (q *Queue) scheduledLater(e *schedule.Entry) bool {
	if e.State() != schedule.Deferred || e.Attempts() > 0 || e.Key != 0 {
		return false
	}
	start, scheduled := q.s.Starts.Find(e.ID)
	return scheduled && e.Due <= start
}
