package admit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/admission"
)

// cpu knows whether CPU is what the process lacks: accepting and refusing take it from each other then.
type cpu struct {
	early, all int64       // periods of the quota that ended early, of all; of look alone
	taken      int64       // messages, at the last look
	looked     time.Time   // last
	short      atomic.Bool // it lacks
	stored     atomic.Int64

	mu     sync.Mutex    // guards the rest
	late   time.Duration // of the timers that were due since the last look, added up
	timers int           // how many these were
	usual  float64       // how late timers are, seconds
	pace   float64       // refusals a second
	next   time.Time     // when the next refusal leaves
}

const (
	usedUp = .8 // of the periods of a quota

	timerEvery    = 20 * time.Millisecond
	latest        = time.Second // more says no more
	lateFollowing = .3
	// seconds: other processes have the CPU. A quota that is used up makes timers late by half of that
	lateShort = .05
	lateFrom  = .1 // where the pressure begins
	lateTo    = .5

	paceFollowing = .1
	refusalsATake = .15 // for each message that is taken: with its connection, a refusal takes as much CPU
	leastPace     = 20
	holdATier     = 5 * time.Second // that tier 2 is held at most; tier 3 twice that. Tiers 0 and 1 come again at once
)

// watch measures how late timers are, until ctx ends. Those that were due while none could fire are as late as they
// would have been.
func (c *cpu) watch(ctx context.Context) {
	t := time.NewTicker(timerEvery)
	defer t.Stop()
	for due := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		due = latestOf(due, now.Add(-latest))
		for ; !due.After(now); due = due.Add(timerEvery) {
			c.fired(now.Sub(due))
		}
	}
}

func latestOf(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func (c *cpu) fired(late time.Duration) {
	c.mu.Lock()
	c.late += late
	c.timers++
	c.mu.Unlock()
}

// look takes in how many periods of the quota there were, and how many of them ended early because it was used up.
func (c *cpu) look(now time.Time, early, all int64) {
	periods, ended := all-c.all, early-c.early
	spent := c.all > 0 && periods > 0 && float64(ended) >= usedUp*float64(periods)
	c.early, c.all = early, all
	taken, d := c.stored.Load(), now.Sub(c.looked).Seconds()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timers > 0 {
		c.usual += lateFollowing * (c.late.Seconds()/float64(c.timers) - c.usual)
	}
	c.late, c.timers = 0, 0
	if !c.looked.IsZero() && d > 0 {
		c.pace += paceFollowing * (refusalsATake*float64(taken-c.taken)/d - c.pace)
	}
	c.looked, c.taken = now, taken
	c.short.Store(spent || c.usual > lateShort)
}

// lateness is how late timers are, in seconds.
func (c *cpu) lateness() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usual
}

// hold returns how long the reply to a refused message of a tier is held: the refusals leave one by one, at a pace at
// which they take little of the CPU. Its client can send nothing meanwhile.
func (c *cpu) hold(now time.Time, tier int) time.Duration {
	longest := time.Duration(tier-1) * holdATier
	if !c.short.Load() || longest <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d := c.next.Sub(now); d < 0 || d > admission.Tiers*holdATier { // or the clock was set back
		c.next = now
	}
	d := c.next.Sub(now)
	if d > longest {
		return longest
	}
	c.next = c.next.Add(time.Duration(float64(time.Second) / max(c.pace, leastPace)))
	return d
}
