package schedule

import (
	"cmp"
	"slices"
	"time"

	"example.org/mta/internal/parking"
)

// Schedule is all that waits: the table, with what is known of its entries by number and by message. It has no lock:
// its owner has the mutex.
type Schedule struct {
	*Table
	Wheel    *Wheel
	Keys     *Keys
	Domains  *Numbering[string] // that entries are counted by
	Origins  *Numbering[Origin] // the same
	Arrivals Arrivals           // when messages were accepted
	Starts   Moments            // when the age of living messages that were scheduled begins to count
	Tenants  Tenants            // of living messages that have one
	Newest   uint64             // id of the newest message that was ever in the table
}

// NewSchedule makes an empty one; now is in seconds since 1970.
func NewSchedule(now uint32) *Schedule {
	t := New()
	return &Schedule{
		Table: t, Wheel: NewWheel(t, now), Keys: NewKeys(t), Tenants: NewTenants(),
		Domains: NewNumbering(func(string) string { return "" }, cloneName, t.CountOfDomain, t.NewDomain),
		Origins: NewNumbering(func(o Origin) string { return o.Tenant }, Origin.Clone, t.CountOfOrigin, t.NewOrigin),
	}
}

// Start is when the age of a message began to count, or will begin.
func (s *Schedule) Start(id uint64) time.Time {
	if at, ok := s.Starts.Find(id); ok {
		return time.Unix(int64(at), 0)
	}
	return s.Arrivals.Of(id)
}

// Stretch is a copy of the entries of some messages, in order of their ids, with what the numbers in them mean: to be
// looked at without the owner's lock, which is held for as long as the copy takes, and that is some 25 microseconds.
type Stretch struct {
	Entries []Entry
	Names   []Names // of each entry
	Looked  int     // entries that were passed
	Ended   bool    // there are no more
	Next    uint64  // where to go on otherwise

	lines    []numberedLine
	lineAt   []uint32 // by number of a line: where it stands in lines, if it does
	arrivals []Arrival
}

type numberedLine struct {
	number uint32
	line   parking.Line
}

// stretchLen is how many entries are passed for a stretch, and all of one message.
const stretchLen = 2048

// Part says which entries are copied.
type Part struct {
	States   [States]bool
	Down     bool   // to lower ids
	Low, Top uint64 // ids that bound the walk
}

// Copy makes a stretch of the entries from an id on.
func (s *Schedule) Copy(to *Stretch, at uint64, p *Part) {
	to.Entries, to.Names, to.lines = to.Entries[:0], to.Names[:0], to.lines[:0]
	to.Looked, to.Ended = 0, true
	last := uint64(0)
	visit := func(slot Slot, e *Entry) bool {
		if e.ID < p.Low || e.ID > p.Top {
			return false
		}
		if to.Looked >= stretchLen && e.ID != last {
			to.Next, to.Ended = e.ID, false
			return false
		}
		to.Looked++
		last = e.ID
		if p.States[e.State()] {
			to.Entries, to.Names = append(to.Entries, *e), append(to.Names, s.NamesAt(slot))
			to.learn(s.Keys, e.Key)
		}
		return true
	}
	if p.Down {
		s.Descend(at, visit)
	} else {
		s.Ascend(at, visit)
	}
	to.arrivals = to.arrivals[:0]
	if n := len(to.Entries); n > 0 {
		a, b := to.Entries[0].ID, to.Entries[n-1].ID
		to.arrivals = s.Arrivals.appendRange(to.arrivals, min(a, b), max(a, b))
	}
}

// learn copies a line, once.
func (to *Stretch) learn(keys *Keys, number uint32) {
	if int(number) >= len(to.lineAt) {
		to.lineAt = slices.Grow(to.lineAt, keys.Len()-len(to.lineAt))[:keys.Len()]
	}
	if i := int(to.lineAt[number]); i >= len(to.lines) || to.lines[i].number != number {
		to.lineAt[number] = uint32(len(to.lines))
		to.lines = append(to.lines, numberedLine{number, keys.Line(number)})
	}
}

// Lines is how many lines the entries have.
func (to *Stretch) Lines() int { return len(to.lines) }

// LineOf gives the position of an entry's line among those of the stretch.
func (to *Stretch) LineOf(e *Entry) int { return int(to.lineAt[e.Key]) }

// Line gives the line at a position.
func (to *Stretch) Line(i int) parking.Line { return to.lines[i].line }

// Accepted is when the message of an entry was accepted.
func (to *Stretch) Accepted(e *Entry) time.Time { return arrivalOf(to.arrivals, e.ID) }

func cloneName(name string) string { return string([]byte(name)) }

// appendRange appends what says when the messages from one id to another were accepted.
func (a *Arrivals) appendRange(to []Arrival, from, last uint64) []Arrival {
	search := func(id uint64) (int, bool) {
		return slices.BinarySearchFunc(a.all, id, func(x Arrival, id uint64) int { return cmp.Compare(x.ID, id) })
	}
	i, ok := search(from)
	if !ok {
		i--
	}
	j, ok := search(last)
	if ok {
		j++
	}
	return append(to, a.all[max(i, 0):j]...)
}
