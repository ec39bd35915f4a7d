package admit

import (
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/bubble"
)

// processor is a part of a core: what is to be done is done in turn.
type processor struct {
	turn chan struct{}
	busy atomic.Int64

	looked     time.Time // last, and the sums of what was found by then
	seen       int64
	early, all int64
}

func (p *processor) use(d time.Duration) {
	p.turn <- struct{}{}
	time.Sleep(d)
	p.busy.Add(int64(d))
	<-p.turn
}

// throttled returns the periods of the quota, a hundred milliseconds each, as the kernel counts them.
func (p *processor) throttled() (early, all int64) {
	now, busy := time.Now(), p.busy.Load()
	d := now.Sub(p.looked)
	p.all += int64(d / (100 * time.Millisecond))
	if float64(busy-p.seen) > .95*float64(d) {
		p.early = p.all
	}
	p.looked, p.seen = now, busy
	return p.early, p.all
}

// What mail costs of the processor. A message costs 5 ms, so it takes 200 a second.
const (
	costOfMail    = 800 * time.Microsecond
	costOfContent = 1800 * time.Microsecond
	costOfStoring = 1200 * time.Microsecond
	costOfSending = 1200 * time.Microsecond
	costOfRefusal = 1200 * time.Microsecond // the reply, RSET and the records of it, besides that of MAIL
	takesASecond  = 200
)

// clientsOf has clients of a tier offer so many messages a second together, until ctx ends. Each waits for a reply
// before it goes on.
func (p *processor) clientsOf(ctx context.Context, g *Gate, tier uint8, clients int, rate float64, got *tally) {
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), uint64(tier)))
			refusals := 0
			for next := time.Now(); ; {
				pause := random.ExpFloat64() * float64(clients) / rate
				next = latestOf(next, time.Now().Add(-time.Second)).Add(time.Duration(pause * float64(time.Second)))
				time.Sleep(time.Until(next))
				if ctx.Err() != nil {
					return
				}
				began := time.Now()
				r := request("t", tier)
				r.Size, r.Refused = random.Int64(), refusals
				p.use(costOfMail)
				a, refused := g.Admit(r)
				if refused == nil {
					p.use(costOfContent)
					refused, _ = a.Commit(ctx, tier, func() error { p.use(costOfStoring); return nil })
				}
				if refused == nil {
					refusals = 0
					all.Go(func() { p.use(costOfSending) })
				} else {
					if refusals++; refused.Hold != nil {
						refused.Hold(ctx)
					}
					p.use(costOfRefusal)
				}
				got.mu.Lock()
				if got.asked++; refused == nil && ctx.Err() == nil {
					got.stored++
					got.took = append(got.took, time.Since(began))
				}
				got.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// overloaded offers so many times of what the processor takes: a sixth in tier 1, a third in tier 3 and half in tier 4,
// and returns what became of it, a part of what was offered, and the part that all is of what the processor takes.
func (p *processor) overloaded(t *testing.T, times float64) (taken map[uint8]float64, goodput float64) {
	const warm, lasts = 10 * time.Second, 30 * time.Second
	p.turn, p.looked = make(chan struct{}, 1), time.Now()
	m := machine()
	m.Throttled = p.throttled
	g := running(t, settings(), m)
	ctx, stop := context.WithTimeout(t.Context(), warm+lasts)
	defer stop()
	rates := map[uint8]float64{1: times * takesASecond / 6, 3: times * takesASecond / 3, 4: times * takesASecond / 2}
	got := make(map[uint8]*tally)
	var all sync.WaitGroup
	for tier, clients := range map[uint8]int{1: 120, 3: 120, 4: 160} {
		o := new(tally)
		got[tier] = o
		all.Go(func() { p.clientsOf(ctx, g, tier, clients, rates[tier], o) })
	}
	time.Sleep(warm)
	for _, o := range got {
		o.mu.Lock()
		o.asked, o.stored, o.took = 0, 0, nil
		o.mu.Unlock()
	}
	all.Wait()
	taken = make(map[uint8]float64)
	for tier, o := range got {
		taken[tier] = o.share()
		goodput += float64(o.stored) / (takesASecond * lasts.Seconds())
		t.Logf("tier %d: %.1f %% taken, %d of %d, p99 %v", tier, 100*o.share(), o.stored, o.asked, o.p99())
	}
	t.Logf("%.1f times what the processor takes: %.1f %% of that was taken", times, 100*goodput)
	return taken, goodput
}

// TestA18_AQuotaOfCPUServesTheMostImportant offers three times of what the CPU takes. Refusals cost two fifths of a
// message: without the holds four fifths would be left of the goodput, and a sixth without the law for CPU.
func TestA18_AQuotaOfCPUServesTheMostImportant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		taken, goodput := new(processor).overloaded(t, 3)
		if taken[1] < .95 || goodput < .9 || taken[4] > taken[3]/2 {
			t.Errorf("taken of tier 1 %.3f, of tier 3 %.3f, of tier 4 %.3f; goodput %.3f: want .95 and .9, and tier 4 refused first",
				taken[1], taken[3], taken[4], goodput)
		}
	})
}

// TestA18_CPUThatIsUsedUpIsNoOverload offers a little less than what fits, with each period of the quota used up.
func TestA18_CPUThatIsUsedUpIsNoOverload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p, periods := new(processor), int64(0)
		p.turn = make(chan struct{}, 1)
		m := machine()
		m.Throttled = func() (early, all int64) { periods += 5; return periods, periods }
		g := running(t, settings(), m)
		ctx, stop := context.WithTimeout(t.Context(), 31*time.Second)
		defer stop()
		var all sync.WaitGroup
		all.Go(func() { p.clientsOf(ctx, g, 3, 100, .7*takesASecond, new(tally)) })
		time.Sleep(30 * time.Second)
		if n := g.Status().Totals[3]; n.Refused > 0 || n.Asked < 4000 {
			t.Errorf("%d of %d refused", n.Refused, n.Asked)
		}
		all.Wait()
	})
}

