package queue

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
func (q *Queue) Summary(f Filter) []KeySummary {
	t := newTally(q, func(line parking.Line) parking.Key { return line.Key })
	t.run(q.newWalker(f, false, 0))
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
	State    func(RecipientState) string                     // by what it is doing; called without any lock, and with State alone for what is not handed out
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
func (q *Queue) Tally(f Filter, by Naming, cursor string, most time.Duration) (Tally, error) {
	from := uint64(0)
	if cursor != "" {
		id, err := envelope.ParseID(cursor)
		if err != nil {
			return Tally{}, err
		}
		from = uint64(id)
	}
	w := q.newWalker(f, false, from)
	w.endAfter(most)
	t := newTally(q, by.Line)
	switch {
	case by.Envelope != nil:
		w.reading = true
		t.envelopes(w, by.Envelope)
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
	q    *Queue
	now  time.Time
	name func(parking.Line) K
	rows map[K]*Count

	// Of the message counted last.
	id    uint64
	class int

	// By number of the line, nil for those not met in this batch: numbers are given to other names
	// when the lock is free.
	met []*Count
}

func newTally[K comparable](q *Queue, name func(parking.Line) K) *tally[K] {
	return &tally[K]{q: q, now: q.now(), name: name, rows: map[K]*Count{}}
}

// run counts what a walker selects, by line.
func (t *tally[K]) run(w *walker) {
	if !w.f.needsEnvelope() && w.f.Leased == nil {
		for !w.done {
			clear(t.met)
			t.met = t.met[:0]
			t.entries(w, t.countLine)
		}
		return
	}
	for c, _ := w.next(); c != nil; c, _ = w.next() {
		for i := range c.rcpts {
			t.count(t.of(t.name(c.rcpts[i].line)), &c.rcpts[i].entry, c.since)
		}
	}
}

// countLine counts an entry by its line, with the queue's lock held.
func (t *tally[K]) countLine(e *schedule.Entry) {
	if n := int(e.Key) + 1; n > len(t.met) {
		t.met = slices.Grow(t.met, n-len(t.met))[:n]
	}
	c := t.met[e.Key]
	if c == nil {
		c = t.of(t.name(t.q.keys.Line(e.Key)))
		t.met[e.Key] = c
	}
	t.count(c, e, t.q.arrivals.Of(e.ID))
}

// envelopes counts what a walker selects and reads.
func (t *tally[K]) envelopes(w *walker, name func(*envelope.Message, int) K) {
	for c, m := w.next(); c != nil; c, m = w.next() {
		for i := range c.rcpts {
			e := &c.rcpts[i].entry
			if int(e.Rcpt) < len(m.Recipients) {
				t.count(t.of(name(m, int(e.Rcpt))), e, c.since)
			}
		}
	}
}

// states counts what a walker selects, by what it is doing.
func (t *tally[K]) states(w *walker, name func(RecipientState) K) {
	if !w.f.needsEnvelope() && w.f.Leased == nil {
		t.statesOfEntries(w, name)
		return
	}
	for c, _ := w.next(); c != nil; c, _ = w.next() {
		for i := range c.rcpts {
			e := &c.rcpts[i].entry
			t.count(t.of(name(doing(e))), e, c.since)
		}
	}
}

// statesOfEntries counts by state in the schedule itself. What is handed out is named one by one.
func (t *tally[K]) statesOfEntries(w *walker, name func(RecipientState) K) {
	var in [schedule.States]Count
	var out []schedule.Entry
	var since []time.Time
	for !w.done {
		out, since = out[:0], since[:0]
		t.entries(w, func(e *schedule.Entry) {
			if e.State() == schedule.Leased {
				out, since = append(out, *e), append(since, t.q.arrivals.Of(e.ID))
				return
			}
			t.count(&in[e.State()], e, t.q.arrivals.Of(e.ID))
		})
		for i := range out {
			t.count(t.of(name(doing(&out[i]))), &out[i], since[i])
		}
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

// entries gives the walker's next batch in the schedule itself, with the queue's lock held.
func (t *tally[K]) entries(w *walker, each func(*schedule.Entry)) {
	if w.looked > 0 && w.late() {
		w.cut, w.done = true, true
		return
	}
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.findKey() || !w.findState() {
		return
	}
	seen, before, ended := 0, uint64(0), true
	q.table.Ascend(w.at, func(s schedule.Slot, e *schedule.Entry) bool {
		if e.ID > w.newest {
			return false
		}
		if seen++; seen > 8*atOnce && e.ID != before {
			w.at, ended = e.ID, false
			return false
		}
		if w.selects(s, e) {
			each(e)
		}
		before = e.ID
		return true
	})
	w.looked += seen
	w.done = ended
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
		t.id, t.class = e.ID, ageClass(t.now.Sub(since))
	}
	c.Total++
	c.States[e.State()]++
	c.Ages[t.class]++
}

func ageClass(age time.Duration) int {
	for i, limit := range AgeLimits {
		if age < limit {
			return i
		}
	}
	return len(AgeLimits)
}
