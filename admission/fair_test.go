package admission

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// TestA16_AThresholdDividesATierMaxMin has four tenants offer 692 a second together, of which 40 % are refused:
// 190 for each is what is left, and what the two small ones do not use goes to the large ones.
func TestA16_AThresholdDividesATierMaxMin(t *testing.T) {
	rates := map[string]float64{"large": 400, "middle": 250, "small": 40, "least": 2}
	const refused, level = .4, (692*.6 - 42) / 2
	clk, f := newClock(), new(Fair)
	c := New(Config{Limit: 1, Now: clk.now, Law: fixed(refused)})
	random := rand.New(rand.NewPCG(1, 1))
	asked, admitted := map[string]int{}, map[string]int{}
	for i := range 30 * 692 {
		clk.advance(time.Second / 692)
		if i%346 == 0 {
			c.Calibrate()
		}
		tenant, at := "", random.Float64()*692
		for name, rate := range rates {
			if at -= rate; at < 0 {
				tenant = name
				break
			}
		}
		turn := newcomers
		if tenant == "large" && i%3 > 0 {
			turn = Returned(clk.t.Add(-time.Duration(random.IntN(60)) * time.Second))
		}
		p, last := f.Priority(clk.t, 3, tenant, turn)
		if p.Tier() != 3 || last < p {
			t.Fatalf("priority %d, the tenant's last %d", p, last)
		}
		_, r := c.Admit(p)
		if i < 5*692 {
			continue
		}
		if asked[tenant]++; r == nil {
			admitted[tenant]++
		}
	}
	s := c.Status()
	for tenant, rate := range rates {
		got, want := float64(admitted[tenant])/float64(asked[tenant]), min(level/rate, 1)
		if math.Abs(got-want) > .03 {
			t.Errorf("%s: %.3f of %.0f a second is admitted, want %.3f", tenant, got, rate, want)
		}
		if passes := f.Passes(clk.t, 3, tenant, s.Level, s.Part); math.Abs(passes-want) > .1 {
			t.Errorf("%s: %.3f is reported to pass, want %.3f", tenant, passes, want)
		}
	}
	if math.Abs(s.Admitted[3]-.6) > .01 || s.Admitted[2] != 1 || s.Admitted[4] != 0 {
		t.Errorf("of the tiers %v are reported to be admitted", s.Admitted)
	}
}

// TestTheOrderWithinATenant asks with messages that come back, the oldest first, and with new ones of two kinds.
func TestTheOrderWithinATenant(t *testing.T) {
	var f Fair
	clk := newClock()
	turns := []Turn{Returned(clk.t.Add(-time.Hour)), Returned(clk.t.Add(-time.Minute)), newcomers + 3, newcomers + 90}
	var sums, most [4]float64
	const rounds = 500
	least := [4]float64{1, 1, 1, 1}
	for i := range rounds {
		for kind, turn := range turns {
			clk.advance(time.Millisecond)
			p, last := f.Priority(clk.t, 2, "acme", turn)
			place := aheadOf(p.Cohort()) / aheadOf(last.Cohort())
			if i < rounds/5 {
				continue
			}
			sums[kind] += place / (rounds * 4 / 5)
			least[kind], most[kind] = min(least[kind], place), max(most[kind], place)
		}
	}
	for kind := range turns {
		if want := .125 + .25*float64(kind); math.Abs(sums[kind]-want) > .06 {
			t.Errorf("turn %d has place %.3f on average, want %.3f", kind, sums[kind], want)
		}
		if kind > 0 && least[kind] < most[kind-1]-.12 || most[kind]-least[kind] < .15 {
			t.Errorf("turn %d is between %.3f and %.3f: want a quarter, after those before it", kind, least[kind], most[kind])
		}
	}
}

// TestAThresholdIsOfThePresentRates has a tenant begin to offer 500 a second beside one that offers 40, and asks for
// half of both: the threshold leaves 230 a second of the large one, 270 in all, in the first second too.
func TestAThresholdIsOfThePresentRates(t *testing.T) {
	var f Fair
	clk := newClock()
	for i := range 3 * 540 {
		clk.advance(time.Second / 540)
		tenant := "large"
		if i%27 < 2 {
			tenant = "small"
		}
		f.Priority(clk.t, 3, tenant, newcomers)
		if i < 270 || i%54 > 0 {
			continue
		}
		sum := 0.
		for _, r := range f.rates(clk.t, 3) {
			sum += r
		}
		level, part := f.Within(clk.t, 3, .5)
		from, to := aheadOf(level-3*Cohorts), aheadOf(level+1-3*Cohorts)
		each := from + part*(to-from)
		if want := sum/2 - f.flows[flowKey{3, "small"}].rate(clk.t); math.Abs(each-want) > .01*want {
			t.Errorf("after %d: %.0f a second for each, want %.0f", i, each, want)
		}
		if part := f.Passes(clk.t, 3, "small", level, part); part < 1 {
			t.Errorf("after %d: %.2f of the small tenant's pass", i, part)
		}
	}
	for _, c := range []struct {
		tier  int
		part  float64
		level int
	}{{3, 1, 4 * Cohorts}, {3, 0, 3 * Cohorts}, {4, .5, 5 * Cohorts}} {
		if level, part := f.Within(clk.t, c.tier, c.part); level != c.level || part != 0 {
			t.Errorf("%.1f of tier %d: level %d and %.2f of it, want %d", c.part, c.tier, level, part, c.level)
		}
	}
}

// TestFairIsBounded has more tenants than are told apart, and a clock that is set back.
func TestFairIsBounded(t *testing.T) {
	var f Fair
	clk := newClock()
	for i := range mostFlows + 500 {
		f.Priority(clk.t, 3, fmt.Sprint(i), newcomers)
	}
	if len(f.flows) > mostFlows+1 {
		t.Errorf("%d tenants are remembered", len(f.flows))
	}
	for range 10 * mostTurns {
		f.Priority(clk.t, 3, "0", newcomers)
	}
	if l := f.flows[flowKey{3, "0"}]; len(l.recent) > mostTurns || len(l.order) != len(l.recent) {
		t.Errorf("%d turns are remembered, %d in order", len(l.recent), len(l.order))
	}
	clk.advance(-time.Hour)
	if p, _ := f.Priority(clk.t, 9, "0", 0); p.Tier() != Tiers-1 {
		t.Errorf("tier %d", p.Tier())
	}
	if len(f.flows) != 1 {
		t.Errorf("an hour before, %d tenants are remembered", len(f.flows))
	}
}

// TestSubmissionsAtOnceAreCountedTogether has each tenth submission read the clock before the one that
// is counted just before it: the tenant's rate does not begin anew.
func TestSubmissionsAtOnceAreCountedTogether(t *testing.T) {
	var f Fair
	clk := newClock()
	for i := range 5000 { // 500 a second
		clk.advance(2 * time.Millisecond)
		at := clk.t
		if i%10 == 0 {
			at = at.Add(-3 * time.Millisecond)
		}
		_, last := f.Priority(at, 3, "many", newcomers)
		if rate := aheadOf(last.Cohort() + 1); i > 2500 && (rate < 450 || rate > 600) {
			t.Fatalf("submission %d: %.0f a second are counted, want 500", i, rate)
		}
	}
}

// BenchmarkFair is what a priority costs while all come back.
func BenchmarkFair(b *testing.B) {
	var f Fair
	clk := newClock()
	b.ReportAllocs()
	for i := range b.N {
		clk.advance(100 * time.Microsecond)
		f.Priority(clk.t, 3, "tenant", Turn(i*7919%100_000))
	}
}
