package warmup_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// anything is a warm-up to which operators and machines do whatever they can, in any order, and a recount of
// what it lets through. The recount takes nothing from the ledger but the stage.
type anything struct {
	t     *testing.T
	r     *rand.Rand
	ms    int64 // of the machines' clocks
	high  int64 // of the store's, which never goes back
	store *warmup.Memory
	nodes []*warmup.Controller
	plan  *warmup.Plan // nil: the address has none now
	old   *warmup.Plan
	noted strings.Builder

	begin      int64 // of the warm-up; 0: it has not begun
	hour, day  window
	minutes    []int64 // all that was sent since the begin
	hourlies   []int64 // the highest cap of each hour since then
	sent       int64
	good, warm bool
	out        []out
}

// window is an hour or a day: what was sent in it, by provider, and what was in force since it opened.
type window struct {
	index  int64
	sent   map[string]int64
	all    int64
	bounds []bound
	warm   bool
}

// bound is a plan on a stage.
type bound struct {
	plan  *warmup.Plan
	stage int // counted from 1
}

// out is mail between Allowance and Begin.
type out struct {
	node     *warmup.Controller
	provider string
	n        int64
}

// TestW11_WhateverHappensNoCapIsPassed does anything to warm-ups. MTA_WARMUP_SEEDS says how many there are,
// MTA_WARMUP_SEED which is the first.
func TestW11_WhateverHappensNoCapIsPassed(t *testing.T) {
	first, n := number("MTA_WARMUP_SEED", 1), number("MTA_WARMUP_SEEDS", 1)
	for seed := first; seed < first+n; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := &anything{t: t, r: rand.New(rand.NewPCG(seed, 0)), good: true}
			w.ms = time.Date(2026, 1+time.Month(w.r.IntN(12)), 27, w.r.IntN(24), w.r.IntN(60), 0, 0, time.UTC).UnixMilli()
			w.store = warmup.NewMemory(func() warmup.Instant { w.high = max(w.high, w.ms); return warmup.Instant(w.high) })
			w.replan(true)
			w.restart()
			for range 8_000 {
				w.tick()
			}
			w.settle()
		})
	}
}

func number(name string, otherwise uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return otherwise
}

func (w *anything) note(format string, args ...any) {
	fmt.Fprintf(&w.noted, "%s: ", time.UnixMilli(w.high).UTC().Format("02 15:04:05"))
	fmt.Fprintf(&w.noted, format+"\n", args...)
}

func (w *anything) one() *warmup.Controller { return w.nodes[w.r.IntN(len(w.nodes))] }

func (w *anything) provider() string {
	n := w.r.ExpFloat64() * 4
	if w.r.IntN(20) == 0 {
		n = 100 * w.r.Float64()
	}
	return fmt.Sprint("p", int(n))
}

// replan makes another plan, or changes one setting of this one.
func (w *anything) replan(anew bool) {
	r, p := w.r, warmup.DefaultPlan()
	p.Name = "any"
	p.Health.MinSample, p.Health.MinFill = int64(r.IntN(3)*50), r.Float64()/2
	p.Finish, p.SpreadEven, p.Shrinking = r.IntN(2) == 0, r.IntN(4) == 0, true
	p.Pacing = []warmup.Pacing{warmup.Ledger, warmup.PID}[r.IntN(5)/4]
	hourly := float64(20 + r.IntN(200))
	for range 1 + r.IntN(6) {
		p.Stages = append(p.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: int64(hourly), Daily: int64(hourly * (2 + 10*r.Float64()))}})
		hourly *= 1 + r.Float64()
	}
	if !anew {
		q := *w.plan
		switch r.IntN(3) {
		case 0:
			q.Stages = p.Stages
			q.StartStage = 1
		case 1:
			q.Finish, q.Pacing, q.SpreadEven, q.Health = p.Finish, p.Pacing, p.SpreadEven, p.Health
		}
		p = q
	}
	p.StartStage, p.EaseOut = 1+r.IntN(len(p.Stages)), r.IntN(4)
	p.Shares, p.Growths, p.OwnStages = map[string]float64{}, map[string]float64{}, map[string]bool{}
	for range r.IntN(4) {
		p.Shares[w.provider()] = .1 + .9*r.Float64()
		p.Growths[w.provider()] = 1 + r.Float64()
		p.OwnStages[w.provider()] = true
	}
	p.DayStarts = []warmup.DayStart{"", "08:00 Europe/Berlin", "23:30 America/New_York", "02:30 Australia/Lord_Howe"}[r.IntN(4)]
	if p.Begin = (time.Time{}); r.IntN(2) == 0 {
		p.Begin = time.UnixMilli(w.ms).Add(time.Duration(r.IntN(96)-48) * time.Hour)
	}
	if err := p.Check(); err != nil {
		w.note("refused: %v", err)
		if w.plan == nil {
			w.replan(true)
		}
		return
	}
	w.plan = &p
	w.note("plan %+v", p)
}

func (w *anything) assign(c *warmup.Controller) {
	if err := c.Assign(map[string]*warmup.Plan{"ip": w.plan}); err != nil {
		w.t.Fatal(err)
	}
	w.allowance(c)
}

