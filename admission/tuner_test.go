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
