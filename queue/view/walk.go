package view

import (
	"errors"
	"math"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// Walker goes through the schedule in order of id, a stretch at a time, so that nobody waits for it.
type Walker struct {
	// Pause is called before each stretch; nil: nothing.
	Pause func()

	v      *View
	f      Filter
	part   schedule.Part
	picker picker
	before uint64 // recipients that are attempted at this second or later are left out

	notBefore uint64 // and so are those before this one

	at      uint64 // where to go on
	done    bool
	copy    schedule.Stretch
	batch   []Candidate
	rcpts   []Recipient // of batch
	single  bool        // for one message: finding the names that the filter can mean would cost more than its envelope
	reading bool        // the envelope of each candidate is read, even where the filter needs none
	reads   int         // envelopes read
	ahead   store.ReadAhead
	replies store.ReplyReader

	until  time.Time // when the walk is cut short; zero: never
	cut    bool      // it was, before at
	looked int       // entries examined
	given  int       // candidates that Next has looked at
}

// lookEvery is after how many messages the clock is read.
const lookEvery = 32

// endAfter cuts the walk short after a time; 0: never.
func (w *Walker) endAfter(d time.Duration) { w.until = w.v.until(d) }

// late reports whether the time for the walk is over.
func (w *Walker) late() bool { return w.v.late(w.until) }

// until gives the end of a time that begins now; zero for 0, which never ends.
func (v *View) until(d time.Duration) time.Time {
	if d == 0 {
		return time.Time{}
	}
	return v.now().Add(d)
}

func (v *View) late(until time.Time) bool { return !until.IsZero() && !v.now().Before(until) }

// cursor is where a walk that was cut short goes on, "" where it has ended.
func (w *Walker) cursor() string {
	if !w.cut {
		return ""
	}
	return envelope.ID(w.at).String()
}

// Walk starts at an id; 0 is the first or, going down, the last.
func (v *View) Walk(f Filter, down bool, from uint64) *Walker {
	w := &Walker{v: v, f: f, before: math.MaxUint64, reading: f.needsEnvelope(),
		replies: store.ReplyReader{Dir: v.dir}}
	w.part.Down = down
	for s := range w.part.States {
		w.part.States[s] = len(f.States) == 0 || slices.Contains(f.States, State(s))
	}
	w.bounds(v.now())
	w.at = max(from, w.part.Low)
	if down {
		if from == 0 {
			from = ^uint64(0)
		}
		w.at = min(from, w.part.Top)
	}
	return w
}

// bounds finds the ids that OlderThan and NewerThan leave.
func (w *Walker) bounds(now time.Time) {
	w.part.Top = math.MaxUint64
	w.v.lock.Lock()
	defer w.v.lock.Unlock()
	if w.f.OlderThan > 0 {
		w.part.Top = w.v.s.Arrivals.After(now.Add(-w.f.OlderThan)) - 1
	}
	if w.f.NewerThan > 0 {
		w.part.Low = w.v.s.Arrivals.After(now.Add(-w.f.NewerThan - time.Millisecond))
	}
}

// Next gives the next selected message, with its envelope if the filter needs it; nil at the end. The candidate is
// valid until the call after.
func (w *Walker) Next() (*Candidate, *envelope.Message) {
	for {
		for len(w.batch) > 0 {
			c := &w.batch[0]
			if w.given++; w.given%lookEvery == 0 && w.late() {
				w.at, w.cut, w.done, w.batch = c.ID, true, true, nil
				return nil, nil
			}
			w.batch = w.batch[1:]
			if !w.holder(c) || !w.replied(c) {
				continue
			}
			if !w.reading {
				return c, nil
			}
			if m := w.envelope(c); m != nil && w.match(c, m) {
				return c, m
			}
		}
		if !w.more() {
			return nil, nil
		}
		w.fill()
	}
}

// more copies the next stretch. It reports false at the end of the walk, or of the time for it.
func (w *Walker) more() bool {
	if !w.done && w.looked > 0 && w.late() {
		w.cut, w.done = true, true
	}
	if w.done {
		return false
	}
	if w.Pause != nil {
		w.Pause()
	}
	s := w.v.s
	w.v.lock.Lock()
	defer w.v.lock.Unlock()
	if w.done = !w.possible(s); w.done {
		return false
	}
	if !w.single {
		w.picker.pick(s, &w.f)
	}
	s.Copy(&w.copy, w.at, &w.part)
	w.looked += w.copy.Looked
	w.at, w.done = w.copy.Next, w.copy.Ended
	return true
}

// possible reports whether anything in the queue has the key and one of the states that the filter selects.
func (w *Walker) possible(s *schedule.Schedule) bool {
	if w.f.Key != (parking.Key{}) {
		if _, ok := s.Keys.Lookup(parking.Line{Key: w.f.Key}); !ok {
			return false
		}
	}
	return len(w.f.States) == 0 || slices.ContainsFunc(w.f.States, func(state State) bool { return s.Count(state) > 0 })
}

// holder leaves in the candidate what Filter.Leased selects, and reports whether there is any.
func (w *Walker) holder(c *Candidate) bool {
	if w.f.Leased != nil {
		c.Rcpts = slices.DeleteFunc(c.Rcpts, func(r Recipient) bool {
			return r.State() == schedule.Leased && !w.f.Leased(envelope.ID(r.ID), int(r.Rcpt), r.Action().Ends())
		})
	}
	return len(c.Rcpts) > 0
}

// replied leaves in the candidate what Filter.Last selects, and reports whether there is any.
func (w *Walker) replied(c *Candidate) bool {
	if w.f.Last != nil {
		w.reads++
		c.Rcpts = slices.DeleteFunc(c.Rcpts, func(r Recipient) bool {
			last, _, _ := w.v.q.LastAttempt(&w.replies, r.ID, r.Rcpt) // what is lost has no reply
			return !w.f.Last(r.Line, &last)
		})
	}
	return len(c.Rcpts) > 0
}

// envelope reads the envelope of a candidate; nil when it can't be.
func (w *Walker) envelope(c *Candidate) *envelope.Message {
	w.reads++
	ahead := &w.ahead
	if w.part.Down {
		ahead = nil
	}
	m, err := w.v.q.Envelope(c.ID, ahead)
	if err != nil && !errors.Is(err, ErrUnknown) {
		w.v.q.ReportDamage(err, "a message is left out of a listing")
	}
	return m
}

// match leaves in the candidate what the envelope says is selected, and reports whether there is any.
func (w *Walker) match(c *Candidate, m *envelope.Message) bool {
	if !w.f.SelectsMessage(m) {
		return false
	}
	c.Rcpts = slices.DeleteFunc(c.Rcpts, func(r Recipient) bool {
		return int(r.Rcpt) >= len(m.Recipients) || !w.f.SelectsRecipient(&m.Recipients[r.Rcpt])
	})
	return len(c.Rcpts) > 0
}

// fill makes candidates of the stretch.
func (w *Walker) fill() {
	w.batch, w.rcpts = nil, slices.Grow(w.rcpts[:0], len(w.copy.Entries))
	w.each(func(e *schedule.Entry) {
		if at := uint64(attemptAt(e)); at < w.notBefore || at >= w.before {
			return
		}
		n, from := len(w.batch), len(w.rcpts)
		w.rcpts = append(w.rcpts, Recipient{*e, w.copy.Line(w.copy.LineOf(e))})
		if n == 0 || w.batch[n-1].ID != e.ID {
			w.batch = append(w.batch,
				Candidate{ID: e.ID, since: w.copy.Accepted(e), Rcpts: w.rcpts[from : from+1 : from+1]})
			return
		}
		first := from - len(w.batch[n-1].Rcpts)
		w.batch[n-1].Rcpts = w.rcpts[first : from+1 : from+1]
	})
}

// each calls use with the entries of the stretch that the schedule alone says are selected.
func (w *Walker) each(use func(*schedule.Entry)) {
	for i := range w.copy.Entries {
		e, names := &w.copy.Entries[i], w.copy.Names[i]
		if w.f.Key != (parking.Key{}) && w.copy.Line(w.copy.LineOf(e)).Key != w.f.Key {
			continue
		}
		if w.f.Waits != nil && !w.f.Waits(w.copy.Line(w.copy.LineOf(e)), e.State()) {
			continue
		}
		if w.picker.domains.has(names.Domain) && w.picker.origins.has(names.Origin) {
			use(e)
		}
	}
}
