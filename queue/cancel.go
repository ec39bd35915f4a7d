package queue

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
)

// Cancellation is what became of recipients whose sender has cancelled them.
type Cancellation struct {
	// Cancelled counts the recipients that have left the queue without an attempt, or with no further one.
	Cancelled int
	// Gone are those, but not all of very many.
	Gone []Followed
	// Leased are those that were handed out: they are attempted no further, but the attempt that they
	// were handed out for may come first.
	Leased []Followed
	// Withheld counts those that are on their way to another relay, which can't be cancelled here now.
	Withheld int

	q *Queue
}

// maxGone is how many recipients Gone has at most.
const maxGone = 10_000

// Followed is a recipient that was cancelled.
type Followed struct {
	ID        envelope.ID
	Recipient int // index in Message.Recipients

	end *Outcome
}

// Cancel ends the selected recipients for their sender, without a report. When it returns without error, that
// is durable: of the recipients that it counts nothing leaves after that. Leased ones go when they come back,
// unless the attempt delivers them; Outcome says how that ended. Config.OnRemoved is called as for Remove.
// ErrUnknown is as with Change.
//
// It works through the queue bit by bit, and keeps nobody waiting meanwhile.
func (q *Queue) Cancel(sel Selector) (*Cancellation, error) {
	done := &Cancellation{q: q}
	n, err := q.do(sel, &changer{q: q, a: Cancel, out: done})
	done.Cancelled = n - len(done.Leased)
	return done, err
}

// follow has the end of a leased recipient noted. The caller has q.mu.
func (c *Cancellation) follow(e *schedule.Entry) {
	key := recipientKey{e.ID, e.Rcpt}
	end := c.q.rcpts.followed[key]
	if end == nil {
		end = new(Outcome)
		c.q.rcpts.followed[key] = end
	}
	c.Leased = append(c.Leased, Followed{envelope.ID(e.ID), int(e.Rcpt), end})
}

// gone notes recipients of a message that have left. The caller has q.mu.
func (c *Cancellation) gone(id uint64, rcpts []uint16) {
	for _, r := range rcpts[:min(len(rcpts), maxGone-len(c.Gone))] {
		c.Gone = append(c.Gone, Followed{ID: envelope.ID(id), Recipient: int(r)})
	}
}

// Outcome returns how it ended for a recipient; false as long as it has not come back.
func (c *Cancellation) Outcome(f Followed) (Outcome, bool) {
	c.q.mu.Lock()
	defer c.q.mu.Unlock()
	return *f.end, *f.end != 0
}

// noteEnd notes the end of a recipient for whoever follows it. The caller has q.mu.
func (q *Queue) noteEnd(key recipientKey, o Outcome) {
	if len(q.rcpts.followed) == 0 {
		return
	}
	if end := q.rcpts.followed[key]; end != nil {
		*end = o
		delete(q.rcpts.followed, key)
	}
}
