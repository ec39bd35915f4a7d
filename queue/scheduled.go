package queue

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
)

// plan is when a message is released, as its record has it: no attempt is made before. The zero
// plan is that of a message which is due when it is accepted.
//
// The plan is part of the accepted record, so that there is no instant at which a message is
// durable and its plan is not.
type plan struct {
	release uint32 // seconds since 1970
	spread  uint32 // seconds: each recipient has its own time from release to so much later
}

// planOf gives the plan of an envelope. A fraction of a second counts as a whole one: nothing is
// released early.
func planOf(m *envelope.Message) plan {
	if m.Release.IsZero() {
		return plan{}
	}
	return plan{secondsOf(m.Release), uint32(min(max(m.Spread, 0), envelope.MaxSpread) / time.Second)}
}

func (p plan) scheduled() bool { return p.release != 0 }

// due is when a recipient is released, 0 without a plan. It is worked out from the id, so that it
// need not be stored for each recipient.
func (p plan) due(id uint64, rcpt int) uint32 {
	if !p.scheduled() {
		return 0
	}
	return p.release + envelope.ID(id).Jitter(rcpt, p.spread)
}

// start is when the last recipient is released.
func (p plan) start() uint32 { return p.release + p.spread }

// enterRecipient puts a recipient that was just accepted on the schedule: to be handed out at
// once or, by its plan, on the wheel.
func (q *Queue) enterRecipient(e schedule.Entry, names schedule.Names, p plan) {
	if p.scheduled() {
		e.Due = p.due(e.ID, int(e.Rcpt))
	}
	s := q.table.Append(e, names, schedule.Due)
	q.keys.Hold(q.table.At(s))
	if e.Due > q.passed() && p.scheduled() {
		q.deferEntry(s, q.table.At(s))
		return
	}
	q.table.Push(q.fresh[e.Tier()], s)
}

// scheduledLater reports whether a recipient waits for the time that its sender asked for: it was
// never routed, and its release is still to come. The caller has q.mu.
func (q *Queue) scheduledLater(e *schedule.Entry) bool {
	if e.State() != schedule.Deferred || e.Attempts() > 0 || e.Key != 0 {
		return false
	}
	start, scheduled := q.starts.Find(e.ID)
	return scheduled && e.Due <= start
}

// startOf is when the age of a message began to count, or will begin. The caller has q.mu.
func (q *Queue) startOf(id uint64) time.Time {
	if at, ok := q.starts.Find(id); ok {
		return time.Unix(int64(at), 0)
	}
	return q.arrivals.Of(id)
}
