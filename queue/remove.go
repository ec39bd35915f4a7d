package queue

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/view"
)

// A recipient that is removed is in the state Ending, on no list and with the action Remove, Cancel or Transfer, until
// Config.OnRemoved has it recorded. What was leased when the removal was asked for is marked in the journal as
// well, so that a crash does not bring it back; anything else is in the queue again after a crash, as whoever
// asked got no answer yet.

// setEnding takes living recipients off their lists, to be removed.
func (q *Queue) setEnding(id uint64, rcpts []uint16, a Action) {
	for _, r := range rcpts {
		s, e := q.s.Find(id, r)
		q.unlist(s, e)
		e.SetAction(view.Notes[a])
		q.s.SetState(s, schedule.Ending)
	}
}

// removal begins the end of leased recipients that settleDown has set ending. It returns what is to be
// called without mu.
func (q *Queue) removal(id uint64, rcpts []uint16) func() {
	h := q.cache.hot[id]
	if len(rcpts) == 0 || q.cfg.OnRemoved == nil || h == nil {
		q.settle(id, rcpts, Removed)
		return func() {}
	}
	it := Item{Message: *h.msg, Total: len(h.msg.Recipients)}
	it.ID = envelope.ID(id)
	for _, r := range rcpts {
		_, e := q.s.Find(id, r)
		it.Recipients = append(it.Recipients, ItemRecipient{
			Index: int(r), Address: h.msg.Recipients[r].Address, State: StateEnding, Line: q.s.Keys.Line(e.Key),
			Attempts: int(e.Attempts()), Asked: view.AskedFor[e.Action()],
		})
	}
	return func() { q.remove([]Item{it}, func() {}) }
}

// remove has recipients recorded that were set ending, and settles them then. It is called without mu.
func (q *Queue) remove(items []Item, done func()) {
	q.cfg.OnRemoved(items, func() {
		defer done()
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.ended {
			return
		}
		for i := range items {
			q.settle(uint64(items[i].ID), q.stillEnding(&items[i]), Removed)
		}
		q.s.Tidy()
	})
}

// stillEnding gives those of an item's recipients that were set ending, and are so still.
func (q *Queue) stillEnding(it *Item) (rcpts []uint16) {
	for i := range it.Recipients {
		r := uint16(it.Recipients[i].Index)
		if _, e := q.s.Find(uint64(it.ID), r); e != nil && e.State() == schedule.Ending && e.Action().Removes() {
			rcpts = append(rcpts, r)
		}
	}
	return sorted(rcpts)
}

// finishRemovals removes what an operator asked to be removed when the last attempt would be
// over, and the process ended first.
func (q *Queue) finishRemovals() {
	doomed := map[uint64][]uint16{}
	q.mu.Lock()
	if q.s.Count(schedule.Unreadable) > 0 {
		q.s.Ascend(0, func(_ schedule.Slot, e *schedule.Entry) bool {
			if e.State() == schedule.Unreadable && e.Action().Removes() {
				doomed[e.ID] = append(doomed[e.ID], e.Rcpt)
			}
			return true
		})
	}
	for id, rcpts := range doomed {
		for _, r := range rcpts {
			s, _ := q.s.Find(id, r)
			q.s.SetState(s, schedule.Ending)
		}
	}
	q.mu.Unlock()
	for id, rcpts := range doomed {
		q.finishRemoval(id, rcpts)
	}
}

// finishRemoval removes recipients of a message that is not in memory, and were set ending.
func (q *Queue) finishRemoval(id uint64, rcpts []uint16) {
	c, ok := q.LookUp(id)
	if !ok {
		return
	}
	if q.cfg.OnRemoved == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.settle(id, rcpts, Removed)
		q.s.Tidy()
		return
	}
	c.Keep(rcpts)
	q.remove([]Item{q.Item(&c, nil)}, func() {})
}
