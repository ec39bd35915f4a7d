package admit

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/envelope"
)

// Refusal is one message that was not admitted.
type Refusal struct {
	Time         time.Time
	Client       netip.Addr
	Sender       envelope.Address
	Tenant       string
	Tier, Cohort int
	Reason       string
	Held         time.Duration // that its client waited for the reply
}

// Kind is what refusals have in common that are counted together.
type Kind struct {
	Tenant string
	Tier   int
	Reason string
}

// Count is what came and what was refused of it.
type Count struct{ Asked, Refused int64 }

// Slice is a stretch of the last minutes, by tier.
type Slice struct {
	Time  time.Time // its end
	Tiers [admission.Tiers]Count
}

const (
	sliceTime   = 10 * time.Second
	slicesKept  = 60
	mostTenants = 1000 // that are counted by name; the others are counted as Others
	mostLast    = 1000 // refusals that are kept one by one
	alarmAfter  = 5 * time.Second
	alarmFor    = 30 * time.Second
)

// Others is the tenant under which those are counted that are too many.
const Others = "(others)"

// account counts what came and what was refused.
type account struct {
	tiers [admission.Tiers]struct{ asked, refused atomic.Int64 }

	mu      sync.Mutex
	kinds   map[Kind]int64
	tenants map[string]bool // in kinds
	last    []Refusal       // a ring
	next    int
	slices  []Slice   // the newest last
	sum     Slice     // at the end of the newest
	began   time.Time // of a time with refusals
	latest  time.Time // refusal
}

func (a *account) init(now time.Time) {
	a.kinds, a.tenants, a.sum.Time = make(map[Kind]int64), make(map[string]bool), now
}

func (a *account) asked(tier int) { a.tiers[tier].asked.Add(1) }

func (a *account) refused(r Refusal) {
	a.tiers[r.Tier].refused.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	k := Kind{r.Tenant, r.Tier, r.Reason}
	if !a.tenants[k.Tenant] && len(a.tenants) >= mostTenants {
		k.Tenant = Others
	}
	a.tenants[k.Tenant] = true
	a.kinds[k]++
	if len(a.last) < mostLast {
		a.last = append(a.last, r)
	} else {
		a.last[a.next%mostLast] = r
	}
	a.next++
	if r.Time.Sub(a.latest) > alarmFor {
		a.began = r.Time
	}
	a.latest = r.Time
}

// turn ends a slice that has lasted.
func (a *account) turn(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d := now.Sub(a.sum.Time); d >= 0 && d < sliceTime {
		return
	}
	sum := Slice{Time: now, Tiers: a.counts()}
	s := sum
	for i, before := range a.sum.Tiers {
		s.Tiers[i].Asked -= before.Asked
		s.Tiers[i].Refused -= before.Refused
	}
	if a.sum = sum; len(a.slices) == slicesKept {
		a.slices = slices.Delete(a.slices, 0, 1)
	}
	a.slices = append(a.slices, s)
}

func (a *account) counts() (all [admission.Tiers]Count) {
	for i := range a.tiers {
		all[i] = Count{a.tiers[i].asked.Load(), a.tiers[i].refused.Load()}
	}
	return all
}

// since returns when the time with refusals began that is not over yet; zero when there is none.
func (a *account) since(now time.Time) time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.latest.IsZero() || now.Sub(a.latest) > alarmFor || a.latest.Sub(a.began) < alarmAfter {
		return time.Time{}
	}
	return a.began
}

// refusals returns the counts since the start, the largest first.
func (a *account) refusals() []KindCount {
	a.mu.Lock()
	out := make([]KindCount, 0, len(a.kinds))
	for k, n := range maps.All(a.kinds) {
		out = append(out, KindCount{k, n})
	}
	a.mu.Unlock()
	slices.SortFunc(out, func(x, y KindCount) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Tenant, y.Tenant), cmp.Compare(x.Tier, y.Tier),
			cmp.Compare(x.Reason, y.Reason))
	})
	return out
}

// KindCount is how many refusals of a kind there were.
type KindCount struct {
	Kind
	Count int64
}

// lastOf returns the last refusals that match, the newest first.
func (a *account) lastOf(match func(*Refusal) bool) (out []Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range len(a.last) {
		if r := &a.last[(a.next-1-i)%mostLast]; match(r) {
			out = append(out, *r)
		}
	}
	return out
}

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
