package schedule

import (
	"cmp"
	"slices"
)

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
