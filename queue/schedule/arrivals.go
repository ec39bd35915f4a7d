package schedule

import (
	"cmp"
	"slices"
	"time"
)

// Arrivals is when messages were accepted, by id: ids only grow, whatever the clock does, so they say
// nothing about time. Messages of one second share an entry of 16 octets.
//
// The times never fall from one message to the next. Where they would, the clock was ahead before: a
// message was accepted no later than those behind it, and no later than now.
type Arrivals struct {
	all []Arrival // by id, and by time
	// marks are upper bounds that outlive what they were learned from. By id, and by time.
	Marks []Arrival
}

// Arrival is the first of some messages that were accepted within a second.
type Arrival struct {
	ID uint64
	At int64 // unix milliseconds
}

// ClockSlack is how far the clock may differ from the time that went by, and the dates of messages from their order,
// without a word: clocks are adjusted, and messages are dated before they are put in order.
const ClockSlack = time.Minute

// maxMarks bounds the marks; without the oldest of them, a message's age is taken for less than it is.
const maxMarks = 64

// Add takes note of a message. Ids grow from call to call. It reports whether there is a new mark.
func (a *Arrivals) Add(id uint64, at time.Time) (marked bool) {
	ms := min(at.UnixMilli(), a.bound(id))
	if n := len(a.all); n > 0 {
		switch last := a.all[n-1].At; {
		case ms < last-ClockSlack.Milliseconds():
			marked = a.Clamp(id-1, ms)
		case ms < last+1000:
			return false
		}
	}
	a.all = append(a.all, Arrival{id, ms})
	return marked
}

// bound is the upper bound of an id's time.
func (a *Arrivals) bound(id uint64) int64 {
	i, _ := slices.BinarySearchFunc(a.Marks, id, func(m Arrival, id uint64) int { return cmp.Compare(m.ID, id) })
	if i < len(a.Marks) {
		return a.Marks[i].At
	}
	return 1<<63 - 1
}

// Clamp notes that what has an id up to one was accepted by a time. It reports whether anything was
// thought to have been accepted later.
func (a *Arrivals) Clamp(id uint64, ms int64) bool {
	i := len(a.all)
	for i > 0 && a.all[i-1].At > ms {
		i--
	}
	if i == len(a.all) {
		return false
	}
	a.all = append(a.all[:i], Arrival{a.all[i].ID, ms})
	a.Mark(Arrival{id, ms})
	return true
}

// Mark adds an upper bound that is later than none before.
func (a *Arrivals) Mark(m Arrival) {
	a.Marks = slices.DeleteFunc(a.Marks, func(old Arrival) bool { return old.ID <= m.ID && old.At >= m.At })
	a.Marks = append(a.Marks, m)
	if len(a.Marks) > maxMarks {
		a.Marks = slices.Delete(a.Marks, 0, 1)
	}
}

// Latest is when the last message was accepted; the zero time when there is none.
func (a *Arrivals) Latest() time.Time {
	if n := len(a.all); n > 0 {
		return time.UnixMilli(a.all[n-1].At)
	}
	return time.Time{}
}

// Of is when a message was accepted; the zero time if there is none.
func (a *Arrivals) Of(id uint64) time.Time { return arrivalOf(a.all, id) }

func arrivalOf(all []Arrival, id uint64) time.Time {
	i, ok := slices.BinarySearchFunc(all, id, func(x Arrival, id uint64) int { return cmp.Compare(x.ID, id) })
	if !ok {
		i--
	}
	if i < 0 {
		return time.Time{}
	}
	return time.UnixMilli(all[i].At)
}

// After is the first id of those accepted after a time, or about to be.
func (a *Arrivals) After(t time.Time) uint64 {
	ms := t.UnixMilli()
	i, _ := slices.BinarySearchFunc(a.all, ms+1, func(x Arrival, ms int64) int { return cmp.Compare(x.At, ms) })
	if i < len(a.all) {
		return a.all[i].ID
	}
	return 1<<64 - 1
}

// Forget gives back the memory for messages before an id, none of which is left.
func (a *Arrivals) Forget(before uint64) {
	i, ok := slices.BinarySearchFunc(a.all, before, func(x Arrival, id uint64) int { return cmp.Compare(x.ID, id) })
	if !ok {
		i--
	}
	if i > 0 && i >= len(a.all)/2 {
		a.all = slices.Clone(a.all[i:])
	}
	a.Marks = slices.DeleteFunc(a.Marks, func(m Arrival) bool { return m.ID < before })
}
