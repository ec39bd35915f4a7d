package fairqueue

import (
	"slices"
	"sync"
	"time"
)

// Ranker finds the place of a submission among those that come at present, by the times of their first
// attempts. Where somebody else decides how many there is room for, it stands in for the threshold of
// [Gate]. It may be used by many goroutines at once.
type Ranker struct {
	mu     sync.Mutex
	began  time.Time // of the current bucket
	seen   [remembered][]time.Time
	bucket int
	sorted []time.Time // what the buckets before the current one have seen
}

// rankBucket is how often the order is taken anew.
const rankBucket = time.Second

// Rank notes a submission whose first attempt was at this time, and returns the share of the others
// that came before it, 0 for the oldest and 1 for the youngest.
func (r *Ranker) Rank(first, now time.Time) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := now.Sub(r.began); d < 0 || d >= rankBucket {
		r.turn(now)
	}
	if times := &r.seen[r.bucket]; len(*times) < kept {
		*times = append(*times, first)
	}
	if len(r.sorted) == 0 {
		return 1
	}
	before, _ := slices.BinarySearchFunc(r.sorted, first, time.Time.Compare)
	return float64(before) / float64(len(r.sorted))
}

// turn ends a bucket. mu is held.
func (r *Ranker) turn(now time.Time) {
	if d := now.Sub(r.began); d < 0 || d > remembered*rankBucket { // a long silence, or a clock that jumped
		r.seen = [remembered][]time.Time{}
	}
	r.sorted = r.sorted[:0]
	for _, times := range r.seen {
		r.sorted = append(r.sorted, times...)
	}
	slices.SortFunc(r.sorted, time.Time.Compare)
	r.bucket = (r.bucket + 1) % remembered
	r.seen[r.bucket] = r.seen[r.bucket][:0]
	r.began = now
}
