package queue

import (
	"cmp"
	"slices"
	"time"
)

// arrivals is when messages were accepted, by id: ids only grow, whatever the clock does, so they say
// nothing about time. Messages of one second share an entry of 16 octets.
//
// The times never fall from one message to the next. Where they would, the clock was ahead before: a
// message was accepted no later than those behind it, and no later than now.
type arrivals struct {
	all []arrival // by id, and by time
	// marks are upper bounds that outlive what they were learned from. By id, and by time.
	marks []arrival
}

// arrival is the first of some messages that were accepted within a second.
type arrival struct {
	id uint64
	at int64 // unix milliseconds
}

// maxMarks bounds the marks; without the oldest of them, a message's age is taken for less than it is.
const maxMarks = 64

// add takes note of a message. Ids grow from call to call. It reports whether there is a new mark.
func (a *arrivals) add(id uint64, at time.Time) (marked bool) {
	ms := min(at.UnixMilli(), a.bound(id))
	if n := len(a.all); n > 0 {
		switch last := a.all[n-1].at; {
		case ms < last-clockSlack.Milliseconds():
			marked = a.clamp(id-1, ms)
		case ms < last+1000:
			return false
		}
	}
	a.all = append(a.all, arrival{id, ms})
	return marked
}

// bound is the upper bound of an id's time.
func (a *arrivals) bound(id uint64) int64 {
	i, _ := slices.BinarySearchFunc(a.marks, id, func(m arrival, id uint64) int { return cmp.Compare(m.id, id) })
	if i < len(a.marks) {
		return a.marks[i].at
	}
	return 1<<63 - 1
}

// clamp notes that what has an id up to one was accepted by a time. It reports whether anything was
// thought to have been accepted later.
func (a *arrivals) clamp(id uint64, ms int64) bool {
	i := len(a.all)
	for i > 0 && a.all[i-1].at > ms {
		i--
	}
	if i == len(a.all) {
		return false
	}
	a.all = append(a.all[:i], arrival{a.all[i].id, ms})
	a.mark(arrival{id, ms})
	return true
}

// mark adds an upper bound that is later than none before.
func (a *arrivals) mark(m arrival) {
	a.marks = slices.DeleteFunc(a.marks, func(old arrival) bool { return old.id <= m.id && old.at >= m.at })
	a.marks = append(a.marks, m)
	if len(a.marks) > maxMarks {
		a.marks = slices.Delete(a.marks, 0, 1)
	}
}

// latest is when the last message was accepted; the zero time when there is none.
func (a *arrivals) latest() time.Time {
	if n := len(a.all); n > 0 {
		return time.UnixMilli(a.all[n-1].at)
	}
	return time.Time{}
}

// of is when a message was accepted; the zero time if there is none.
func (a *arrivals) of(id uint64) time.Time {
	i, ok := slices.BinarySearchFunc(a.all, id, func(x arrival, id uint64) int { return cmp.Compare(x.id, id) })
	if !ok {
		i--
	}
	if i < 0 {
		return time.Time{}
	}
	return time.UnixMilli(a.all[i].at)
}

// after is the first id of those accepted after a time, or about to be.
func (a *arrivals) after(t time.Time) uint64 {
	ms := t.UnixMilli()
	i, _ := slices.BinarySearchFunc(a.all, ms+1, func(x arrival, ms int64) int { return cmp.Compare(x.at, ms) })
	if i < len(a.all) {
		return a.all[i].id
	}
	return 1<<64 - 1
}

// forget gives back the memory for messages before an id, none of which is left.
func (a *arrivals) forget(before uint64) {
	i, ok := slices.BinarySearchFunc(a.all, before, func(x arrival, id uint64) int { return cmp.Compare(x.id, id) })
	if !ok {
		i--
	}
	if i > 0 && i >= len(a.all)/2 {
		a.all = slices.Clone(a.all[i:])
	}
	a.marks = slices.DeleteFunc(a.marks, func(m arrival) bool { return m.id < before })
}
