package view

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
)

// AgeLimits are the upper ends of the age classes in a Summary, as qshape has them; the last
// class has no end.
var AgeLimits = [...]time.Duration{
	5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute,
	160 * time.Minute, 320 * time.Minute, 640 * time.Minute, 1280 * time.Minute,
}

// Count is how many recipients there are of some kind.
type Count struct {
	Total  int
	States [schedule.States]int    // by State
	Ages   [len(AgeLimits) + 1]int // by class of age
}

// Add adds another count to c.
func (c *Count) Add(o *Count) {
	c.Total += o.Total
	for i, n := range o.States {
		c.States[i] += n
	}
	for i, n := range o.Ages {
		c.Ages[i] += n
	}
}

// KeySummary is how many recipients there are under a key.
type KeySummary struct {
	Key parking.Key
	Count
}

// Summary counts the selected recipients by key, most first. A filter that asks for what only
// envelopes know has them read; all others cost some 20 ns for each recipient in the queue, and with
// Leased a microsecond for each that is selected.
func (v *View) Summary(f Filter) []KeySummary {
	t := newTally(v, func(line parking.Line) parking.Key { return line.Key })
	t.run(v.Walk(f, false, 0))
	list := make([]KeySummary, 0, len(t.rows))
	for key, c := range t.rows {
		list = append(list, KeySummary{key, *c})
	}
	slices.SortFunc(list, func(a, b KeySummary) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return list
}

// Naming gives the name by which a recipient is counted. One of its functions is set.
type Naming struct {
	Line     func(parking.Line) string                       // by what it waits, or last waited, for
	Envelope func(m *envelope.Message, recipient int) string // by what its message says
	Waits    func(parking.Line, RecipientState) string       // by what it waits for in its state
	// by what it is doing; called without any lock, and with State alone for what is not handed out
	State func(RecipientState) string
}

// RecipientState is what a recipient is doing, as far as the queue knows.
type RecipientState struct {
	ID        envelope.ID
	Recipient int
	State     State
	Ending    bool // as in ItemRecipient
}

// Row is how many recipients there are of a name.
type Row struct {
	Name string
	Count
	Error int // by how much the count can be off
}

// Tally is a count by name of some of the recipients that a filter selects.
type Tally struct {
	Rows   []Row  // most first
	Next   string // where to go on, "" at the end
	Looked int    // recipients that were examined
}

// Tally looks through the queue for what a filter selects, from a cursor on and for a time, 0 for no bound, and
// counts it by name. Recipients whose envelope is damaged are left out where that must be read.
func (v *View) Tally(f Filter, by Naming, cursor string, most time.Duration) (Tally, error) {
	from := uint64(0)
	if cursor != "" {
		id, err := envelope.ParseID(cursor)
		if err != nil {
			return Tally{}, err
		}
		from = uint64(id)
	}
	w := v.Walk(f, false, from)
	w.endAfter(most)
	t := newTally(v, by.Line)
	switch {
	case by.Envelope != nil:
		w.reading = true
		t.each(w, func(r *Recipient, m *envelope.Message) string { return by.Envelope(m, int(r.Rcpt)) })
	case by.Waits != nil:
		t.each(w, func(r *Recipient, _ *envelope.Message) string { return by.Waits(r.Line, doing(&r.Entry)) })
	case by.State != nil:
		t.states(w, by.State)
	default:
		t.run(w)
	}
	result := Tally{Next: w.cursor(), Looked: w.looked}
	for name, c := range t.rows {
		result.Rows = append(result.Rows, Row{Name: name, Count: *c})
	}
	slices.SortFunc(result.Rows, Row.Compare)
	return result, nil
}

// Compare puts the largest first.
func (r Row) Compare(o Row) int {
	return cmp.Or(cmp.Compare(o.Total, r.Total), cmp.Compare(r.Name, o.Name))
}

// tally counts entries in order of their ids.
type tally[K comparable] struct {
	now  time.Time
	name func(parking.Line) K
	rows map[K]*Count

	// Of the message counted last.
	id    uint64
	class int

	lines []*Count // by position of the line in the stretch; nil for those not met yet
}

func newTally[K comparable](v *View, name func(parking.Line) K) *tally[K] {
	return &tally[K]{now: v.now(), name: name, rows: map[K]*Count{}}
}

// run counts what a walker selects, by line.
func (t *tally[K]) run(w *Walker) {
	if !w.f.byEntry() {
		t.each(w, func(r *Recipient, _ *envelope.Message) K { return t.name(r.Line) })
		return
	}
	for w.more() {
		t.lines = append(t.lines[:0], make([]*Count, w.copy.Lines())...)
		w.each(func(e *schedule.Entry) { t.count(t.ofLine(w, e), e, w.copy.Accepted(e)) })
	}
}

// each counts the recipients that a walker selects, by what name says of each.
func (t *tally[K]) each(w *Walker, name func(*Recipient, *envelope.Message) K) {
	for c, m := w.Next(); c != nil; c, m = w.Next() {
		for i := range c.Rcpts {
			t.count(t.of(name(&c.Rcpts[i], m)), &c.Rcpts[i].Entry, c.since)
		}
	}
}

// byEntry reports whether the schedule alone says what is selected.
func (f *Filter) byEntry() bool { return !f.needsEnvelope() && f.Leased == nil && f.Last == nil }

// ofLine is the count of an entry's line.
func (t *tally[K]) ofLine(w *Walker, e *schedule.Entry) *Count {
	c := &t.lines[w.copy.LineOf(e)]
	if *c == nil {
		*c = t.of(t.name(w.copy.Line(w.copy.LineOf(e))))
	}
	return *c
}

// states counts what a walker selects, by what it is doing. Only what is handed out is named one by one.
func (t *tally[K]) states(w *Walker, name func(RecipientState) K) {
	if !w.f.byEntry() {
		t.each(w, func(r *Recipient, _ *envelope.Message) K { return name(doing(&r.Entry)) })
		return
	}
	var in [schedule.States]Count
	for w.more() {
		w.each(func(e *schedule.Entry) {
			of := &in[e.State()]
			if e.State() == schedule.Leased {
				of = t.of(name(doing(e)))
			}
			t.count(of, e, w.copy.Accepted(e))
		})
	}
	for s := range in {
		if in[s].Total > 0 {
			t.of(name(RecipientState{State: State(s)})).Add(&in[s])
		}
	}
}

func doing(e *schedule.Entry) RecipientState {
	return RecipientState{envelope.ID(e.ID), int(e.Rcpt), e.State(), e.Action().Ends()}
}

func (t *tally[K]) of(name K) *Count {
	c := t.rows[name]
	if c == nil {
		c = &Count{}
		t.rows[name] = c
	}
	return c
}

func (t *tally[K]) count(c *Count, e *schedule.Entry, since time.Time) {
	if e.ID != t.id {
		t.id, t.class = e.ID, AgeClass(t.now.Sub(since))
	}
	c.Total++
	c.States[e.State()]++
	c.Ages[t.class]++
}

// AgeClass gives the index in Count.Ages for an age.
func AgeClass(age time.Duration) int {
	for i, limit := range AgeLimits {
		if age < limit {
			return i
		}
	}
	return len(AgeLimits)
}
