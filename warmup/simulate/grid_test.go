package simulate

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// A grid cell is two hours of one plan with one cap. Demand is in caps an hour.
type cell struct {
	cap    int64
	demand float64
	lag    time.Duration
	nodes  int
	shape  string
	seed   uint64
}

// shapes give the relative intensity of demand at second t of two hours; each has mean 1 over an
// hour.
var shapes = map[string]func(t int64) float64{
	"steady":   func(int64) float64 { return 1 },
	"campaign": func(t int64) float64 { return ifElse(t%3600 < 600, 6, 0) }, // all of it in ten minutes
	"front":    func(t int64) float64 { return 2 * (1 - float64(t%3600)/3600) },
	"late":     func(t int64) float64 { return 2 * float64(t%3600) / 3600 },
	"step":     func(t int64) float64 { return ifElse(t%3600 < 1800, .01, 1.99) },
	"bursts":   func(t int64) float64 { return ifElse(t%100 < 20, 5, 0) },
}

func ifElse(c bool, a, b float64) float64 {
	if c {
		return a
	}
	return b
}

// shaped is what a cell measured. Shares are of the cap.
type measured struct {
	overshoot float64 // worst hour above the cap
	first10   float64 // most in the first ten seconds of an hour
	s5        float64 // most in any five minutes
	slide     float64 // most in any 60 minutes
	fill      float64 // worst hour
	short     int64   // messages that the worst hour lacked
	possible  bool    // whether demand allowed to fill
}

func (c cell) plan(pacing Pacing) *warmup.Plan {
	p := warmup.DefaultPlan()
	if pacing == PID {
		p.Pacing = warmup.PID
	}
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: c.cap, Daily: 24 * c.cap}}}
	p.Health.MinSample = 0
	return &p
}

// run simulates a cell and recounts what was sent, second by second.
func (c cell) run(pacing Pacing) measured {
	w := newWorld(c.plan(pacing), c.seed, pacing)
	w.setNodes(c.nodes)
	w.lag = c.lag
	perSecond := make([]int64, 7200)
	w.onSent = func(_ int, n int64) { perSecond[w.t] += n }
	i := w.provider(all)
	chance := rand.New(rand.NewPCG(c.seed, 7))
	shape := shapes[c.shape]
	offered := [2]int64{}
	for w.t = 0; w.t < 7200; w.t++ {
		mean := float64(c.cap) * c.demand / 3600 * shape(w.t)
		if n := poisson(chance, mean); n > 0 {
			offered[w.t/3600] += n
			w.offer(i, n)
		}
		w.step()
	}
	return measure(perSecond, float64(c.cap), offered)
}

func poisson(r *rand.Rand, mean float64) int64 {
	if mean > 50 {
		return max(0, int64(math.Round(mean+math.Sqrt(mean)*r.NormFloat64())))
	}
	n, limit := int64(0), math.Exp(-mean)
	for p := r.Float64(); p > limit; p *= r.Float64() {
		n++
	}
	return n
}

func measure(perSecond []int64, limit float64, offered [2]int64) measured {
	m := measured{fill: math.Inf(1), possible: true}
	for h := range 2 {
		sent := sum(perSecond[h*3600 : (h+1)*3600])
		m.overshoot = max(m.overshoot, float64(sent)/limit-1)
		m.fill = min(m.fill, float64(sent)/limit)
		m.short = max(m.short, int64(limit)-sent)
		m.first10 = max(m.first10, float64(sum(perSecond[h*3600:h*3600+10]))/limit)
		m.possible = m.possible && float64(offered[h]) >= 10*limit
	}
	m.s5 = window(perSecond, 300) / limit
	m.slide = window(perSecond, 3600) / limit
	return m
}

func sum(ns []int64) (s int64) {
	for _, n := range ns {
		s += n
	}
	return s
}

// window is the largest sum of any n seconds in a row.
func window(ns []int64, n int) float64 {
	var s, most int64
	for i, k := range ns {
		s += k
		if i >= n {
			s -= ns[i-n]
		}
		most = max(most, s)
	}
	return float64(most)
}

