package queue

import (
	"cmp"
	"slices"
)

// moments is a register of a time for each of some messages, as long as they are in the queue: 16 octets
// for each.
type moments struct {
	all  []moment // by id
	gone int      // of all: not in the queue any more
}

type moment struct {
	id   uint64
	at   uint32 // seconds since 1970
	gone bool
}

func (s *moments) search(id uint64) (int, bool) {
	return slices.BinarySearchFunc(s.all, id, func(a moment, id uint64) int { return cmp.Compare(a.id, id) })
}

// add takes note of a message. Ids grow, so this is mostly at the end.
func (s *moments) add(id uint64, at uint32) {
	i, ok := s.search(id)
	if !ok {
		s.all = slices.Insert(s.all, i, moment{})
	}
	s.all[i] = moment{id: id, at: at}
}

func (s *moments) find(id uint64) (at uint32, ok bool) {
	if len(s.all) == 0 {
		return 0, false
	}
	i, ok := s.search(id)
	if !ok || s.all[i].gone {
		return 0, false
	}
	return s.all[i].at, true
}

// remove forgets a message. The memory is given back when half of it is of no use.
func (s *moments) remove(id uint64) {
	if len(s.all) == 0 {
		return
	}
	i, ok := s.search(id)
	if !ok || s.all[i].gone {
		return
	}
	s.all[i].gone = true
	if s.gone++; s.gone*2 < len(s.all) {
		return
	}
	s.all = slices.Clone(slices.DeleteFunc(s.all, func(a moment) bool { return a.gone }))
	s.gone = 0
}
