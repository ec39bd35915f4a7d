package admit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/bubble"
)

// customer is a tenant that offers messages, so many new ones a second.
type customer struct {
	tenant string
	rate   float64
	proves bool // its clients come back, with proof of their first attempt, as by HTTP

	mu     sync.Mutex
	stored [12]int         // in each five seconds
	new    [12]int         // offered for the first time
	took   []time.Duration // of attempts that were stored, but for those of the first slice
	worst  time.Duration   // of all

	refused int // attempts
}

const slice = 5 * time.Second

// part is the part of its new messages that is stored from a time on.
func (c *customer) part(from time.Duration) float64 {
	stored, all := 0, 0
	for i := int(from / slice); i < len(c.stored); i++ {
		stored, all = stored+c.stored[i], all+c.new[i]
	}
	return float64(stored) / float64(all)
}

func (c *customer) p99() time.Duration {
	slices.Sort(c.took)
	return c.took[len(c.took)*99/100]
}

// offer submits for a minute.
func (c *customer) offer(g *Gate, d *slowDisk, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 16))
	began := time.Now()
	var all sync.WaitGroup
	for end := began.Add(time.Minute); ; {
		time.Sleep(time.Duration(random.ExpFloat64() / c.rate * float64(time.Second)))
		if !time.Now().Before(end) {
			break
		}
		c.mu.Lock()
		c.new[time.Since(began)/slice]++
		c.mu.Unlock()
		size, chance := random.Int64(), random.Float64()
		all.Go(func() {
			for first := time.Now(); !c.try(g, d, size, first, began) && c.proves; {
				time.Sleep(admission.RetryAfter(chance))
				if !time.Now().Before(end) {
					return
				}
			}
		})
	}
	all.Wait()
}

func (c *customer) try(g *Gate, d *slowDisk, size int64, first, began time.Time) bool {
	r := request(c.tenant, 3)
	if r.Size = size; c.proves {
		r.First = first
	}
	asked := time.Now()
	a, refused := g.Admit(r)
	if refused == nil {
		if refused = a.Full(); refused != nil {
			a.Drop()
		}
	}
	if refused == nil {
		refused, _ = a.Commit(context.Background(), 3, d.commit)
	}
	if refused != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.refused++
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i := int(time.Since(began) / slice)
	took := time.Since(asked)
	c.worst = max(c.worst, took)
	if i > 0 { // the line of the first moments is over
		c.took = append(c.took, took)
	}
	if i < len(c.stored) {
		c.stored[i]++
	}
	return true
}

// A disk takes 240 messages a second.
func offerAll(t *testing.T, customers ...*customer) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		g, d := running(t, settings(), machine()), &slowDisk{rate: 240}
		var all sync.WaitGroup
		for i, c := range customers {
			all.Go(func() { c.offer(g, d, uint64(i)) })
		}
		all.Wait()
	})
	for _, c := range customers {
		t.Logf("%s, %.0f/s, proves %v: %.3f from 5 s on, by 5 s %v; p99 %v, the slowest %v", c.tenant, c.rate, c.proves, c.part(slice), c.stored, c.p99(), c.worst)
	}
}

// TestA16_EqualTenantsHaveEqualParts has two tenants offer 250 messages a second each at one tier, where
// 240 fit: each gets half of that within five seconds, whichever way its messages come.
func TestA16_EqualTenantsHaveEqualParts(t *testing.T) {
	for _, proves := range [][2]bool{{false, false}, {true, true}, {true, false}} {
		one, two := &customer{tenant: "one", rate: 250, proves: proves[0]}, &customer{tenant: "two", rate: 250, proves: proves[1]}
		offerAll(t, one, two)
		for _, c := range []*customer{one, two} {
			if part := c.part(slice); math.Abs(part-.48) > .05 {
				t.Errorf("%v: %.3f of the mail of tenant %s is stored, want .48", proves, part, c.tenant)
			}
		}
	}
}

// TestA16_WhoWantsLessThanItsPartGetsAll has a tenant whose clients wait with proofs of their first attempts,
// twice as many as fit, beside a small one.
func TestA16_WhoWantsLessThanItsPartGetsAll(t *testing.T) {
	for _, proves := range []bool{true, false} {
		alone := &customer{tenant: "small", rate: 40, proves: proves}
		offerAll(t, alone)
		small, large := &customer{tenant: "small", rate: 40, proves: proves}, &customer{tenant: "large", rate: 500, proves: true}
		offerAll(t, small, large)
		if part := small.part(slice); part < .995 {
			t.Errorf("%v: %.3f of the small tenant's mail is stored, want all", proves, part)
		}
		if p99 := small.p99(); p99 > 140*time.Millisecond {
			t.Errorf("%v: the small tenant's mail is stored in %v at p99 beside the large one, want 140 ms at most", proves, p99)
		}
		if small.worst > 400*time.Millisecond {
			t.Errorf("%v: a message of the small tenant takes %v as the large one begins, want 400 ms at most", proves, small.worst)
		}
		if small.refused > 0 {
			t.Errorf("%v: %d of the small tenant's messages are refused", proves, small.refused)
		}
		if part := large.part(slice) * 500 / 200; part < .93 {
			t.Errorf("%v: the large tenant has %.3f of what is left, want all", proves, part)
		}
	}
}
