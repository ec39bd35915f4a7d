package warmup

import (
	"bytes"
	"context"
	"errors"
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

// Errors of a Store. Any other error means that the store could not be reached and nothing was
// changed.
var (
	// ErrUnknownOutcome: the call may have been carried out or not. The caller repeats the very
	// same Write, which is harmless if it was.
	ErrUnknownOutcome = errors.New("outcome of the store's write is unknown")
)

// Store keeps one record for each warming IP, for all nodes. A node locks records, computes,
// writes them and lets go, all in batches: one Claim and one Write carry all IPs of a round.
//
// It must hold that
//   - each successful lock of a key gets a fencing token (Fence) larger than all before it, also
//     after a restart of the store;
//   - a Write succeeds only under the key's newest fence and with the version that it was read
//     at, so that a node that slept through its lock can't undo what others did since;
//   - when Write returns success, its records survive a crash;
//   - Now never goes back, also not over a restart.
//
// Methods may be called by many goroutines. Package storetest checks an implementation.
type Store interface {
	// Claim locks the keys for owner until ttl has passed or the lock is released, and appends
	// a Record to dst for each, in order. A key that another owner holds has Busy set; one's own
	// lock is renewed under a new fence. now is the store's clock after locking.
	Claim(ctx context.Context, owner string, ttl time.Duration, keys []Key, dst []Record) (records []Record,
		now Instant, err error)

	// Write carries out each change on its own and appends to dst whether it was, in order.
	// Values may be used again by the caller when it returns.
	Write(ctx context.Context, changes []Change, dst []bool) (written []bool, err error)
}

// Key names a record to lock. A value whose version the caller has already is not sent again.
type Key struct {
	Name string
	Have uint64 // 0: none
}

// Record is a locked record.
type Record struct {
	Name    string
	Busy    bool   // locked by another owner, or see Why; the rest is zero
	Why     string // it is Busy for another reason than a lock, which this is
	Fence   uint64 // the lock's token
	Version uint64 // 0: there is no such record yet
	Value   []byte // nil when the caller has this version; the caller's to keep
}

// Change writes a record, releases its lock, or both.
type Change struct {
	Name    string
	Fence   uint64
	Version uint64 // that it was read at; the written one is one above
	Value   []byte // nil: keep the value, only release
	Release bool   // ends the lock if the change is carried out
}
