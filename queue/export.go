package queue

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

// Standing is what the queue knows of a recipient beside the message: another queue goes on from there.
type Standing struct {
	Attempts int       // so far
	Due      time.Time // of the next attempt, in whole seconds; the zero time: at once
	Held     bool
	Warned   bool   // its sender was notified of the delay
	Site     string // that it waits for, or was tried at last; "": not known
	Tried    bool   // Last is there
	Last     Attempt
}

// Exported is a message with those of its recipients that can leave the queue for another one.
type Exported struct {
	Message    *envelope.Message // with all recipients that it was accepted for
	Recipients []int             // those that can leave, in ascending order
	Standings  []Standing        // of each of Recipients
}

// Withheld counts the recipients that were selected and can't leave the queue now.
type Withheld struct {
	InDelivery int // handed out
	Ending     int // their report is being written, or they are being removed
	Unreadable int
}

// Export calls each with the selected messages, in the order of their ids, as each is at the time of the call. Its
// error ends the export. An error that is ErrUnknown says that a message asked for by id is not in the queue; each was
// not called then. Nothing is changed.
func (q *Queue) Export(sel Selector, each func(*Exported) error) (w Withheld, err error) {
	err = q.exportBy(sel, func(c *view.Candidate) error {
		if x := q.exported(c, &sel.Filter, &w, false); x != nil {
			return each(x)
		}
		return nil
	})
	return w, err
}

// exportBy calls one with the selected messages.
func (q *Queue) exportBy(sel Selector, one func(*view.Candidate) error) error {
	if err := sel.check(); err != nil {
		return err
	}
	for _, id := range sel.IDs {
		if _, ok := q.LookUp(uint64(id)); !ok {
			return fmt.Errorf("message %s: %w", id, ErrUnknown)
		}
	}
	for _, id := range sel.IDs {
		if c := q.PickOne(uint64(id), sel.Filter); c != nil {
			if err := one(c); err != nil {
				return err
			}
		}
	}
	if len(sel.IDs) > 0 {
		return nil
	}
	walk := q.Walk(sel.Filter, false, 0)
	for c, _ := walk.Next(); c != nil; c, _ = walk.Next() {
		if err := one(c); err != nil {
			return err
		}
	}
	return nil
}

// exported looks again at a message that was selected: much can have happened since. It is nil when nothing of it can
// leave. leaving says that all its recipients are withheld.
func (q *Queue) exported(c *view.Candidate, f *Filter, w *Withheld, leaving bool) *Exported {
	now, ok := q.LookUp(c.ID)
	if !ok {
		return nil
	}
	m, err := q.envelopeOf(now.ID, nil)
	if errors.Is(err, ErrUnknown) {
		return nil
	}
	if err != nil {
		q.reportDamage(err, "message "+envelope.ID(now.ID).String()+" is left out of an export")
	}
	x := &Exported{Message: m}
	replies := store.ReplyReader{Dir: q.dir}
	now.Keep(c.Numbers())
	for i := range now.Rcpts {
		r := &now.Rcpts[i]
		e := &r.Entry
		if !leaving && len(f.States) > 0 && !slices.Contains(f.States, e.State()) {
			continue
		}
		switch {
		case err != nil || e.State() == StateUnreadable:
			w.Unreadable++
		case e.State() == StateLeased:
			w.InDelivery++
		case !leaving && (e.State() == StateEnding || e.Action() != schedule.Nothing):
			w.Ending++
		default:
			s := q.standing(r, &replies)
			if s.Last.Reply.OK() { // delivered: an earlier program would send it again
				w.Ending++
				continue
			}
			x.Recipients = append(x.Recipients, int(e.Rcpt))
			x.Standings = append(x.Standings, s)
		}
	}
	if len(x.Recipients) == 0 {
		return nil
	}
	return x
}

func (q *Queue) standing(r *view.Recipient, replies *store.ReplyReader) Standing {
	e := &r.Entry
	s := Standing{Attempts: int(e.Attempts()), Held: e.State() == StateHeld || e.Action() == schedule.LeavingHeld,
		Warned: e.Warned(), Site: r.Line.Site()}
	if e.Due > q.passed() {
		s.Due = time.Unix(int64(e.Due), 0).UTC()
	}
	s.Last, s.Tried = q.attemptAt(replies, e)
	return s
}

// Continue has the message of a draft enter the queue with the standings of its recipients, one for each: it was in
// another queue before. They are in one record with the message. Like Commit it must be called once the content is
// complete; the message's age counts from its Release, and Received must be now.
func (d *Draft) Continue(standings []Standing) {
	d.standings = standings
}

// appendStandings puts the standings into the form of a moved record: a message that comes from elsewhere is one that
// was moved here, and has no earlier place.
func (d *Draft) appendStandings(b []byte, p *store.Prelude) ([]byte, error) {
	if len(d.standings) != int(p.Rcpts) {
		return b, fmt.Errorf("queue: %d standings for %d recipients", len(d.standings), p.Rcpts)
	}
	states := make([]store.RecipientState, len(d.standings))
	for i := range d.standings {
		s := &d.standings[i]
		if p.Form < store.WithDetours && !s.Last.Detour.IsZero() {
			return b, fmt.Errorf(
				"queue: format %d has no reroutes: finish the upgrade first, with 'mta upgrade finish'", p.Form)
		}
		states[i] = store.RecipientState{
			Rcpt: uint16(i), Attempts: uint16(min(max(s.Attempts, 0), schedule.MaxAttempts)), Marks: s.marks(),
			Key: parking.Key{Name: s.Site}.String(), Replied: s.Tried, Last: s.Last,
		}
		if !s.Due.IsZero() {
			states[i].Due = store.SecondsOf(s.Due)
		}
	}
	at := len(b)
	b = store.AppendStates(b, p.Form, d.q.passed(), states)
	p.StateLen, p.StateCRC = uint32(len(b)-at), store.Checksum(0, b[at:])
	return b, nil
}

func (s *Standing) marks() (m store.Marks) {
	if s.Held {
		m |= store.MarkHeld
	}
	if s.Warned {
		m |= store.MarkWarned
	}
	return m
}

// enterStanding puts a recipient on the schedule as it stood elsewhere, and reports whether it is due. note is where
// its last attempt is written down.
func (q *Queue) enterStanding(e schedule.Entry, names schedule.Names, s *Standing, note schedule.Loc) (due bool) {
	e.SetAttempts(uint16(min(max(s.Attempts, 0), schedule.MaxAttempts)))
	e.SetWarned(s.Warned)
	e.Key = q.s.Keys.Number(parking.Line{Key: parking.Key{Name: s.Site}})
	if !s.Due.IsZero() {
		e.Due = store.SecondsOf(s.Due)
	}
	state := schedule.Due
	switch {
	case s.Held:
		state = schedule.Held
	case e.Due > q.passed():
		state = schedule.Deferred
	}
	if !s.Tried {
		note = 0
	}
	q.place(e, names, state, note)
	return state == schedule.Due
}
