package queue

import (
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
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

// ErrReleased is returned for a message whose time has come, for some of its recipients at least, or that was
// never scheduled.
var ErrReleased = errors.New("already released")

// Move gives a scheduled message another time of release; its spread stays. It is durable when Move returns without
// error. ErrReleased says that it was too late for that, for one recipient at least, and that nothing was changed.
func (q *Queue) Move(id envelope.ID, release time.Time) error {
	c, ok := q.LookUp(uint64(id))
	if !ok {
		return fmt.Errorf("message %s: %w", id, ErrUnknown)
	}
	m, err := q.envelopeOf(c.ID, nil)
	if err != nil {
		return fmt.Errorf("message %s: %w", id, err)
	}
	p := store.PlanOf(&envelope.Message{Release: release, Spread: m.Spread})
	if err := q.move(uint64(id), p); err != nil {
		return fmt.Errorf("message %s: %w", id, err)
	}
	if err := q.w.flush(); err != nil {
		return fmt.Errorf("message %s has its new time, but not durably yet: %w", id, err)
	}
	return nil
}

// move changes the schedule, and has that written down.
func (q *Queue) move(id uint64, p store.Plan) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return ErrClosed
	}
	var slots []schedule.Slot
	awaits := true
	q.s.Run(id, func(s schedule.Slot, e *schedule.Entry) bool {
		slots = append(slots, s)
		awaits = awaits && q.movable(e)
		return awaits
	})
	switch {
	case len(slots) == 0:
		return ErrUnknown
	case !awaits:
		return ErrReleased
	}
	q.s.Starts.Add(id, p.Start())
	q.few.moves[id] = p
	q.cache.evict(id) // the envelope in memory has the old time
	var rcpts []uint16
	for _, s := range slots {
		e := q.s.At(s)
		rcpts = append(rcpts, e.Rcpt)
		q.moveEntry(s, e, p)
	}
	q.noteMarks(id, rcpts, store.Change{Release: p.Release})
	return nil
}

// movable reports whether a recipient waits for its release, or is held and would.
func (q *Queue) movable(e *schedule.Entry) bool {
	if e.State() == schedule.Held {
		_, scheduled := q.s.Starts.Find(e.ID)
		return scheduled && e.Attempts() == 0 && e.Key == 0 && e.Due > q.passed()
	}
	return q.scheduledLater(e) && !e.Action().Ends() && e.Due > q.passed()
}

func (q *Queue) moveEntry(s schedule.Slot, e *schedule.Entry, p store.Plan) {
	due, now := p.Due(e.ID, int(e.Rcpt)), q.passed()
	if e.State() == schedule.Held {
		e.Due = due
		return
	}
	q.unlist(s, e)
	if e.Due = due; due > now {
		q.deferEntry(s, e)
	} else {
		q.makeDue(s, e, now)
	}
}
