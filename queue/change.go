package queue

import (
	"errors"
	"fmt"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
)

// Action is what an operator does to recipients. It acts in every state; on a leased one when it
// comes back, unless it is settled then.
type Action uint8

const (
	Hold           Action = 1 + iota // make no attempts until it is unheld; it expires all the same
	Unhold                           // go on as before
	RetryNow                         // attempt it now, or try again to read it; scheduled mail keeps its time
	Bounce                           // report it as undeliverable to its sender, and settle it
	Remove                           // settle it without a report
	RetryScheduled                   // as RetryNow, and release what was scheduled before its time
	UnholdToRetry                    // as Unhold, but hand nothing out yet: RetryNow or RetryScheduled follows
	Cancel                           // as Remove, for its sender: see Queue.Cancel

	countScheduled // nothing: count what RetryNow leaves to its time
)

// String gives the operator's word.
func (a Action) String() string {
	switch a {
	case Hold:
		return "hold"
	case Unhold, UnholdToRetry:
		return "release"
	case RetryNow, RetryScheduled:
		return "retry"
	case Bounce:
		return "bounce"
	case Remove:
		return "remove"
	case Cancel:
		return "cancel"
	}
	return "unknown"
}

// Selector says which recipients an action is for: those of some messages, those that a filter
// selects, or what both select.
type Selector struct {
	IDs    []envelope.ID
	Filter Filter
	All    bool // must be set when neither IDs nor Filter say anything
}

// Change does a to the selected recipients and returns for how many it made, or with dryRun
// would make, a difference. What it did is durable when it returns without error. ErrUnknown
// says that a message asked for by id is not in the queue; the others are changed all the same.
func (q *Queue) Change(sel Selector, a Action, dryRun bool) (n int, err error) {
	if a < Hold || a > UnholdToRetry {
		return 0, fmt.Errorf("queue: action %d is none", a)
	}
	if len(sel.IDs) == 0 && !sel.All && sel.Filter.isZero() {
		return 0, errors.New("queue: nothing is selected: give ids or a filter, or ask for all")
	}
	return q.change(sel, a, dryRun)
}

// Scheduled counts the selected recipients that RetryNow leaves to the time that their sender asked for.
func (q *Queue) Scheduled(sel Selector) (n int, err error) {
	return q.change(sel, countScheduled, true)
}

func (q *Queue) change(sel Selector, a Action, dryRun bool) (n int, err error) {
	return q.do(sel, &changer{q: q, a: a, dryRun: dryRun})
}

// do has a changer change what is selected, and makes that durable.
func (q *Queue) do(sel Selector, c *changer) (n int, err error) {
	if len(sel.IDs) > 0 {
		err = c.byID(sel)
	} else {
		w := q.newWalker(sel.Filter, false, 0)
		for {
			m, env := w.next()
			if m == nil {
				break
			}
			c.add(m, env)
		}
	}
	c.apply()
	if c.n > 0 && !c.dryRun {
		if ferr := q.w.flush(); ferr != nil {
			err = fmt.Errorf("the change is in force, but not durable yet: %w", ferr)
		}
	}
	return c.n, err
}

func (f *Filter) isZero() bool {
	return len(f.States) == 0 && f.Key == (parking.Key{}) && f.OlderThan == 0 && f.NewerThan == 0 && !f.needsEnvelope()
}

// changer applies an action, some messages at a time.
type changer struct {
	q       *Queue
	a       Action
	dryRun  bool
	n       int
	batch   []target
	pending int           // recipients in batch
	removed []Item        // of batch, that were
	out     *Cancellation // of Cancel: where those are noted that come back later
}

type target struct {
	id    uint64
	rcpts []uint16
	item  Item // to be told of, when it is removed
}

// byID selects messages by id; the filter, if any, must select them too.
func (c *changer) byID(sel Selector) error {
	var missing []error
	for _, id := range sel.IDs {
		if _, ok := c.q.lookUp(uint64(id)); !ok {
			missing = append(missing, fmt.Errorf("message %s: %w", id, ErrUnknown))
			continue
		}
		if found := c.q.pickOne(uint64(id), sel.Filter); found != nil {
			c.add(found, nil)
		}
	}
	return errors.Join(missing...)
}

// add takes a message into the batch. env is nil when it was not read yet.
func (c *changer) add(m *candidate, env *envelope.Message) {
	t := target{id: m.id}
	if c.removes() && !c.dryRun && c.q.cfg.OnRemoved != nil {
		t.item = c.q.item(m, env)
		t.item.Cancelled = c.a == Cancel
	}
	for i := range m.rcpts {
		t.rcpts = append(t.rcpts, m.rcpts[i].entry.Rcpt)
	}
	c.batch = append(c.batch, t)
	if c.pending += len(t.rcpts); c.pending >= atOnce/4 {
		c.apply()
	}
}

