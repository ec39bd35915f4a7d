package warmup

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrDown is the error of a Memory that is down.
var ErrDown = errors.New("store is down")

// Memory is a Store in memory, for tests and for the simulator. Its clock is the caller's, and it can be made to fail
// in the ways that a cluster store does. It has no goroutines.
type Memory struct {
	now func() Instant

	mu      sync.Mutex // guards the rest
	records map[string]*record
	last    Instant
	down    bool
	unsure  func() (apply, answer bool)
}

type record struct {
	value   []byte
	version uint64
	fence   uint64
	owner   string
	expires Instant
}

var _ Store = (*Memory)(nil)

// NewMemory makes an empty store whose clock is now; steps back of the clock are not shown.
func NewMemory(now func() Instant) *Memory {
	return &Memory{now: now, records: make(map[string]*record)}
}

// SetDown makes all calls fail, or work again.
func (s *Memory) SetDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// Unsure has f asked at each Write whether to apply it and whether to answer; without an answer
// the caller gets ErrUnknownOutcome. nil: always both.
func (s *Memory) Unsure(f func() (apply, answer bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = f
}

// Peek appends a record's value to dst, without lock and also when the store is down.
func (s *Memory) Peek(name string, dst []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[name]; r != nil {
		dst = append(dst, r.value...)
	}
	return dst
}

// Claim implements Store.
func (s *Memory) Claim(_ context.Context, owner string, ttl time.Duration, keys []Key,
	dst []Record) ([]Record, Instant, error) {
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
			dst = append(dst, Record{Name: k.Name, Busy: true})
			continue
		}
		r.owner, r.expires = owner, now+Instant(ttl/time.Millisecond)
		r.fence++
		out := Record{Name: k.Name, Fence: r.fence, Version: r.version}
		if r.version != k.Have {
			out.Value = bytes.Clone(r.value)
		}
		dst = append(dst, out)
	}
	return dst, now, nil
}

func (s *Memory) clock() Instant {
	s.last = max(s.last, s.now())
	return s.last
}

// Write implements Store.
func (s *Memory) Write(_ context.Context, changes []Change, dst []bool) ([]bool, error) {
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
		return dst, ErrUnknownOutcome
	}
	return dst, nil
}

func (s *Memory) change(c *Change) bool {
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

// Keys implements Store.
func (s *Memory) Keys(context.Context) ([]string, error) {
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
