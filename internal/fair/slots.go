package fair

import (
	"context"
	"slices"
	"sync"
)

// Slots are units of a Pool of parties that can be waited for. A slot that becomes free goes to the parties that wait
// and may have more, in turns. It is safe for use by many goroutines.
type Slots struct {
	pool *Pool[Party]

	mu    sync.Mutex // guards the rest
	lines map[Party]*line
	ring  Ring[*line]
}

// line is those of a party that wait.
type line struct {
	Member[*line]
	of    Part[Party]
	ready []chan struct{} // closed when they have a slot
}

// NewSlots makes so many slots.
func NewSlots(n int64) *Slots { return &Slots{pool: NewPool[Party](n), lines: make(map[Party]*line)} }

// Take waits for a slot. The error is that of ctx. give must be called once the slot is not needed any more.
func (s *Slots) Take(ctx context.Context, who Party) (give func(), _ error) {
	of := Part[Party]{who, Usual}
	give = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pool.Give(1, of)
		s.pass()
	}
	s.mu.Lock()
	if s.pool.Take(1, of) {
		s.mu.Unlock()
		return give, nil
	}
	l := s.lines[who]
	if l == nil {
		l = &line{of: of}
		l.Value, s.lines[who] = l, l
		s.ring.Join(&l.Member)
	}
	ready := make(chan struct{})
	l.ready = append(l.ready, ready)
	s.mu.Unlock()
	select {
	case <-ready:
		return give, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(l.ready, ready)
	if i < 0 { // it got one at this moment
		return give, nil
	}
	l.ready = slices.Delete(l.ready, i, i+1)
	s.leave(l)
	return nil, ctx.Err()
}

// pass gives free slots to those who wait. mu is held.
func (s *Slots) pass() {
	for {
		m := s.ring.Pick(func(l *line) bool { return s.pool.Take(1, l.of) })
		if m == nil {
			return
		}
		s.ring.Took(m)
		close(m.Value.ready[0])
		m.Value.ready = slices.Delete(m.Value.ready, 0, 1)
		s.leave(m.Value)
	}
}

// leave takes a line off the ring when nobody is in it.
func (s *Slots) leave(l *line) {
	if len(l.ready) == 0 {
		s.ring.Leave(&l.Member)
		delete(s.lines, l.of.Key)
	}
}
