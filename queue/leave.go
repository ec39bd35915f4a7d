package queue

import (
	"errors"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

// A recipient that leaves for another relay is withheld: it is in the state Ending, on no list and with the action
// Leaving or LeavingHeld, so that nobody attempts, expires or changes it. It goes by Change with Transfer, once the
// other relay has it, or comes back by Stay. All that is in memory only: after a restart it is as it was, unless
// Withhold is called for it before mail is handed out.

// Leave is Export for mail that is on its way to another relay: it withholds each message that skip does not report,
// and calls each with it. When each returns an error, the message that it was called with is withheld, too. What is
// ending or withheld already is left alone. Of what is handed out recall is called with the message: it has those come
// back that nobody attempts yet, who then wait for the next call of Leave, for half a minute.
func (q *Queue) Leave(sel Selector, skip func(envelope.ID) bool, recall func(envelope.ID),
	each func(*Exported) error) (w Withheld, err error) {
	err = q.exportBy(sel, func(c *view.Candidate) error {
		if skip(envelope.ID(c.ID)) {
			return nil
		}
		out := w.InDelivery
		rcpts := q.withhold(c.ID, c.Numbers(), &w, false)
		if w.InDelivery > out {
			recall(envelope.ID(c.ID))
		}
		if len(rcpts) == 0 {
			return nil
		}
		c.Keep(rcpts)
		x := q.exported(c, &sel.Filter, &w, true)
		if x == nil {
			q.Stay(envelope.ID(c.ID), ints(rcpts))
			return nil
		}
		if len(x.Recipients) < len(rcpts) {
			q.stayBut(x, rcpts)
		}
		return each(x)
	})
	return w, err
}

// stayBut has those of a message's recipients stay that x has not.
func (q *Queue) stayBut(x *Exported, rcpts []uint16) {
	q.Stay(x.Message.ID, slices.DeleteFunc(ints(rcpts), func(r int) bool {
		_, leaves := slices.BinarySearch(x.Recipients, r)
		return leaves
	}))
}

func ints(rcpts []uint16) []int {
	all := make([]int, len(rcpts))
	for i, r := range rcpts {
		all[i] = int(r)
	}
	return all
}

// Withhold withholds recipients that were withheld when an earlier process has ended: another relay may have them. It
// returns how many are in the queue. It is called before mail is handed out, and those that have expired since the
// start are withheld, too: their senders must get no report.
func (q *Queue) Withhold(id envelope.ID, recipients []int) int {
	rcpts := make([]uint16, 0, len(recipients))
	for _, r := range recipients {
		if r >= 0 && r <= store.MaxRecipients {
			rcpts = append(rcpts, uint16(r))
		}
	}
	return len(q.withhold(uint64(id), rcpts, new(Withheld), true))
}

// Withheld returns a message with those of its recipients that are withheld, nil when none are. An error says that some
// are, and that the message can't be read.
func (q *Queue) Withheld(id envelope.ID, recipients []int) (*Exported, error) {
	c, ok := q.LookUp(uint64(id))
	if !ok {
		return nil, nil
	}
	c.Rcpts = slices.DeleteFunc(c.Rcpts, func(r view.Recipient) bool {
		_, asked := slices.BinarySearch(recipients, int(r.Rcpt))
		return !asked || !r.Action().Leaves()
	})
	if len(c.Rcpts) == 0 {
		return nil, nil
	}
	if _, err := q.envelopeOf(uint64(id), nil); err != nil && !errors.Is(err, ErrUnknown) {
		return nil, err
	}
	return q.exported(&c, new(Filter), new(Withheld), true), nil
}

// withhold returns those of a message's recipients that it has withheld; expired ones only where that is asked for.
func (q *Queue) withhold(id uint64, rcpts []uint16, w *Withheld, expired bool) (withheld []uint16) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return nil
	}
	for _, r := range rcpts {
		s, e := q.s.Find(id, r)
		switch {
		case e == nil, e.Action().Leaves():
		case e.State() == StateUnreadable:
			w.Unreadable++
		case e.State() == StateLeased:
			w.InDelivery++
			if !e.Action().Asks() {
				e.SetAction(schedule.Recall)
			}
		case (e.State() == StateEnding || e.Action() != schedule.Nothing) &&
			!(expired && e.Action() == schedule.Expiring):
			w.Ending++
		default:
			q.unlist(s, e)
			e.SetAction(schedule.Leaving)
			if e.State() == StateHeld {
				e.SetAction(schedule.LeavingHeld)
			}
			q.s.SetState(s, schedule.Ending)
			withheld = append(withheld, r)
		}
	}
	return sorted(withheld)
}

// leaveWithin is how long recipients wait to leave that have come back for that: a pass can take some seconds.
const leaveWithin = 30 * time.Second

// awaitLeave has an entry that is due wait to leave. If it does not in time, it is due again.
func (q *Queue) awaitLeave(s schedule.Slot, e *schedule.Entry) {
	q.unlist(s, e)
	q.s.Keys.Set(e, q.s.Keys.Number(parking.Line{Key: q.s.Keys.Key(e.Key)}))
	q.s.SetState(s, schedule.Parked)
	q.s.Keys.Park(s)
	q.few.recalled.add(e.ID, store.SecondsOf(q.now().Add(leaveWithin)))
}

// Stay has recipients stay in the queue that are withheld, as they were.
func (q *Queue) Stay(id envelope.ID, recipients []int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended {
		return
	}
	now := q.seconds()
	for _, r := range recipients {
		s, e := q.find(id, r)
		if e == nil || !e.Action().Leaves() {
			continue
		}
		held := e.Action() == schedule.LeavingHeld
		e.SetAction(schedule.Nothing)
		switch {
		case held:
			q.s.SetState(s, schedule.Held)
		case e.Due > now:
			q.deferEntry(s, e)
		default:
			q.makeDue(s, e, now)
		}
	}
}
