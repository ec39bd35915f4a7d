package suppression

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// remembered is how many complaints are distinguished from their repetitions: about 5 MB.
	remembered = 100_000
	// maxSums bounds what waits for the warm-ups.
	maxSums = 10_000
	// restAfter is how long it waits when one could not take them.
	restAfter = time.Minute
)

// complaints knows those that have come before, and counts them for warm-ups.
type complaints struct {
	seed       maphash.Seed
	duplicates atomic.Int64

	mu   sync.Mutex // guards the rest
	seen map[uint64]struct{}
	ring []uint64 // what is in seen, the oldest at next once it is full
	next int
	sums map[sum]int64 // for warm-ups, not handed over yet
	rest time.Time     // nothing is handed over before
}

// sum is what complaints are counted by: those about the mail of a day.
type sum struct {
	source, provider string
	day              time.Time
}

func newComplaints() *complaints {
	return &complaints{seed: maphash.MakeSeed(), seen: make(map[uint64]struct{}), sums: make(map[sum]int64)}
}

// first reports whether no complaint about the message by that recipient has come before.
func (c *complaints) first(e *Event) bool {
	if e.Message == 0 {
		return true
	}
	h := maphash.Comparable(c.seed, struct {
		message uint64
		address string
	}{uint64(e.Message), KeyOf("", e.Address).Address})
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, again := c.seen[h]; again {
		c.duplicates.Add(1)
		return false
	}
	if len(c.ring) < remembered {
		c.ring = append(c.ring, h)
	} else {
		delete(c.seen, c.ring[c.next])
		c.ring[c.next] = h
		c.next = (c.next + 1) % remembered
	}
	c.seen[h] = struct{}{}
	return true
}

// count counts a complaint for the warm-up of the source that the message left from.
func (c *complaints) count(e *Event) {
	if e.Source == "" || e.Sent.IsZero() {
		return
	}
	s := sum{e.Source, e.Provider, e.Sent.UTC().Truncate(day)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, there := c.sums[s]; there || len(c.sums) < maxSums {
		c.sums[s]++
	}
}

// flush hands the sums over. What fails is tried again, a minute later, and so is what follows a wait that was in vain:
// the others would wait as long.
func (c *complaints) flush(ctx context.Context, now time.Time,
	over func(ctx context.Context, source, provider string, day time.Time, n int64) error) error {
	c.mu.Lock()
	sums := c.sums
	if len(sums) == 0 || now.Before(c.rest) {
		c.mu.Unlock()
		return nil
	}
	c.sums = make(map[sum]int64)
	c.mu.Unlock()
	var errs []error
	for s, n := range sums {
		err := over(ctx, s.source, s.provider, s.day, n)
		if err == nil {
			delete(sums, s)
			continue
		}
		errs = append(errs, err)
		if ctx.Err() != nil || errors.Is(err, context.DeadlineExceeded) {
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for s, n := range sums {
		c.sums[s] += n
		c.rest = now.Add(restAfter)
	}
	return errors.Join(errs...)
}