// removes reports whether the action ends recipients without a report.
func (c *changer) removes() bool { return c.a == Remove || c.a == Cancel }

// apply changes the batch, and reports what it removed.
func (c *changer) apply() {
	q := c.q
	q.mu.Lock()
	for i := range c.batch {
		if !q.ended {
			c.message(&c.batch[i])
		}
	}
	q.table.Tidy()
	q.mu.Unlock()
	for i := range c.removed {
		q.cfg.OnRemoved(c.removed[i])
	}
	c.batch, c.pending, c.removed = c.batch[:0], 0, c.removed[:0]
}

// message changes the recipients of one message, and has it written down.
func (c *changer) message(t *target) {
	q := c.q
	var removed []uint16
	var seg *segment
	changed := map[change0][]uint16{}
	for _, r := range t.rcpts {
		s, e := q.table.Find(t.id, r)
		if e == nil || !c.matters(e) {
			continue
		}
		c.n++
		if c.dryRun {
			continue
		}
		if c.out != nil && e.State() == schedule.Leased {
			c.out.follow(e)
		}
		if c.removes() && e.State() != schedule.Leased {
			removed = append(removed, r)
			continue
		}
		seg = q.segs.of(e.Data())
		due := c.do(s, e)
		key := change0{due, marksOf(e)}
		changed[key] = append(changed[key], r)
	}
	for k, rcpts := range changed {
		q.noteChange(t.id, seg, change{due: k.due, marks: k.marks, rcpts: sorted(rcpts)})
	}
	removed = sorted(removed)
	q.settle(t.id, removed, Removed)
	if c.out != nil {
		c.out.gone(t.id, removed)
	}
	if len(removed) > 0 && q.cfg.OnRemoved != nil {
		c.removed = append(c.removed, t.item.only(removed))
	}
	if len(changed) > 0 && !c.dryRun && c.a != RetryNow && c.a != RetryScheduled && c.a != Unhold && c.a != UnholdToRetry {
		q.evict(t.id)
	}
}

// change0 is what recipients that are written down together have in common.
type change0 struct {
	due   uint32
	marks marks
}

// matters reports whether the action makes a difference to an entry.
func (c *changer) matters(e *schedule.Entry) bool {
	s, asked := e.State(), e.Action()
	switch c.a {
	case Hold:
		return s != schedule.Held && s != schedule.Unreadable && asked != schedule.Hold && !asked.Removes()
	case Unhold, UnholdToRetry:
		return s == schedule.Held || asked == schedule.Hold
	case RetryNow, RetryScheduled:
		if c.a == RetryNow && c.q.scheduledLater(e) {
			return false
		}
		return s == schedule.Deferred || s == schedule.Parked || s == schedule.Unreadable || s == schedule.Leased && asked == schedule.Nothing
	case countScheduled:
		return c.q.scheduledLater(e)
	case Bounce:
		return s != schedule.Unreadable && asked != schedule.Bounce && asked != schedule.Bouncing && !asked.Removes()
	}
	return c.a == Cancel && s == schedule.Leased || !asked.Removes() // Remove, Cancel
}

// soon is when what was released is tried if no retry follows, in seconds.
const soon = 60

// do changes an entry. It returns when the entry is due if that was changed, else 0.
func (c *changer) do(s schedule.Slot, e *schedule.Entry) (due uint32) {
	q, now := c.q, c.q.seconds()
	if e.State() == schedule.Leased {
		e.SetAction(map[Action]schedule.Action{
			Hold: schedule.Hold, Unhold: schedule.Nothing, UnholdToRetry: schedule.Nothing, RetryNow: schedule.Retry, RetryScheduled: schedule.Retry, Bounce: schedule.Bounce, Remove: schedule.Remove, Cancel: schedule.Cancel,
		}[c.a])
		return 0
	}
	q.unlist(s, e)
	switch c.a {
	case Hold:
		e.SetAction(schedule.Nothing)
		q.table.SetState(e, schedule.Held)
	case Unhold:
		if e.Due > now {
			q.deferEntry(s, e)
		} else {
			q.makeDue(s, e, now)
		}
	case UnholdToRetry:
		// Handed out now, it would be under way when the retry comes, and be tried twice.
		due := max(e.Due, now+soon)
		changed := due != e.Due
		e.Due = due
		q.deferEntry(s, e)
		if changed {
			return due
		}
	case RetryNow, RetryScheduled:
		e.Due = now
		q.makeDue(s, e, now)
		return now
	case Bounce:
		q.end(s, e, schedule.Bouncing)
	}
	return 0
}