// TestA18_RefusalsLeaveAtAPace refuses messages while the quota of CPU is used up.
func TestA18_RefusalsLeaveAtAPace(t *testing.T) {
	m, early, all := machine(), int64(100), int64(100)
	now := time.Unix(1e9, 0)
	m.Now = func() time.Time { return now }
	m.Throttled = func() (int64, int64) { return early, all }
	g := New(settings(), m)
	held := func(tier uint8) time.Duration {
		r := request("t", tier)
		refused := g.refuse(&r, admission.Of(int(tier), 0), "overload")
		d := g.Last(func(*Refusal) bool { return true })[0].Held
		if (refused.Hold != nil) != (d > 0) {
			t.Errorf("held for %v, and hold is %v", d, refused.Hold != nil)
		}
		return d
	}
	tick := func(periods, ended int64) {
		now = now.Add(500 * time.Millisecond)
		early, all = early+ended, all+periods
		g.tick()
	}
	g.tick()
	for range 100 {
		if d := held(4); d != 0 {
			t.Fatalf("held for %v before anything is known", d)
		}
	}
	tick(5, 5)
	for i := range 100 { // leastPace a second
		if d, want := held(4), time.Duration(i)*time.Second/leastPace; d != want {
			t.Fatalf("refusal %d of tier 4 is held for %v, want %v", i, d, want)
		}
	}
	if d := held(1); d != 0 {
		t.Errorf("tier 1 is held for %v", d)
	}
	for range 1000 {
		held(4)
	}
	for tier, want := range map[uint8]time.Duration{2: holdATier, 3: 2 * holdATier, 4: 3 * holdATier} {
		if d := held(tier); d != want {
			t.Errorf("tier %d is held for %v, want %v at most", tier, d, want)
		}
	}
	for range 100 { // 1,000 a second are taken
		g.cpu.stored.Add(500)
		tick(5, 4)
	}
	now = now.Add(time.Minute)
	held(4)
	if d := held(4); d < 6600*time.Microsecond || d > 6700*time.Microsecond {
		t.Errorf("the second one is held for %v while 1,000 a second are taken, want 0.15 of that: 6.67 ms", d)
	}
	for _, part := range [][2]int64{{5, 3}, {0, 0}} {
		tick(part[0], part[1])
		if d := held(4); d != 0 {
			t.Errorf("%d of %d periods ended early, and it is held for %v", part[1], part[0], d)
		}
	}
	tick(5, 5)
	now = now.Add(-time.Hour)
	held(4)
	if d := held(4); d > 3*holdATier {
		t.Errorf("held for %v after the clock was set back", d)
	}
}

// TestTimersThatAreLate has others use the CPU, without any quota.
func TestTimersThatAreLate(t *testing.T) {
	g := New(settings(), machine())
	late := func(d time.Duration) {
		for range 40 {
			for range 25 {
				g.cpu.fired(d)
			}
			g.tick()
		}
	}
	for _, step := range []struct {
		late        time.Duration
		short       bool
		least, most float64
	}{
		{0, false, 0, 0}, {40 * time.Millisecond, false, 0, 0}, {60 * time.Millisecond, true, 0, 0},
		{300 * time.Millisecond, true, .45, .55}, {time.Second, true, .97, .99}, {0, false, 0, 0},
	} {
		late(step.late)
		value, share := g.cpu.lateness(), g.pressures(g.core.Load())[2]
		r := min(max((value-share.From)/(share.To-share.From), 0), .98)
		if g.cpu.short.Load() != step.short || r < step.least || r > step.most {
			t.Errorf("timers %v late: short %v, %.2f refused", step.late, g.cpu.short.Load(), r)
		}
	}
}

func TestQuotaOfControlGroups(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/b/cpu.stat":   "usage_usec 7\nnr_periods 50\nnr_throttled 20\nthrottled_usec 9\n",
		"cpu.stat":       "usage_usec 7\n",
		"cpu/c/cpu.stat": "nr_periods 10\nnr_throttled 4\nthrottled_time 12\n",
		"d/cpu.stat":     "nr_periods many\nnr_throttled\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string][2]int64{
		"0::/a/b\n":              {20, 50},
		"5:cpu,cpuacct:/c\n":     {4, 10},
		"5:cpu:/c\n0::/\n":       {4, 10},
		"0::/d\n":                {0, 0},
		"3:memory:/a\n":          {0, 0},
		"0::/../../etc/passwd\n": {0, 0},
		"":                       {0, 0},
	} {
		if early, all := throttled(root, groups)(); early != want[0] || all != want[1] {
			t.Errorf("%q: %d of %d, want %v", groups, early, all, want)
		}
	}
}

// TestA18_ByHTTPOnlyReturnsAreHeld refuses requests with a first attempt while CPU lacks: the answer is held of those
// that come by a connection that was refused before.
func TestA18_ByHTTPOnlyReturnsAreHeld(t *testing.T) {
	g := New(settings(), machine())
	g.cpu.short.Store(true)
	for refusals, want := range map[int]bool{0: false, 1: true} {
		r := request("t", 4)
		r.First, r.Refused = time.Now(), refusals
		g.refuse(&r, admission.Of(4, 0), "overload")
		if refused := g.refuse(&r, admission.Of(4, 0), "overload"); (refused.Hold != nil) != want {
			t.Errorf("after %d refusals held: %v, want %v", refusals, refused.Hold != nil, want)
		}
	}
}
