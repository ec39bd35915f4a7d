// Package memstore is a warmup.Store in memory, for tests and for the simulator. Its clock is
// the caller's, and it can be told to fail in the ways that a cluster store does. It has no
// goroutines.
package memstore

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.org/mta/warmup"
)

// ErrDown is what a store that was told to be down returns.
var ErrDown = errors.New("store is down")

// Store is the store. New makes one.
type Store struct {
	now func() warmup.Instant

	mu      sync.Mutex // guards the rest
	records map[string]*record
	last    warmup.Instant
	down    bool
	unsure  func() (apply, answer bool)
}

type record struct {
	value   []byte
	version uint64
	fence   uint64
	owner   string
	expires warmup.Instant
}

var _ warmup.Store = (*Store)(nil)

// New makes an empty store whose clock is now; steps back of the clock are not shown.
func New(now func() warmup.Instant) *Store {
	return &Store{now: now, records: make(map[string]*record)}
}

// SetDown makes all calls fail, or work again.
func (s *Store) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Unsure has f asked at each Write whether to apply it and whether to answer; without an answer
// the caller gets warmup.ErrUnknownOutcome. nil: always both.
func (s *Store) Unsure(f func() (apply, answer bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = f
}

// Peek appends a record's value to dst, without lock and also when the store is down.
func (s *Store) Peek(name string, dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[name]; r != nil {
		dst = append(dst, r.value...)
	}
	return dst
}

// Claim implements warmup.Store.
func (s *Store) Claim(_ context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) ([]warmup.Record, warmup.Instant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return dst, 0, ErrDown
	}
	now := s.clock()
	for _, k := range keys {
		r := s.records[k.Name]
		if r == nil {
			r = &record{}
			s.records[k.Name] = r
		}
		if r.owner != "" && r.owner != owner && now < r.expires {
			dst = append(dst, warmup.Record{Name: k.Name, Busy: true})
			continue
		}
		r.owner, r.expires = owner, now+warmup.Instant(ttl/time.Millisecond)
		r.fence++
		out := warmup.Record{Name: k.Name, Fence: r.fence, Version: r.version}
		if r.version != k.Have {
			out.Value = bytes.Clone(r.value)
		}
		dst = append(dst, out)
	}
	return dst, now, nil
}

func (s *Store) clock() warmup.Instant {
	s.last = max(s.last, s.now())
	return s.last
}

// Write implements warmup.Store.
func (s *Store) Write(_ context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return dst, ErrDown
	}
	apply, answer := true, true
	if s.unsure != nil {
		apply, answer = s.unsure()
	}
	if apply {
		for i := range changes {
			dst = append(dst, s.change(&changes[i]))
		}
	}
	if !apply || !answer {
		return dst, warmup.ErrUnknownOutcome
	}
	return dst, nil
}

func (s *Store) change(c *warmup.Change) bool {
	r := s.records[c.Name]
	if r == nil || r.fence != c.Fence {
		return false
	}
	if c.Value != nil {
		again := r.version == c.Version+1 && bytes.Equal(r.value, c.Value)
		if r.version != c.Version && !again {
			return false
		}
		if !again {
			r.value = append(r.value[:0], c.Value...)
			r.version++
		}
	}
	if c.Release {
		r.owner = ""
	}
	return true
}

// Keys implements warmup.Store.
func (s *Store) Keys(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, ErrDown
	}
	var names []string
	for name, r := range s.records {
		if r.version > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}