// cells of the full grid, or of a slice that takes seconds.
func cells(full bool) []cell {
	caps, demands := []int64{50, 10_000, 2_000_000}, []float64{10, 1000}
	lags, nodes := []time.Duration{0, time.Minute}, []int{1, 10}
	names, seeds := []string{"bursts", "campaign", "step"}, 1
	if full {
		caps, demands = []int64{50, 350, 2_000, 10_000, 100_000, 1_000_000}, []float64{.5, 1, 2, 10, 100, 1000}
		lags, nodes = []time.Duration{0, 5 * time.Second, 30 * time.Second, time.Minute}, []int{1, 10, 100}
		names = []string{"bursts", "campaign", "front", "late", "steady", "step"}
	}
	if n, err := strconv.Atoi(os.Getenv("MTA_GRID_SEEDS")); err == nil {
		seeds = n
	}
	var out []cell
	for _, c := range caps {
		for _, d := range demands {
			for _, l := range lags {
				for _, n := range nodes {
					for _, s := range names {
						for seed := range seeds {
							out = append(out, cell{c, d, l, n, s, uint64(seed + 1)})
						}
					}
				}
			}
		}
	}
	return out
}

// TestGrid_W8_W12_W13_W14 runs every cell with one set of defaults. MTA_GRID=full ('make warmup-grid') runs all,
// MTA_GRID_SEEDS=3 with three seeds, MTA_GRID_MODE=ledger only that pacing.
func TestGrid_W8_W12_W13_W14(t *testing.T) {
	full := os.Getenv("MTA_GRID") == "full"
	pacings := []Pacing{Ledger, PID}
	if full {
		pacings = []Pacing{OnOff, BarePID, PID, Ledger}
	}
	if m := os.Getenv("MTA_GRID_MODE"); m != "" {
		pacings = []Pacing{Pacing(m)}
	}
	fmt.Printf("%-8s %6s | %-26s | %-14s | %-12s | %s\n", "pacing", "runs", "overshoot med / p99 / max", "s5 med / max", "slide max", "fill min (bursts / other)")
	for _, pacing := range pacings {
		gridOf(t, pacing, cells(full))
	}
}

func gridOf(t *testing.T, pacing Pacing, cs []cell) {
	var over, s5, slide []float64
	fillBursts, fillOther := 1., 1.
	all := runAll(pacing, cs)
	for i, c := range cs {
		m := all[i]
		over, s5, slide = append(over, m.overshoot), append(s5, m.s5), append(slide, m.slide)
		if m.possible && c.cap >= 100 {
			if c.shape == "bursts" {
				fillBursts = min(fillBursts, m.fill)
			} else if c.shape != "campaign" {
				fillOther = min(fillOther, m.fill)
			}
		}
		if pacing == Ledger {
			c.check(t, m)
		}
		if pacing == PID && (m.overshoot > 0 || m.slide > 1.10+1e-9) {
			t.Errorf("%+v: paced by PID, %.2f %% over the cap, %.3f caps in 60 minutes", c, 100*m.overshoot, m.slide)
		}
	}
	fmt.Printf("%-8s %6d | %7.1f / %6.0f / %6.0f %% | %4.1f / %6.1f %% | %12.2f | %.1f / %.1f %%\n", pacing, len(cs),
		100*at(over, .5), 100*at(over, .99), 100*at(over, 1), 100*at(s5, .5), 100*at(s5, 1), at(slide, 1), 100*fillBursts, 100*fillOther)
}

// runAll runs cells on all cores. They have nothing in common.
func runAll(pacing Pacing, cs []cell) []measured {
	all := make([]measured, len(cs))
	var next atomic.Int64
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(cs)); i = next.Add(1) - 1 {
				all[i] = cs[i].run(pacing)
			}
		})
	}
	running.Wait()
	return all
}

func at(v []float64, q float64) float64 {
	slices.Sort(v)
	return v[int(q*float64(len(v)-1))]
}

func (c cell) check(t *testing.T, m measured) {
	t.Helper()
	if m.overshoot > 0 {
		t.Errorf("%+v: %.2f %% over the cap", c, 100*m.overshoot)
	}
	// A cap of 50 can't be cut finer than by messages.
	grain := 1.5 / float64(c.cap)
	if m.s5 > .22+grain {
		t.Errorf("%+v: %.1f %% of the cap in five minutes", c, 100*m.s5)
	}
	if m.slide > 1.10+1e-9 {
		t.Errorf("%+v: %.3f caps in 60 minutes", c, m.slide)
	}
	if m.first10 > .05 {
		t.Errorf("%+v: %.1f %% of the cap in the first ten seconds", c, 100*m.first10)
	}
	// Demand that comes in ten minutes can't fill an hour without a burst.
	if !m.possible || c.shape == "campaign" {
		return
	}
	least := .98
	if c.shape == "bursts" {
		least = .90 // four fifths of the time there is nothing to send
	}
	if m.fill < least && m.short > 2 {
		t.Errorf("%+v: filled %.1f %%, %d short", c, 100*m.fill, m.short)
	}
}
