package queue

import (
	"fmt"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

// Reroute has the selected recipients take a detour from now on, or with the zero one their own way again, and makes
// those due that wait for anything but the time for which they were submitted. What is held stays held. A recipient
// that is leased is due again when it comes back, unless it is settled then. The detour stays with a recipient until
// it leaves the queue. What is returned, and how durable it is, is as for Change.
func (q *Queue) Reroute(sel Selector, to envelope.Detour, dryRun bool) (n int, err error) {
	if err := sel.check(); err != nil {
		return 0, err
	}
	if form := q.form(); form < store.WithDetours {
		return 0, fmt.Errorf("queue: format %d has no reroutes: finish the upgrade first, with 'mta upgrade finish'",
			form)
	}
	return q.do(sel, &changer{q: q, a: reroute, to: to, dryRun: dryRun})
}

// readAttempts gives the last attempt at each recipient of a candidate. What can't be read is left out and logged.
func (q *Queue) readAttempts(m *view.Candidate) []Attempt {
	all := make([]Attempt, len(m.Rcpts))
	replies := store.ReplyReader{Dir: q.dir}
	for i := range m.Rcpts {
		all[i], _ = q.attemptAt(&replies, &m.Rcpts[i].Entry)
	}
	return all
}

// attemptAt gives the last attempt at a recipient; false when there was none, or it can't be read, which is logged.
func (q *Queue) attemptAt(replies *store.ReplyReader, e *schedule.Entry) (Attempt, bool) {
	last, tried, err := q.lastAttempt(replies, e.ID, e.Rcpt)
	if err != nil {
		q.reportDamage(err, "the reply to the last attempt is lost; the message is not")
	}
	return last, tried && err == nil
}

// detour reroutes the recipients of one message. The last attempt is written again with its detour: that record is
// what a start, a lease and compaction look at.
func (c *changer) detour(t *target) {
	q := c.q
	by := map[deferral0]*store.Deferral{}
	var counted []uint16
	var seg *store.Segment
	for i, r := range t.rcpts {
		_, e := q.s.Find(t.id, r)
		if e == nil || !c.matters(e) {
			continue
		}
		last, known := q.rcpts.replies[recipientKey{t.id, r}]
		if !known {
			if last = t.last[i]; e.Note() != t.notes[i] {
				c.stale = append(c.stale, *t)
				return // nothing was changed: the notes of a message are looked at first
			}
		}
		t.last[i] = last
	}
	for i, r := range t.rcpts {
		s, e := q.s.Find(t.id, r)
		if e == nil || !c.matters(e) || c.to.IsZero() && t.last[i].Detour.IsZero() {
			continue
		}
		if c.n++; c.dryRun {
			counted = append(counted, r)
			continue
		}
		last := t.last[i]
		last.Detour = c.to
		seg = q.segs.Of(e.Data())
		due := c.leaveBy(s, e)
		q.rcpts.replies[recipientKey{t.id, r}] = last
		q.setNote(e, 0)
		key := deferral0{due, q.s.Keys.Line(e.Key).Text(), last}
		f := by[key]
		if f == nil {
			f = &store.Deferral{At: q.passed(), Due: due, Key: key.key, Last: last}
			by[key] = f
		}
		f.Rcpts, f.Attempts = append(f.Rcpts, r), append(f.Attempts, e.Attempts())
	}
	c.count(t.id, counted)
	for _, f := range by {
		q.w.note(store.KindDeferred, t.id, seg, 0, func(b []byte) []byte {
			return store.AppendDeferral(b, q.form(), f)
		})
	}
}

// deferral0 is what recipients that are written down together have in common.
type deferral0 struct {
	due  uint32
	key  string
	last Attempt
}

// leaveBy has an entry take the detour, and returns when it is due.
func (c *changer) leaveBy(s schedule.Slot, e *schedule.Entry) (due uint32) {
	q, now := c.q, c.q.seconds()
	switch e.State() {
	case schedule.Leased:
		q.rcpts.detours[recipientKey{e.ID, e.Rcpt}] = detour{c.to, true}
		if !e.Action().Asks() {
			e.SetAction(schedule.Retry)
		}
		return now
	case schedule.Held:
		return e.Due
	}
	if q.scheduledLater(e) {
		return e.Due
	}
	q.unlist(s, e)
	key := q.s.Keys.Key(e.Key)
	if key.Kind != parking.Site { // it waited for something on its old way
		key = parking.Key{}
	}
	q.s.Keys.Set(e, q.s.Keys.Number(parking.Line{Key: key}))
	e.Due = now
	q.makeDue(s, e, now)
	return now
}

// detour is that of a leased recipient.
type detour struct {
	envelope.Detour
	asked bool // since it was leased: whoever has the lease doesn't know it
}

// keepDetour notes the detour of a recipient that is being leased, unless it has another by now.
func (q *Queue) keepDetour(r recipientKey, d envelope.Detour) {
	if _, newer := q.rcpts.detours[r]; !newer && !d.IsZero() {
		q.rcpts.detours[r] = detour{Detour: d}
	}
}

// keepsDetour is the last attempt at a leased recipient as it is remembered: with the detour that it has.
func (q *Queue) keepsDetour(e *schedule.Entry, last Attempt) Attempt {
	if len(q.rcpts.detours) > 0 {
		last.Detour = q.rcpts.detours[recipientKey{e.ID, e.Rcpt}].Detour
	}
	return last
}

// forgetDetour ends what is known of the detour of a recipient while it is leased.
func (q *Queue) forgetDetour(e *schedule.Entry) {
	if len(q.rcpts.detours) > 0 {
		delete(q.rcpts.detours, recipientKey{e.ID, e.Rcpt})
	}
}
