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

// Moments is a register of a time for each of some messages, as long as they are in the queue: 16 octets
// for each.
type Moments struct {
	All  []moment // by id
	Gone int      // of all: not in the queue any more
}

type moment struct {
	ID   uint64
	At   uint32 // seconds since 1970
	Gone bool
}

// Search finds the position of a message, or where it would be.
func (s *Moments) Search(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.All, id, func(a moment, id uint64) int { return cmp.Compare(a.ID, id) })
}

// Add takes note of a message. Ids grow, so this is mostly at the end.
func (s *Moments) Add(id uint64, at uint32) {
	i, ok := s.Search(id)
	if !ok {
		s.All = slices.Insert(s.All, i, moment{})
	}
	s.All[i] = moment{ID: id, At: at}
}

// Find gives the time of a message.
func (s *Moments) Find(id uint64) (at uint32, ok bool) {
	if len(s.All) == 0 {
		return 0, false
	}
	i, ok := s.Search(id)
	if !ok || s.All[i].Gone {
		return 0, false
	}
	return s.All[i].At, true
}

// Remove forgets a message. The memory is given back when half of it is of no use.
func (s *Moments) Remove(id uint64) {
	if len(s.All) == 0 {
		return
	}
	i, ok := s.Search(id)
	if !ok || s.All[i].Gone {
		return
	}
	s.All[i].Gone = true
	if s.Gone++; s.Gone*2 < len(s.All) {
		return
	}
	s.All = slices.Clone(slices.DeleteFunc(s.All, func(a moment) bool { return a.Gone }))
	s.Gone = 0
}

// Len is how many messages have a time.
func (s *Moments) Len() int { return len(s.All) - s.Gone }
