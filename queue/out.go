package queue

import (
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/view"
)

// Leased is a recipient that was handed out.
type Leased struct {
	ID        envelope.ID
	Recipient int
	Ending    bool // as in ItemRecipient
	AgeClass  int  // index in Count.Ages
}

// Out calls each with what was handed out, without a lock. It costs what that is, whatever is queued.
func (q *Queue) Out(each func(Leased)) {
	q.mu.Lock()
	var ids []uint64
	for id, h := range q.cache.hot {
		if h.leases > 0 {
			ids = append(ids, id)
		}
	}
	q.mu.Unlock()
	var out []Leased
	for some := range slices.Chunk(ids, atOnce) {
		out = q.outOf(some, out[:0])
		for i := range out {
			each(out[i])
		}
	}
}

// outOf appends what was handed out of some messages.
func (q *Queue) outOf(ids []uint64, to []Leased) []Leased {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, id := range ids {
		q.s.Run(id, func(_ schedule.Slot, e *schedule.Entry) bool {
			if e.State() == schedule.Leased {
				to = append(to, Leased{envelope.ID(id), int(e.Rcpt), e.Action().Ends(),
					view.AgeClass(q.now().Sub(q.s.Arrivals.Of(id)))})
			}
			return true
		})
	}
	return to
}
