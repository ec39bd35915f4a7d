package queue

import (
	"math"
	"time"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// expiries is when messages are given up that their senders gave a time for.
type expiries struct {
	schedule.Moments
	// soonest is no later than any of those times; 0 when there is none.
	soonest uint32
}

func (x *expiries) add(id uint64, at uint32) {
	x.Moments.Add(id, at)
	if x.soonest == 0 || at < x.soonest {
		x.soonest = at
	}
}

// expire gives up the messages whose time has come. It looks through all that have one, a part at a time, and
// only when one has come: the times of messages that go to the same campaign are mostly the same.
func (s *sweeper) expire(now time.Time) {
	q, at := s.q, uint32(now.Unix())
	q.mu.Lock()
	if q.few.expiries.soonest == 0 || q.few.expiries.soonest > at {
		q.mu.Unlock()
		return
	}
	q.few.expiries.soonest = 0 // add and expirePart find it again
	q.mu.Unlock()
	for from, more := uint64(0), true; more; {
		from, more = s.expirePart(at, from)
	}
}

// expirePart looks at some messages from an id on, and says where to go on.
func (s *sweeper) expirePart(at uint32, from uint64) (next uint64, more bool) {
	q := s.q
	q.mu.Lock()
	defer q.mu.Unlock()
	i, _ := q.few.expiries.Search(from)
	looked, ended := 0, 0
	for ; i < len(q.few.expiries.All); i++ {
		x := q.few.expiries.All[i]
		if looked++; looked > 16*atOnce || ended > atOnce {
			return x.ID, true
		}
		if x.Gone {
			continue
		}
		if q.few.expiries.soonest == 0 || x.At < q.few.expiries.soonest {
			q.few.expiries.soonest = x.At
		}
		if x.At <= at {
			ended += s.expireMessage(x.ID)
		}
	}
	return 0, false
}

// expireMessage has all recipients of a message handed out as expired, except for those that are leased, which
// are found again when they come back. It returns how many it looked at.
func (s *sweeper) expireMessage(id uint64) (n int) {
	q := s.q
	q.s.Run(id, func(slot schedule.Slot, e *schedule.Entry) bool {
		n++
		if expirable(e) {
			q.unlist(slot, e)
			q.end(slot, e, schedule.Expiring)
		}
		return true
	})
	return n
}

// waits is until when messages that wait in lines do so at most, in seconds since 1970. Those are left out that
// may stay as long as any.
type waits struct {
	until   map[uint64]uint32 // by id; what has left its line since is still there
	soonest uint32            // no later than any of those; 0 when there is none
}

// waitUntil has what is parked of a message made due at a time, or at an earlier one that is known.
func (q *Queue) waitUntil(id uint64, until time.Time) {
	longest := age(q.cfg.MaxAge)
	if until.IsZero() || longest > 0 && !until.Before(q.s.Start(id).Add(longest)) {
		return
	}
	q.few.waits.add(id, store.SecondsOf(until))
}

func (w *waits) add(id uint64, at uint32) {
	if known, ok := w.until[id]; ok && known <= at {
		return
	}
	if w.until == nil {
		w.until = make(map[uint64]uint32)
	}
	w.until[id] = at
	if w.soonest == 0 || at < w.soonest {
		w.soonest = at
	}
}

// hasten has none wait beyond a time.
func (w *waits) hasten(at uint32) {
	for id, until := range w.until {
		w.until[id] = min(until, at)
	}
	w.soonest = min(w.soonest, at)
}

// endWaits makes due what is parked of messages whose time has come.
func (s *sweeper) endWaits(w *waits, now time.Time) {
	q, at := s.q, uint32(now.Unix())
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.soonest == 0 || w.soonest > at {
		return
	}
	w.soonest = 0 // add and the loop find it again
	looked := 0
	for id, until := range w.until {
		if until <= at {
			delete(w.until, id)
			q.s.Run(id, func(slot schedule.Slot, e *schedule.Entry) bool {
				looked++
				q.unpark(slot, e, at)
				return true
			})
		} else if w.soonest == 0 || until < w.soonest {
			w.soonest = until
		}
		if looked++; looked > atOnce {
			looked = 0
			q.mu.Unlock() // for others
			q.mu.Lock()
		}
	}
}

// unpark makes an entry due if it is parked.
func (q *Queue) unpark(slot schedule.Slot, e *schedule.Entry, now uint32) {
	if e.State() == schedule.Parked {
		q.unlist(slot, e)
		q.makeDue(slot, e, now)
	}
}

// Unpark makes due all that is parked: what it waits for, and how long, is to be decided anew.
func (q *Queue) Unpark() {
	now := q.seconds()
	q.eachBefore(math.MaxUint64, func(slot schedule.Slot, e *schedule.Entry) { q.unpark(slot, e, now) })
}

// expirable reports whether a recipient can be given up: nobody holds it, and that has not begun yet.
func expirable(e *schedule.Entry) bool {
	switch e.State() {
	case schedule.Leased, schedule.Ending, schedule.Unreadable:
		return false
	case schedule.Deferred: // the report failed, and its time to be tried again is set
		return !e.Action().Ends()
	}
	return true
}
