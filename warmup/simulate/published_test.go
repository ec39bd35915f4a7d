package simulate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"example.org/mta/warmup"
)

// toy is the example that the controller was published with: a loop that each pass adds 0 to 9
// messages with probability p, and a control loop that samples every 50 ms.
type toy struct {
	cap    float64
	pass   float64 // milliseconds that a pass of the sending loop takes
	lag    int     // samples by which the count is late
	demand float64 // times the published one
	scaled bool    // PID: error times 350/cap
}

const (
	sample  = 50. // ms
	samples = 20  // a second: everybody has come to rest by then
)

// overshoot runs the example and gives sent/cap - 1.
func (x toy) overshoot(pacing Pacing, seed uint64) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	grain := x.demand * x.cap / 350
	if pacing == Ledger {
		return x.ledgerHour(seed)
	}
	var seen [samples + 1]float64
	var state warmup.PIDState
	sent, next := 0., 0.
	for i := range samples {
		seen[i] = sent
		left := x.cap - seen[max(0, i-x.lag)]
		p := ifElse(left > 0, 1, 0)
		if pacing == BarePID {
			if x.scaled {
				left *= 350 / x.cap
			}
			var u float64
			u, state = state.Step(left, sample)
			p = warmup.Probability(u)
		}
		for ; next < float64(i+1)*sample; next += x.pass {
			if r.Float64() < p {
				sent += float64(r.IntN(10)) * grain
			}
		}
	}
	return sent/x.cap - 1
}

// ledgerHour has the real ledger and pacer take from the same stream of messages, for the whole
// hour that the cap is meant for. Lag doesn't come into it: the ledger charges before sending.
func (x toy) ledgerHour(seed uint64) float64 {
	r := rand.New(rand.NewPCG(seed, 1))
	p := warmup.DefaultPlan()
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: int64(x.cap), Daily: 24 * int64(x.cap)}}}
	s := warmup.NewState(&p, 0)
	i := s.Provider(&p, warmup.Other)
	var sent int64
	for t := warmup.Instant(0); t < 3600_000; t += sample {
		s.Advance(&p, t)
		n := int64((sample/x.pass*4.5 + 20*r.NormFloat64()) * x.demand * x.cap / 350)
		s.Offer(&p, i, max(0, n))
		sent += s.Grant(&p, i, max(0, n), 0)
	}
	return float64(sent)/x.cap - 1
}

// spread is that of 200 seeds, in per cent; of 10 under the ledger, for which each is an hour.
type spread struct{ mean, p5, p95, max float64 }

func (x toy) run(pacing Pacing) spread {
	var all []float64
	var s spread
	seeds := 200
	if pacing == Ledger {
		seeds = 10 // each is a whole hour
	}
	for seed := range seeds {
		o := 100 * x.overshoot(pacing, uint64(seed))
		all = append(all, o)
		s.mean += o / float64(seeds)
	}
	slices.Sort(all)
	s.p5, s.p95, s.max = all[seeds/20], all[seeds-1-seeds/20], all[seeds-1]
	return s
}

func (s spread) String() string {
	return fmt.Sprintf("%+6.1f  p5 %+6.1f  p95 %+6.1f  max %+6.1f %%", s.mean, s.p5, s.p95, s.max)
}

var published = toy{cap: 350, pass: 1.06, demand: 1}

func TestW1_OnOffOvershoots(t *testing.T) {
	for _, pass := range []float64{1.0, 1.06, 1.1} {
		x := published
		x.pass = pass
		s := x.run(OnOff)
		t.Logf("pass %.2f ms: %v", pass, s)
		if s.mean < 15 || s.mean > 32 {
			t.Errorf("pass %.2f ms: mean overshoot %+.1f %%, published as almost 25 %%", pass, s.mean)
		}
	}
}

func TestW3_PIDLands(t *testing.T) {
	s := published.run(BarePID)
	t.Log(s)
	if s.mean < 0 || s.mean > 4 || s.max > 15 {
		t.Errorf("PID: %v, want a mean of 0 to 4 and a maximum of 15 at most", s)
	}
}

// The figures in docs/warmup.md, and some more.
func TestModesOnThePublishedExample(t *testing.T) {
	rows := []struct {
		name                         string
		toy                          toy
		onoff, onoffMax, pid, pidMax float64 // as expected, within 12 % of itself plus 4 points
	}{
		{"as published, 1.06 ms passes", published, 22.2, 42, 1.9, 8.9},
		{"one more sample of lag", published.with(func(x *toy) { x.lag = 1 }), 82, 109, 53, 75},
		{"lag 200 ms", published.with(func(x *toy) { x.lag = 4 }), 266, 299, 235, 269},
		{"demand x3", published.with(func(x *toy) { x.demand = 3 }), 86, 134, 86, 134},
		{"demand x10", published.with(func(x *toy) { x.demand = 10 }), 521, 680, 521, 680},
		{"cap 35,000, same relative plant", published.with(func(x *toy) { x.cap = 35_000 }), 22, 42, 22, 42},
		{"the same, error x 350/cap", published.with(func(x *toy) { x.cap = 35_000; x.scaled = true }), 22, 42, 1.9, 8.9},
	}
	for _, r := range rows {
		onoff, pid, ledger := r.toy.run(OnOff), r.toy.run(BarePID), r.toy.run(Ledger)
		t.Logf("%-32s on/off %+7.1f / %+7.1f   PID %+7.1f / %+7.1f   ledger %+.1f / %+.1f", r.name,
			onoff.mean, onoff.max, pid.mean, pid.max, ledger.mean, ledger.max)
		for _, c := range []struct {
			what      string
			got, want float64
		}{{"on/off mean", onoff.mean, r.onoff}, {"PID mean", pid.mean, r.pid}} {
			if d := c.got - c.want; d > 4+.12*c.want || -d > 4+.12*c.want {
				t.Errorf("%s: %s is %+.1f %%, want about %+.1f", r.name, c.what, c.got, c.want)
			}
		}
		if ledger.max > 0 || ledger.mean < -2 {
			t.Errorf("%s: the ledger sent %+.1f %% on average, at most %+.1f %%", r.name, ledger.mean, ledger.max)
		}
	}
}

func (x toy) with(change func(*toy)) toy {
	change(&x)
	return x
}
