package fairqueue

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Gate lets through so many submissions a second, the oldest first attempts first. It may be used
// by many goroutines at once. It needs about ten submissions in a bucket to rank; a node that gets
// fewer takes longer buckets.
type Gate struct {
	limit  float64 // submissions in a bucket
	length time.Duration

	mu struct {
		sync.Mutex
		began     time.Time // of the bucket
		seen      [remembered][]time.Time
		bucket    int     // index in seen of the current one
		filled    int     // buckets before it
		arrived   int     // in the current bucket
		overflow  int     // let through by the threshold, and stopped by the bucket
		passed    int     // both gates
		share     float64 // m: how far beyond the limit the threshold lets through
		threshold time.Time
		open      bool // there is room for all
		level     float64
		leaked    time.Time
	}
}

const (
	remembered = 5    // buckets whose times make the threshold
	most       = 4.   // times the limit: how far over-admission goes
	raise      = .15  // by how much of the unused part it grows in a bucket
	lower      = .05  // and falls, of what overflowed
	depth      = 2    // of the leaky bucket, in limits
	kept       = 4096 // times of a bucket
)

// NewGate returns a gate for a limit of submissions a second. bucket is how often the threshold is
// computed, 1 s when 0.
func NewGate(perSecond float64, bucket time.Duration, now time.Time) *Gate {
	if bucket <= 0 {
		bucket = time.Second
	}
	g := &Gate{limit: perSecond * bucket.Seconds(), length: bucket}
	g.mu.began, g.mu.leaked, g.mu.open, g.mu.share = now, now, true, 1
	return g
}

// Pass reports whether a submission whose first attempt was at this time may pass now.
func (g *Gate) Pass(first, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for n := 0; now.Sub(g.mu.began) >= g.length; n++ {
		if n == remembered { // a long silence, or a clock that jumped
			g.mu.began = now
			break
		}
		g.turn()
	}
	if now.Before(g.mu.began) { // the clock was set back
		g.mu.began = now
	}
	g.mu.arrived++
	if times := &g.mu.seen[g.mu.bucket]; len(*times) < kept {
		*times = append(*times, first)
	}
	if !g.mu.open && first.After(g.mu.threshold) {
		return false
	}
	if !g.pour(now) {
		g.mu.overflow++
		return false
	}
	g.mu.passed++
	return true
}

// pour puts one into the leaky bucket, if there is room.
func (g *Gate) pour(now time.Time) bool {
	g.leak(now)
	if g.mu.level+1 > max(depth*g.limit, 1) {
		return false
	}
	g.mu.level++
	return true
}

// leak takes out of the leaky bucket what has left it by now.
func (g *Gate) leak(now time.Time) {
	if d := now.Sub(g.mu.leaked); d > 0 {
		g.mu.level = max(0, g.mu.level-d.Seconds()/g.length.Seconds()*g.limit)
	}
	g.mu.leaked = now
}

// turn ends a bucket and computes the threshold for the next.
func (g *Gate) turn() {
	g.leak(g.mu.began.Add(g.length))
	unused := max(0, g.limit-float64(g.mu.passed))
	g.mu.share *= 1 + raise*unused/g.limit - lower*min(float64(g.mu.overflow)/g.limit, 1)
	g.mu.share = min(max(g.mu.share, 1), most)
	if g.mu.filled < remembered {
		g.mu.filled++
	}
	var all bool
	g.mu.threshold, all = g.rank(g.limit * g.mu.share)
	g.mu.open = all || float64(g.mu.arrived) <= g.limit && g.mu.level < g.limit
	g.mu.bucket = (g.mu.bucket + 1) % remembered
	g.mu.seen[g.mu.bucket] = g.mu.seen[g.mu.bucket][:0]
	g.mu.arrived, g.mu.passed, g.mu.overflow = 0, 0, 0
	g.mu.began = g.mu.began.Add(g.length)
}

// rank returns the first-attempt time that so many of a bucket's submissions are not younger than,
// or that all are among so many. The threshold has to open wholly then: one that stood at the present
// would refuse whoever comes next.
func (g *Gate) rank(n float64) (threshold time.Time, all bool) {
	var times []time.Time
	for _, t := range g.mu.seen {
		times = append(times, t...)
	}
	i := int(math.Ceil(n * float64(g.mu.filled)))
	if i >= len(times) {
		return time.Time{}, true
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[max(i-1, 0)], false
}

// RetryAfter returns how long a refused client should wait, 5 to 15 s; chance is from 0 to 1. A
// longer wait that is spread less would let the threshold see only a part of those who wait.
func RetryAfter(chance float64) time.Duration {
	return 5*time.Second + time.Duration(chance*float64(10*time.Second))
}