// restart kills all nodes.
func (w *anything) restart() {
	w.nodes, w.out = nil, nil
	for i := range 1 + w.r.IntN(3) {
		c := warmup.New(warmup.Config{Node: fmt.Sprint("n", i), Store: w.store, Rand: rand.New(rand.NewPCG(w.r.Uint64(), 0)),
			Now:     func() time.Time { return time.UnixMilli(w.ms) },
			Waiting: func(_, provider string) int64 { return int64(len(provider) % 3) }})
		w.nodes = append(w.nodes, c)
		w.assign(c)
	}
}

// tick lets some time pass in which mail comes and something may happen.
func (w *anything) tick() {
	w.ms += int64(w.r.ExpFloat64() * 20_000)
	w.high = max(w.high, w.ms)
	if w.r.IntN(60) == 0 {
		w.happen()
	}
	for range w.r.IntN(4) {
		c, p := w.one(), w.provider()
		n := int64(1 + w.r.ExpFloat64()*3)
		if w.r.IntN(20) == 0 {
			n *= 20
		}
		for again := range 3 {
			got, v := c.Allowance("ip", warmup.Ask{Provider: p, Recipients: n, Whole: w.r.IntN(3) == 0, Again: again > 0, Preferred: w.r.IntN(4) == 0})
			if got > 0 {
				w.out = append(w.out, out{c, p, got})
			}
			if n -= got; n == 0 || v != warmup.Asking {
				break
			}
			w.step(c)
		}
	}
	for len(w.out) > 0 && w.r.IntN(4) > 0 {
		x := w.out[0]
		w.out = w.out[1:]
		switch {
		case w.r.IntN(20) == 0:
			x.node.Drop("ip", x.provider, x.n)
		case x.node.Begin("ip", x.provider, x.n):
			w.charged(x)
		}
	}
	w.step(w.one())
}

func (w *anything) step(c *warmup.Controller) {
	c.Step(context.Background())
	w.allowance(c)
}

// happen does something.
func (w *anything) happen() {
	r := w.r
	switch r.IntN(12) {
	case 0:
		w.restart()
		w.note("killed")
	case 1:
		w.restart()
		w.ms += int64(r.IntN(72*3600_000)) - 2*3600_000
		w.note("killed, and the clock is %v", time.UnixMilli(w.ms).UTC())
	case 2, 3, 4:
		w.old = w.plan
		w.replan(r.IntN(4) == 0)
		for _, c := range w.nodes {
			w.assign(c)
			w.one().Step(context.Background())
		}
	case 5: // and back
		if w.old != nil {
			w.plan, w.old = w.old, w.plan
			w.note("back to plan %+v", w.plan)
		}
		for _, c := range w.nodes {
			w.assign(c)
		}
	case 6: // and away
		w.note("no plan for a while")
		for _, c := range w.nodes {
			if err := c.Assign(nil); err != nil {
				w.t.Fatal(err)
			}
		}
		if w.out = nil; r.IntN(2) == 0 {
			w.ms += int64(r.IntN(7200_000))
		}
		for _, c := range w.nodes {
			w.assign(c)
		}
	case 7:
		w.do(warmup.Pause())
	case 8:
		w.do(warmup.Resume())
	case 9:
		if r.IntN(3) == 0 {
			w.do(warmup.SetStage(1 + r.IntN(len(w.plan.Stages))))
		}
		if r.IntN(10) == 0 {
			w.do(warmup.Start(r.IntN(len(w.plan.Stages))))
		}
	case 10:
		day := time.UnixMilli(w.high).AddDate(0, 0, -r.IntN(4))
		for range 2 {
			w.do(warmup.Reported(w.provider(), warmup.Report{Day: day, Complaints: int64(r.IntN(10)), Rate: r.Float64() / 100}))
		}
	case 11:
		w.good = !w.good
		down, lost := r.IntN(3) == 0, r.IntN(3) == 0
		w.store.SetDown(down)
		w.store.Unsure(nil)
		if lost {
			w.store.Unsure(func() (bool, bool) { return r.IntN(4) > 0, r.IntN(4) > 0 })
		}
		w.note("outcomes are good: %v, store down: %v, unsure: %v", w.good, down, lost)
	}
}

func (w *anything) do(a warmup.Action) {
	done, stop := context.WithCancel(context.Background())
	stop()
	err := w.one().Do(done, "ip", a)
	w.note("do %+v: %v", a, err)
}

