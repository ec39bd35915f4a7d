package admission

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// plant is a machine that serves best with knee pieces of work at a time: with more, each takes
// longer, and together they get a little less done.
type plant struct {
	knee   float64
	each   time.Duration // alone
	random *rand.Rand
}

// serve gives the latencies of a second with this many at work.
func (p *plant) serve(t *Tuner, busy float64) (served float64) {
	crowd := max(1, busy/p.knee)
	latency := p.each.Seconds() * crowd * (1 + .1*max(0, crowd-1))
	served = busy / latency
	for range int(served) {
		t.Observe(time.Duration(latency * (.7 + .6*p.random.Float64()) * 1e9))
	}
	return served
}

// TestA13_TheLimitIsAtTheKnee has far more work than can be done, and a machine that becomes half as
// fast.
func TestA13_TheLimitIsAtTheKnee(t *testing.T) {
	for seed := range uint64(10) {
		tuner, p := new(Tuner), &plant{64, 30 * time.Millisecond, rand.New(rand.NewPCG(seed, 1))}
		now := newClock()
		run := func(seconds int) (mean, least, most float64) {
			least = math.Inf(1)
			for i := range seconds {
				now.advance(interval)
				p.serve(tuner, tuner.Limit())
				tuner.Tune(now.t, tuner.Limit())
				if i >= seconds/2 {
					mean += tuner.Limit() / float64(seconds-seconds/2)
					least, most = min(least, tuner.Limit()), max(most, tuner.Limit())
				}
			}
			return mean, least, most
		}
		for _, knee := range []float64{64, 32} {
			p.knee = knee
			mean, least, most := run(600)
			if mean < .5*knee || mean > 1.3*knee {
				t.Errorf("seed %d: with the knee at %.0f the limit is %.0f on average (%.0f to %.0f)", seed, knee, mean, least, most)
			}
		}
	}
}

func TestTheLimitStaysWhereItIsNotUsed(t *testing.T) {
	tuner, now := new(Tuner), newClock()
	for range 300 {
		now.advance(interval)
		for range 100 {
			tuner.Observe(5 * time.Millisecond)
		}
		tuner.Tune(now.t, 2)
	}
	if l := tuner.Limit(); l != firstLimit {
		t.Errorf("two slots of %d are in use, and the limit became %.1f", firstLimit, l)
	}
}

func TestTheLimitFallsAboveTheCeiling(t *testing.T) {
	tuner, now := &Tuner{Least: 2}, newClock()
	for range 60 {
		now.advance(interval)
		for range 100 {
			tuner.Observe(time.Second)
		}
		tuner.Tune(now.t, tuner.Limit())
	}
	if l := tuner.Limit(); l != 2 {
		t.Errorf("with latencies of a second the limit is %.1f, want the least", l)
	}
}

func TestQuantiles(t *testing.T) {
	var h histogram
	for i := 1; i <= 1000; i++ {
		h.add(time.Duration(i) * time.Millisecond)
	}
	if got := h.quantile(.9); math.Abs(got-.9) > .05 {
		t.Errorf("the 90th percentile of 1 to 1,000 ms is %.3f s", got)
	}
	h.add(0)
	h.add(time.Hour)
	if h.n != 1002 {
		t.Errorf("%d counted", h.n)
	}
}

// TestTheIntervalHasTheAverageOfItsPeriods alternates between a full and an empty period: what the
// series keeps is the average, and not the value of the period that ends the interval.
func TestTheIntervalHasTheAverageOfItsPeriods(t *testing.T) {
	tuner, now := new(Tuner), newClock()
	tuner.Tune(now.t, 0)
	for i := range 20 {
		now.advance(Period)
		for range 50 {
			tuner.Observe(5 * time.Millisecond)
		}
		tuner.Tune(now.t, float64(20*(i%2)))
	}
	for i := range tuner.busy.n {
		if v := tuner.busy.values[i]; math.Abs(v-10) > .01 {
			t.Errorf("interval %d: %.1f slots in use, want the average of 0 and 20", i, v)
		}
	}
	if tuner.busy.n != 10 {
		t.Errorf("%d intervals, want 10", tuner.busy.n)
	}
}

// TestCommitsThatShareASyncAreNotThrottled has a disk whose sync takes the same time whatever it
// writes: twice the latency under load is no reason for fewer slots.
func TestCommitsThatShareASyncAreNotThrottled(t *testing.T) {
	tuner, now := &Tuner{Start: 256, Good: 50 * time.Millisecond}, newClock()
	for i := range 300 {
		latency := 5 * time.Millisecond
		if i > 20 {
			latency = 20 * time.Millisecond
		}
		for range 1000 {
			tuner.Observe(latency)
		}
		now.advance(interval)
		tuner.Tune(now.t, tuner.Limit())
	}
	if l := tuner.Limit(); l != 1024 {
		t.Errorf("the limit is %.0f, want the most", l)
	}
}

// TestASlowSyncIsNoReasonForFewerSlots has a disk whose sync takes far longer than the ceiling,
// whatever it writes.
func TestASlowSyncIsNoReasonForFewerSlots(t *testing.T) {
	for _, latency := range []time.Duration{150 * time.Millisecond, 400 * time.Millisecond} {
		tuner, now, sum := &Tuner{Start: 64, Least: 8, Good: 50 * time.Millisecond}, newClock(), 0.
		const seconds = 300
		for range seconds {
			for range int(tuner.Limit() / latency.Seconds()) {
				tuner.Observe(latency)
			}
			now.advance(interval)
			tuner.Tune(now.t, tuner.Limit())
			sum += tuner.Limit()
		}
		if mean := sum / seconds; mean < 60 {
			t.Errorf("with syncs of %v the limit is %.0f on average", latency, mean)
		}
	}
}

// TestAFarTooHighLimitFallsAtOnce has a disk that writes 300 messages a second, however many are
// under way.
func TestAFarTooHighLimitFallsAtOnce(t *testing.T) {
	tuner, now := &Tuner{Start: 1024, Least: 4, Good: 50 * time.Millisecond}, newClock()
	for seconds := 1; ; seconds++ {
		for range 300 {
			tuner.Observe(time.Duration(tuner.Limit() / 300 * float64(time.Second)))
		}
		now.advance(interval)
		tuner.Tune(now.t, tuner.Limit())
		if l := tuner.Limit(); l <= 2*.1*300 {
			if seconds > 12 || l < 15 {
				t.Errorf("the limit is %.0f after %d s", l, seconds)
			}
			return
		}
		if seconds > 100 {
			t.Fatalf("the limit is still %.0f", tuner.Limit())
		}
	}
}

// TestA18_FewerSlotsGiveNoCPU has latencies far above the ceiling, since CPU lacks.
func TestA18_FewerSlotsGiveNoCPU(t *testing.T) {
	now := newClock()
	tuner := &Tuner{Start: 32, Good: 50 * time.Millisecond, Ceiling: 100 * time.Millisecond, Blind: func() bool { return true }}
	for range 5 {
		now.advance(interval)
		for range 200 {
			tuner.Observe(500 * time.Millisecond)
		}
		tuner.Tune(now.t, tuner.Limit())
	}
	if got := tuner.Limit(); got != 64 {
		t.Errorf("%.0f slots, want 64: %s", got, tuner.Why())
	}
}
