package queue

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
)

// AgeLimits are the upper ends of the age classes in a Summary, as qshape has them; the last
// class has no end.
var AgeLimits = [...]time.Duration{
	5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, 80 * time.Minute,
	160 * time.Minute, 320 * time.Minute, 640 * time.Minute, 1280 * time.Minute,
}

// KeySummary is how many recipients there are under a key.
type KeySummary struct {
	Key    parking.Key
	Total  int
	States [schedule.States]int    // by State
	Ages   [len(AgeLimits) + 1]int // by class of age
	Oldest time.Duration           // age of the oldest
}

// Summary counts the selected recipients by key, most first. A filter that asks for what only
// envelopes know has them read; all others cost some 20 ns for each recipient in the queue, and with
// Leased a microsecond for each that is selected.
func (q *Queue) Summary(f Filter) []KeySummary {
	t := &tally{q: q, now: q.now(), byKey: map[parking.Key]*KeySummary{}}
	w := q.newWalker(f, false, 0)
	if f.needsEnvelope() || f.Leased != nil {
		t.messages(w)
	} else {
		for !w.done {
			t.entries(w)
		}
	}
	list := make([]KeySummary, 0, len(t.byKey))
	for _, s := range t.byKey {
		list = append(list, *s)
	}
	return mostFirst(list)
}

func mostFirst(list []KeySummary) []KeySummary {
	slices.SortFunc(list, func(a, b KeySummary) int {
		return cmp.Or(cmp.Compare(b.Total, a.Total), cmp.Compare(a.Key.String(), b.Key.String()))
	})
	return list
}

// AddSummaries gives the sum of two, which have no recipient in common.
func AddSummaries(a, b []KeySummary) []KeySummary {
	byKey := make(map[parking.Key]int, len(a))
	for i := range a {
		byKey[a[i].Key] = i
	}
	for i := range b {
		at, ok := byKey[b[i].Key]
		if !ok {
			a = append(a, b[i])
			continue
		}
		a[at].add(&b[i])
	}
	return mostFirst(a)
}

func (s *KeySummary) add(o *KeySummary) {
	s.Total += o.Total
	for i, n := range o.States {
		s.States[i] += n
	}
	for i, n := range o.Ages {
		s.Ages[i] += n
	}
	s.Oldest = max(s.Oldest, o.Oldest)
}

// tally counts entries in order of their ids.
type tally struct {
	q     *Queue
	now   time.Time
	byKey map[parking.Key]*KeySummary

	// Of the message counted last.
	id    uint64
	age   time.Duration
	class int

	// By number of the key, nil for those not met in this batch: numbers are given to other names
	// when the lock is free.
	met []*KeySummary
}

// messages counts what a walker selects.
func (t *tally) messages(w *walker) {
	for c, _ := w.next(); c != nil; c, _ = w.next() {
		for i := range c.rcpts {
			t.count(t.of(c.rcpts[i].line.Key), &c.rcpts[i].entry, c.since)
		}
	}
}

// entries counts the walker's next batch in the schedule itself.
func (t *tally) entries(w *walker) {
	q := t.q
	q.mu.Lock()
	defer q.mu.Unlock()
	if !w.findKey() {
		return
	}
	clear(t.met)
	t.met = slices.Grow(t.met[:0], q.keys.Len())[:q.keys.Len()]
	seen, before, ended := 0, uint64(0), true
	q.table.Ascend(w.at, func(_ schedule.Slot, e *schedule.Entry) bool {
		if e.ID > w.newest {
			return false
		}
		if seen++; seen > 8*atOnce && e.ID != before {
			w.at, ended = e.ID, false
			return false
		}
		if w.selects(e) {
			s := t.met[e.Key]
			if s == nil {
				s = t.of(q.keys.Key(e.Key))
				t.met[e.Key] = s
			}
			t.count(s, e, q.arrivals.of(e.ID))
		}
		before = e.ID
		return true
	})
	w.done = ended
}

func (t *tally) of(key parking.Key) *KeySummary {
	s := t.byKey[key]
	if s == nil {
		s = &KeySummary{Key: key}
		t.byKey[key] = s
	}
	return s
}

func (t *tally) count(s *KeySummary, e *schedule.Entry, since time.Time) {
	if e.ID != t.id {
		t.id, t.age = e.ID, t.now.Sub(since)
		t.class = ageClass(t.age)
	}
	s.Total++
	s.States[e.State()]++
	s.Ages[t.class]++
	s.Oldest = max(s.Oldest, t.age)
}

func ageClass(age time.Duration) int {
	for i, limit := range AgeLimits {
		if age < limit {
			return i
		}
	}
	return len(AgeLimits)
}
