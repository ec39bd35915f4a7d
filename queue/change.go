package queue

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

const (
	countScheduled = Transfer + 1 + iota // nothing: count what RetryNow leaves to its time
	reroute                              // see Queue.Reroute
)

// retries reports whether the action is a retry, and keepsTime and keepsHeld what it leaves alone.
func retries(a Action) bool {
	return a == RetryNow || a == RetryScheduled || a == RetryHeld || a == RetryHeldScheduled
}
func keepsTime(a Action) bool { return a == RetryNow || a == RetryHeld }
func keepsHeld(a Action) bool { return a == RetryNow || a == RetryScheduled }

// Selector says which recipients an action is for: those of some messages, those that a filter
// selects, or what both select.
type Selector struct {
	IDs    []envelope.ID
	Filter Filter
	All    bool // must be set when neither IDs nor Filter say anything

	Counted *Counted // exactly these, if not nil; the others are without effect

	Pause func() // called now and then while recipients are looked for, for work that gives way; may be nil
}

// Change does a to the selected recipients and returns for how many it made, or with dryRun
// would make, a difference. What it did is durable when it returns without error. ErrUnknown
// says that a message asked for by id is not in the queue; the others are changed all the same.
func (q *Queue) Change(sel Selector, a Action, dryRun bool) (n int, err error) {
	if a < Hold || a > RetryHeldScheduled && a != Transfer {
		return 0, fmt.Errorf("queue: %d is not a valid action", a)
	}
	if err := sel.check(); err != nil {
		return 0, err
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
	switch {
	case sel.Counted != nil:
		c.byCount(sel.Counted)
	case len(sel.IDs) > 0:
		err = c.byID(sel)
	default:
		w := q.Walk(sel.Filter, false, 0)
		w.Pause = sel.Pause
		for {
			m, env := w.Next()
			if m == nil {
				break
			}
			c.add(m, env)
		}
	}
	c.apply()
	c.records.Wait()
	if c.n > 0 && !c.dryRun {
		if ferr := q.w.flush(); ferr != nil {
			err = fmt.Errorf("the change is in force, but not durable yet: %w", ferr)
		}
	}
	return c.n, err
}

// changer applies an action, some messages at a time.
type changer struct {
	q       *Queue
	a       Action
	dryRun  bool
	counted *Counted // of a dry run: takes what would be changed; may be nil
	n       int
	batch   []target
	pending int    // recipients in batch
	removed []Item // of batch, that are to be recorded
	records sync.WaitGroup
	out     *Cancellation // of Cancel: where those are noted that come back later

	to    envelope.Detour // of reroute
	stale []target        // messages of reroute whose last attempts have changed since they were read
}

type target struct {
	id    uint64
	rcpts []uint16
	item  Item // to be told of, when it is removed

	last  []Attempt      // of reroute: at each of rcpts
	notes []schedule.Loc // where those were read
}

// byID selects messages by id; the filter, if any, must select them too.
func (c *changer) byID(sel Selector) error {
	var missing []error
	for _, id := range sel.IDs {
		if _, ok := c.q.LookUp(uint64(id)); !ok {
			missing = append(missing, fmt.Errorf("message %s: %w", id, ErrUnknown))
			continue
		}
		if found := c.q.PickOne(uint64(id), sel.Filter); found != nil {
			c.add(found, nil)
		}
	}
	return errors.Join(missing...)
}

// add takes a message into the batch. env is nil when it was not read yet.
func (c *changer) add(m *view.Candidate, env *envelope.Message) {
	if c.a == Cancel {
		last := c.q.readAttempts(m)
		for i := len(last) - 1; i >= 0; i-- {
			if last[i].Reply.OK() { // delivered: only the report to its sender is outstanding
				m.Rcpts = slices.Delete(m.Rcpts, i, i+1)
			}
		}
		if len(m.Rcpts) == 0 {
			return
		}
	}
	t := target{id: m.ID, rcpts: m.Numbers()}
	if c.removes() && !c.dryRun && c.q.cfg.OnRemoved != nil {
		t.item = c.q.Item(m, env)
	}
	if c.a == reroute {
		t.last = c.q.readAttempts(m)
		for i := range m.Rcpts {
			t.notes = append(t.notes, m.Rcpts[i].Note())
		}
	}
	c.batch = append(c.batch, t)
	if c.pending += len(t.rcpts); c.pending >= atOnce/4 {
		c.apply()
	}
}

// removes reports whether the action ends recipients without a report.
func (c *changer) removes() bool { return c.a == Remove || c.a == Cancel || c.a == Transfer }

// apply changes the batch, and reports what it removed.
func (c *changer) apply() {
	q := c.q
	q.mu.Lock()
	for i := range c.batch {
		switch {
		case q.ended:
		case c.a == reroute:
			c.detour(&c.batch[i])
		default:
			c.message(&c.batch[i])
		}
	}
	q.s.Tidy()
	q.mu.Unlock()
	if len(c.removed) > 0 {
		c.records.Add(1)
		q.remove(c.removed, c.records.Done)
	}
	stale := c.stale
	c.batch, c.pending, c.removed, c.stale = c.batch[:0], 0, nil, nil
	for _, t := range stale {
		if m, ok := q.LookUp(t.id); ok {
			m.Keep(t.rcpts)
			c.add(&m, nil)
		}
	}
	if len(stale) > 0 {
		c.apply()
	}
}

// message changes the recipients of one message, and has it written down.
func (c *changer) message(t *target) {
	q := c.q
	var removed, counted []uint16
	changed := map[uint32][]uint16{} // by when they are due, if that was changed
	for _, r := range t.rcpts {
		s, e := q.s.Find(t.id, r)
		if e == nil || !c.matters(e) {
			if c.out != nil && e != nil && e.Action().Leaves() {
				c.out.Withheld++
			}
			continue
		}
		c.n++
		if c.dryRun {
			counted = append(counted, r)
			continue
		}
		if c.out != nil && e.State() == schedule.Leased {
			c.out.follow(e)
		}
		if c.removes() && e.State() != schedule.Leased {
			removed = append(removed, r)
			continue
		}
		due := c.do(s, e)
		changed[due] = append(changed[due], r)
	}
	c.count(t.id, counted)
	for due, rcpts := range changed {
		q.noteMarks(t.id, rcpts, store.Change{Due: due})
	}
	removed = sorted(removed)
	if c.out != nil {
		c.out.gone(t.id, removed)
	}
	if len(removed) > 0 && q.cfg.OnRemoved != nil {
		c.removed = append(c.removed, t.item.Only(removed, c.a))
		q.setEnding(t.id, removed, c.a)
	} else {
		q.settle(t.id, removed, Removed)
	}
	if len(changed) > 0 && !c.dryRun && !retries(c.a) && c.a != Unhold {
		q.cache.evict(t.id)
	}
}

// count notes recipients of a message that would be changed.
func (c *changer) count(id uint64, rcpts []uint16) {
	if c.counted != nil && len(rcpts) > 0 {
		c.counted.add(id, rcpts)
	}
}

// matters reports whether the action makes a difference to an entry.
func (c *changer) matters(e *schedule.Entry) bool {
	s, asked := e.State(), e.Action()
	switch c.a {
	case Hold:
		return s != schedule.Held && s != schedule.Unreadable && asked != schedule.Hold && !asked.Removes()
	case Unhold:
		return s == schedule.Held || asked == schedule.Hold
	case RetryNow, RetryScheduled, RetryHeld, RetryHeldScheduled:
		if !keepsHeld(c.a) && (s == schedule.Held || asked == schedule.Hold) {
			return true
		}
		if keepsTime(c.a) && c.q.scheduledLater(e) {
			return false
		}
		return s == schedule.Deferred || s == schedule.Parked || s == schedule.Unreadable ||
			s == schedule.Leased && !asked.Asks()
	case countScheduled:
		return c.q.scheduledLater(e)
	case reroute:
		return s != schedule.Unreadable && !asked.Ends() && asked != schedule.Bounce && !asked.Removes()
	case Bounce:
		return s != schedule.Unreadable && asked != schedule.Bounce && asked != schedule.Bouncing && !asked.Removes()
	}
	// Remove, Cancel, Transfer
	return c.a == Cancel && s == schedule.Leased && asked != schedule.Transfer || c.a == Transfer && asked.Leaves() ||
		!asked.Removes()
}

// do changes an entry. It returns when the entry is due if that was changed, else 0.
func (c *changer) do(s schedule.Slot, e *schedule.Entry) (due uint32) {
	q, now := c.q, c.q.seconds()
	if e.State() == schedule.Leased {
		e.SetAction(view.Notes[c.a])
		return 0
	}
	q.unlist(s, e)
	switch c.a {
	case Hold:
		e.SetAction(schedule.Nothing)
		q.s.SetState(s, schedule.Held)
	case Unhold:
		if e.Due > now {
			q.deferEntry(s, e)
		} else {
			q.makeDue(s, e, now)
		}
	case RetryNow, RetryScheduled, RetryHeld, RetryHeldScheduled:
		if keepsTime(c.a) && q.scheduledLater(e) { // it was held
			q.deferEntry(s, e)
			return 0
		}
		e.Due = now
		q.makeDue(s, e, now)
		return now
	case Bounce:
		q.end(s, e, schedule.Bouncing)
	}
	return 0
}