// allowance notes what is in force.
func (w *anything) allowance(c *warmup.Controller) {
	{
		s, ok := c.Status("ip")
		if !ok || s.State == "scheduled" || s.Started.IsZero() {
			return
		}
		if s.State == "store_down" && w.warm {
			s.State = "warm"
		}
		w.warm = s.State == "warm"
		if w.begin == 0 {
			w.begin = s.Started.UnixMilli()
			w.hour.index, w.day.index = -1, -1
		}
		if w.begin != s.Started.UnixMilli() {
			w.t.Fatalf("begin moved\n%s", w.noted.String())
		}
		h := (w.high - w.begin) / 3600_000
		w.hour.open(h)
		w.day.open(h / 24)
		b := bound{w.plan, s.Stage}
		for _, x := range []*window{&w.hour, &w.day} {
			if len(x.bounds) == 0 || x.bounds[len(x.bounds)-1] != b {
				x.bounds = append(x.bounds, b)
			}
			x.warm = x.warm || s.State == "warm" || s.Stage == len(w.plan.Stages) && w.plan.Finish
		}
		for int64(len(w.hourlies)) <= h {
			w.hourlies = append(w.hourlies, 0)
		}
		most := s.HourlyLimit
		if s.State == "warm" {
			most = math.MaxInt64 / 4
		}
		w.hourlies[h] = max(w.hourlies[h], most)
	}
}

// open begins a new window, in which what was in force last goes on.
func (x *window) open(index int64) {
	if index == x.index {
		return
	}
	x.index, x.sent, x.all, x.warm = index, make(map[string]int64), 0, false
	x.bounds = x.bounds[max(0, len(x.bounds)-1):]
}

// charged counts what began.
func (w *anything) charged(x out) {
	w.allowance(x.node)
	if w.begin == 0 {
		st, _ := x.node.Status("ip")
		w.t.Fatalf("mail left before the warm-up began: %v %+v\nbegin %v now %v\n%s", x, st, w.plan.Begin, w.high, w.noted.String())
	}
	w.sent += x.n
	outcome := warmup.Delivered
	if !w.good && w.r.IntN(3) == 0 {
		outcome = warmup.Outcome(w.r.IntN(7))
	}
	x.node.ReportSome("ip", x.provider, outcome, x.n)
	for name, v := range map[string]*window{"hour": &w.hour, "day": &w.day} {
		v.all += x.n
		v.sent[x.provider] += x.n
		var all, of int64
		for _, b := range v.bounds {
			a, o := b.caps(x.provider, name == "day")
			all, of = max(all, a), max(of, o)
		}
		if !v.warm && (v.all > all || v.sent[x.provider] > of) {
			st, _ := x.node.Status("ip")
			w.t.Fatalf("%s %d: %d sent of %d, %d of %d to %s\nstatus %+v\nbounds %+v\n%s", name, v.index, v.all, all, v.sent[x.provider], of, x.provider, st, v.bounds, w.noted.String())
		}
	}
	m := (w.high - w.begin) / 60_000
	for int64(len(w.minutes)) <= m {
		w.minutes = append(w.minutes, 0)
	}
	w.minutes[m] += x.n
	var span int64
	most := int64(0)
	for i := max(0, m-59); i <= m; i++ {
		span += w.minutes[i]
		if h := i / 60; h < int64(len(w.hourlies)) {
			most = max(most, w.hourlies[h])
		}
	}
	if float64(span) > 1.1*float64(most) {
		w.t.Fatalf("%d in 60 minutes, cap %d at hour %d, %v %+v\n%s", span, most, m/60, w.hourlies[len(w.hourlies)-5:], w.one().IPs(), w.noted.String())
	}
}

// caps gives what a bound allows to all and to a provider.
func (b *bound) caps(name string, daily bool) (all, of int64) {
	stage := &b.plan.Stages[min(b.stage, len(b.plan.Stages))-1]
	all = stage.Hourly
	first := b.plan.Stages[b.plan.StartStage-1].Hourly
	if daily {
		all, first = stage.Daily, b.plan.Stages[b.plan.StartStage-1].Daily
	}
	share := 1.
	if x := b.plan.Shares[name]; x > 0 {
		share = x
	}
	most := share * float64(all)
	if g := b.plan.Growths[name]; g > 0 {
		most = min(most, share*float64(first)*math.Pow(g, float64(b.stage-b.plan.StartStage)))
	}
	return all, int64(math.Ceil(most - 1e-9))
}

// settle ends all trouble; then mail leaves again.
func (w *anything) settle() {
	w.store.SetDown(false)
	w.store.Unsure(nil)
	w.good = true
	w.plan = func() *warmup.Plan { p := *w.plan; p.Begin = time.Time{}; return &p }()
	w.restart()
	w.do(warmup.Resume())
	w.note("all is well")
	for range 4320 {
		w.calm()
	}
	before := w.sent
	for range 4320 {
		w.calm()
	}
	s, _ := w.nodes[0].Status("ip")
	if w.sent == before {
		w.t.Errorf("nothing leaves any more: %+v\n%s", s, w.noted.String())
	}
	w.t.Logf("%d sent in %d days; on the last %d, cap %d", w.sent, w.day.index, w.sent-before, s.StageLimit)
}

func (w *anything) calm() {
	w.ms += 20_000
	w.high = max(w.high, w.ms)
	c, p := w.one(), w.provider()
	for again := range 3 {
		got, v := c.Allowance("ip", warmup.Ask{Provider: p, Recipients: 1, Again: again > 0})
		if got > 0 && c.Begin("ip", p, 1) {
			w.charged(out{c, p, 1})
		}
		if v != warmup.Asking {
			break
		}
		w.step(c)
	}
	w.step(w.one())
}
