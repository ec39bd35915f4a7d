package dispatch

import (
	"context"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue"
)

const (
	// sweepEvery is how often throttled mail is looked at although there are no tokens for it: what waited for its
	// source for long enough takes another, and a source may be missing, or be back.
	sweepEvery = time.Minute
	// lookEvery is the same for pools that divert, whose mail has waited for long enough sooner.
	lookEvery = time.Second
	// earlyAnswers is how many of those are kept that came before their mail was in line. Further mail waits until the
	// next look.
	earlyAnswers = 64
	// unparkAtOnce is how many messages are taken up at a time when all are.
	unparkAtOnce = 100
)

// throttled is the mail that waits for tokens of warming sources, in lines of the queue.
type throttled struct {
	d      *Dispatcher
	handle func(*queue.Lease) // takes mail up again
	again  chan struct{}      // to run: all of it must be looked at anew
	early  chan early         // to run, too
	ended  atomic.Bool        // run has: nothing is taken up any more

	taking sync.Mutex // held while mail of a line is tried, one message at a time

	mu    sync.Mutex // guards what follows
	lines map[parking.Key]*throttledLines
	trial envelope.ID // the message that is being tried
	back  bool        // and that waits again
}

// early is mail that the warm-up's store has answered before it was in line, so that OnTokens did not find it.
type early struct {
	at     parking.Key
	source string // that it waits for; "" is any of the pool
}

func newThrottled(d *Dispatcher) *throttled {
	return &throttled{d: d, handle: d.handle, again: make(chan struct{}, 1), early: make(chan early, earlyAnswers),
		lines: make(map[parking.Key]*throttledLines)}
}

// run takes up what can leave, or must be decided anew, until ctx ends.
func (t *throttled) run(ctx context.Context) {
	defer t.ended.Store(true)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var swept time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			full := now.Sub(swept) >= sweepEvery
			if full {
				swept = now
			}
			t.sweep(ctx, full)
		case <-t.again:
			t.takeAll(ctx)
		case e := <-t.early:
			t.take(e.at, e.source)
		}
	}
}

// lookAgain has run take up all mail: what it waits for may be there no longer.
func (t *throttled) lookAgain() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// park lets recipients of a message wait for tokens. Those that were tried, or are back, keep their place.
func (t *throttled) park(m *envelope.Message, recipients []int, c *choice, weight int, back bool) {
	t.mu.Lock()
	h := t.lines[c.wait]
	if h == nil {
		h = newThrottledLines(c.wait)
		t.lines[c.wait] = h
	}
	tier := m.Tier
	if c.again {
		tier++
	}
	l := h.line(parking.Line{Key: c.wait, Source: c.own, Tenant: m.Tenant, Tier: envelope.TierOf(tier),
		Preferred: c.first}, weight)
	if m.ID == t.trial {
		t.back, back = true, true
	}
	if l.until = (time.Time{}); back && c.waits {
		l.until = c.until
	}
	park := t.d.Queue.Park
	if back {
		park = t.d.Queue.ParkFirst
	}
	// under the lock, or the line could be forgotten before there is anything in it
	park(m.ID, recipients, l.line, c.expires)
	t.mu.Unlock()
	if c.asked != "" && t.d.Warmup.Answered(c.asked, c.wait.Provider) {
		select {
		case t.early <- early{c.wait, c.own}:
		default:
		}
	}
}

// waiting is how much mail waits; for any provider where none is named.
func (t *throttled) waiting(at parking.Key) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.lines[at]; h != nil {
		return t.d.Queue.ParkedInLines(h.Key)
	}
	if at.Provider != "" {
		return 0
	}
	for other, h := range t.lines {
		if other.Name == at.Name {
			n += t.d.Queue.ParkedInLines(h.Key)
		}
	}
	return n
}

// waitingFor is warmup.Config.Waiting.
func (t *throttled) waitingFor(key, provider string) (n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return 0
	}
	for _, pool := range t.d.Policy().WarmupPools(key) {
		if h := t.lines[tokens(pool, provider)]; h != nil {
			n += int64(t.d.Queue.ParkedInLines(h.Key))
		}
	}
	return n
}

// tryAll is warmup.Config.OnTokens: it tries mail as long as some leaves.
func (t *throttled) tryAll(key, provider string) {
	pol := t.d.Policy()
	source := pol.WarmupSource(key)
	for _, pool := range pol.WarmupPools(key) {
		t.take(tokens(pool, provider), source)
	}
}

// take tries mail that a source may take, as long as some leaves.
func (t *throttled) take(at parking.Key, source string) {
	next := func(h *throttledLines) *throttledLine { return h.next(source, t.d.Queue.Parked) }
	for t.try(at, next) {
	}
}

// try has the first message of a line look for a source. It reports whether that did not wait again.
func (t *throttled) try(at parking.Key, next func(*throttledLines) *throttledLine) bool {
	t.taking.Lock()
	defer t.taking.Unlock()
	t.mu.Lock()
	var l *throttledLine
	h := t.lines[at]
	if h != nil && !t.ended.Load() {
		l = next(h)
	}
	t.mu.Unlock()
	if l == nil {
		return false
	}
	for _, lease := range t.d.Queue.Take(l.line, 1) {
		t.mu.Lock()
		t.trial, t.back = lease.Message.ID, false
		t.mu.Unlock()
		t.handle(lease)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.trial = 0
	if !t.back {
		h.took(l)
	}
	return !t.back
}

// sweep tries mail of each line as long as some leaves; or of pools that divert only.
func (t *throttled) sweep(ctx context.Context, full bool) {
	for h, l := range t.linesNow() {
		if p := t.d.Policy().Config.Pool(h.Name); !full && p != nil && (p.Overflow == "hold" || len(p.Shared) == 0) {
			continue
		}
		for (full || t.decidable(l)) && t.d.Queue.Parked(l.line) > 0 && t.d.pause(ctx) == nil &&
			t.try(h.Key, func(*throttledLines) *throttledLine {
				return l
			}) {
		}
	}
}

// decidable reports whether the first message of a line may not have to wait on.
func (t *throttled) decidable(l *throttledLine) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.d.Now().Before(l.until)
}

// each gives how much waits, by pool and provider.
func (t *throttled) each(f func(pool, provider string, n int)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for at, h := range t.lines {
		f(at.Name, at.Provider, t.d.Queue.ParkedInLines(h.Key))
	}
}

// linesNow gives each line that there is, and forgets where nothing waits.
func (t *throttled) linesNow() iter.Seq2[*throttledLines, *throttledLine] {
	return func(yield func(*throttledLines, *throttledLine) bool) {
		t.mu.Lock()
		maps.DeleteFunc(t.lines, func(_ parking.Key, h *throttledLines) bool {
			return t.d.Queue.ParkedInLines(h.Key) == 0
		})
		all := slices.Collect(maps.Values(t.lines))
		t.mu.Unlock()
		for _, h := range all {
			t.mu.Lock()
			lines := slices.Collect(maps.Values(h.known))
			t.mu.Unlock()
			for _, l := range lines {
				if !yield(h, l) {
					return
				}
			}
		}
	}
}

// takeAll takes up all that waits. What waits again goes to the end of its line: so all keep their order.
func (t *throttled) takeAll(ctx context.Context) {
	for _, l := range t.linesNow() {
		for left := t.d.Queue.Parked(l.line); left > 0 && t.d.pause(ctx) == nil; {
			leases := t.d.Queue.Take(l.line, min(left, unparkAtOnce))
			if len(leases) == 0 {
				break
			}
			for _, lease := range leases {
				left -= len(lease.Recipients)
				t.handle(lease)
			}
		}
	}
}
