package admit

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// returns knows which messages come back at once after a refusal. Their clients wait for the next
// one, longer each time, which costs a connection and spares the relay a thousand refusals.
type returns struct {
	held atomic.Int64

	mu         sync.Mutex
	young, old map[string]tries // young becomes old after atOnce, or when it is full
	since      time.Time        // that young is young
}

type tries struct {
	last time.Time
	n    int
}

const (
	atOnce     = time.Minute
	firstHold  = time.Second
	longestOne = 5 * time.Second
	mostKept   = 10_000 // messages in each generation
	mostHeld   = 10000  // sessions that wait at a time; others hear the reply at once
)

// refused counts a refusal, and returns how long the client is to wait for it: 0 for the first one
// in a minute.
func (r *returns) refused(now time.Time, attempt []string) time.Duration {
	key := strings.Join(attempt, "\x00")
	r.mu.Lock()
	defer r.mu.Unlock()
	t, known := r.young[key]
	if !known {
		t = r.old[key]
	}
	if now.Sub(t.last).Abs() > atOnce {
		t.n = 0
	}
	t.n, t.last = t.n+1, now
	if r.young == nil || now.Sub(r.since).Abs() > atOnce || len(r.young) >= mostKept {
		r.old, r.young, r.since = r.young, make(map[string]tries), now
	}
	r.young[key] = t
	if t.n == 1 {
		return 0
	}
	longest := min(firstHold<<min(t.n-2, 8), longestOne)
	return longest/2 + rand.N(longest/2)
}

// taken forgets a message that was taken in the end.
func (r *returns) taken(attempt []string) {
	key := strings.Join(attempt, "\x00")
	r.mu.Lock()
	delete(r.young, key)
	delete(r.old, key)
	r.mu.Unlock()
}

// hold waits, unless enough sessions do.
func (r *returns) hold(ctx context.Context, d time.Duration) {
	defer r.held.Add(-1)
	if r.held.Add(1) > mostHeld {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
