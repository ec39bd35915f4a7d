package sts

import (
	"container/list"
	"iter"
)

// shelf holds entries up to a budget in octets: those that were used longest ago go first.
type shelf struct {
	budget, size int
	entries      map[string]*list.Element
	recent       *list.List // of *entry, the latest used in front
}

func newShelf(budget int) *shelf {
	return &shelf{budget: budget, entries: make(map[string]*list.Element), recent: list.New()}
}

// get gives the entry of a domain, nil when there is none, and counts as its use.
func (s *shelf) get(domain string) *entry {
	el := s.entries[domain]
	if el == nil {
		return nil
	}
	s.recent.MoveToFront(el)
	return el.Value.(*entry)
}

// put adds an entry, in place of the domain's former one, and returns those for which there is no space any more.
func (s *shelf) put(e *entry) (gone []*entry) {
	s.drop(e.domain)
	s.entries[e.domain] = s.recent.PushFront(e)
	s.size += e.cost()
	for s.size > s.budget && s.recent.Len() > 1 {
		last := s.recent.Back().Value.(*entry)
		s.drop(last.domain)
		gone = append(gone, last)
	}
	return gone
}

func (s *shelf) drop(domain string) {
	if el := s.entries[domain]; el != nil {
		delete(s.entries, domain)
		s.size -= s.recent.Remove(el).(*entry).cost()
	}
}

func (s *shelf) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for el := s.recent.Front(); el != nil; {
			next := el.Next() // el may be dropped meanwhile
			if !yield(el.Value.(*entry)) {
				return
			}
			el = next
		}
	}
}

func (s *shelf) len() int { return s.recent.Len() }
