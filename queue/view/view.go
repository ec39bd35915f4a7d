// Package view shows what is in a queue: listings, summaries and counts, for operators. It copies the schedule a
// stretch of some two thousand entries at a time and looks at the copy, so that whoever commits or takes mail meanwhile
// waits for a copy of some 25 microseconds at most, however much is queued and whatever is asked.
//
// A Walker goes through the queue and gives Candidates: messages with the recipients that a Filter selects. Listings
// are pages of Items, made of them; a Tally counts them by name. Counts come from the schedule's counters and look at
// nothing.
package view

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// ErrUnknown is returned for a message, or a recipient, that is not in the queue or not in the state that the call is
// for.
var ErrUnknown = errors.New("not in the queue")

// Queue is the queue that is looked at. Its methods are called without the lock of the schedule.
type Queue interface {
	// Envelope gives the envelope of a message, from memory or from the disk; ahead may be nil. ErrUnknown says that
	// the message is gone.
	Envelope(id uint64, ahead *store.ReadAhead) (*envelope.Message, error)
	// LastAttempt gives the last attempt at a recipient; false when there was none.
	LastAttempt(replies *store.ReplyReader, id uint64, rcpt uint16) (last store.Attempt, tried bool, err error)
	// ReportDamage reports a place that can't be read.
	ReportDamage(err error, consequence string)
}

// View shows a queue. Its methods are safe for use by many goroutines.
type View struct {
	q     Queue
	dir   *store.Dir
	now   func() time.Time
	parts parts // of listings

	lock sync.Locker // guards s
	s    *schedule.Schedule
}

// New makes the view of a queue; lock is that of its schedule.
func New(q Queue, dir *store.Dir, now func() time.Time, lock sync.Locker, s *schedule.Schedule) *View {
	return &View{q: q, dir: dir, now: now, lock: lock, s: s}
}

// atOnce is how many counters are copied before the lock is given to others.
const atOnce = 1024

// Candidate is a message with the recipients that the schedule alone says are selected, as they were at one instant.
type Candidate struct {
	ID    uint64
	Rcpts []Recipient
	since time.Time // when it was accepted
}

// Recipient is a recipient of a Candidate.
type Recipient struct {
	schedule.Entry
	Line parking.Line
}

// Keep drops all recipients but these, which it sorts. There can be 65,535 of them.
func (c *Candidate) Keep(rcpts []uint16) {
	slices.Sort(rcpts)
	c.Rcpts = slices.DeleteFunc(c.Rcpts, func(r Recipient) bool {
		_, kept := slices.BinarySearch(rcpts, r.Rcpt)
		return !kept
	})
}

// Numbers lists the recipients.
func (c *Candidate) Numbers() (rcpts []uint16) {
	for i := range c.Rcpts {
		rcpts = append(rcpts, c.Rcpts[i].Rcpt)
	}
	return rcpts
}

// LookUp makes a candidate of one message.
func (v *View) LookUp(id uint64) (c Candidate, ok bool) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.s.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
		c.ID = id
		c.Rcpts = append(c.Rcpts, Recipient{*e, v.s.Keys.Line(e.Key)})
		return true
	})
	return c, len(c.Rcpts) > 0
}

// PickOne is nil when the message is not in the queue or not selected.
func (v *View) PickOne(id uint64, f Filter) *Candidate {
	if f.IsZero() {
		if c, ok := v.LookUp(id); ok {
			return &c
		}
		return nil
	}
	w := v.Walk(f, false, id)
	w.part.Top, w.single = min(w.part.Top, id), true
	c, _ := w.Next()
	return c
}

// Get gives one message with all recipients that are still in the queue. ErrUnknown says that there are none.
func (v *View) Get(id envelope.ID) (Item, error) {
	c, ok := v.LookUp(uint64(id))
	if !ok {
		return Item{}, fmt.Errorf("message %s: %w", id, ErrUnknown)
	}
	return v.Item(&c, nil), nil
}

// Pick gives those of some messages, by id, that a filter selects. What is not in the queue is left out.
func (v *View) Pick(ids []envelope.ID, f Filter) []Item {
	var items []Item
	for _, id := range ids {
		if c := v.PickOne(uint64(id), f); c != nil {
			items = append(items, v.Item(c, nil))
		}
	}
	return items
}

// Envelopes calls each with the messages in the queue that have this id or a later one and that wanted selects, in the
// order of their ids. Envelopes that can't be read are left out.
func (v *View) Envelopes(from envelope.ID, wanted func(envelope.ID) bool, each func(*envelope.Message)) {
	w := v.Walk(Filter{}, false, uint64(from))
	for c, _ := w.Next(); c != nil; c, _ = w.Next() {
		if !wanted(envelope.ID(c.ID)) {
			continue
		}
		if m, err := v.q.Envelope(c.ID, nil); err == nil {
			each(m)
		}
	}
}
