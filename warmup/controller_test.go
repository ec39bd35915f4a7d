package warmup_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/warmup"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a virtual clock with a store and nodes on it.
type world struct {
	t     *testing.T
	mu    sync.Mutex // guards ms
	ms    int64
	store *warmup.Memory
	plan  *warmup.Plan
}

func newWorld(t *testing.T, hourly, daily int64) *world {
	w := &world{t: t}
	p := warmup.DefaultPlan()
	p.Name = "test"
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: hourly, Daily: daily}}}
	w.plan = &p
	w.store = warmup.NewMemory(func() warmup.Instant { return warmup.Instant(w.read()) })
	return w
}

func (w *world) read() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ms
}

func (w *world) now() time.Time { return time.UnixMilli(w.read()) }

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ms += d.Milliseconds()
}

func (w *world) node(name string, change ...func(*warmup.Config)) *warmup.Controller {
	cfg := warmup.Config{Node: name, Store: w.store, Now: w.now, Rand: rand.New(rand.NewPCG(1, 2))}
	for _, f := range change {
		f(&cfg)
	}
	c := warmup.New(cfg)
	if err := c.Assign(map[string]*warmup.Plan{"ip": w.plan}); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// take sends as many of n messages of one recipient as there are tokens for.
func take(c *warmup.Controller, ip, provider string, n int64, again bool) (sent int64, rest warmup.Decision) {
	sent, rest = c.Allowance(ip, warmup.Ask{Provider: provider, Recipients: n, Again: again})
	if sent > 0 && !c.Begin(ip, provider, sent) {
		panic("there were tokens at this very moment")
	}
	return sent, rest
}

// send tries n messages and steps until the store has answered; it returns how many were sent.
func send(c *warmup.Controller, provider string, n int64) int64 {
	got, v := take(c, "ip", provider, n, false)
	for range 5 {
		if v != warmup.Asking {
			break
		}
		c.Step(context.Background())
		var more int64
		more, v = take(c, "ip", provider, n-got, true)
		got += more
	}
	return got
}

func status(t *testing.T, c *warmup.Controller) warmup.Status {
	t.Helper()
	s, ok := c.Status("ip")
	if !ok {
		t.Fatal("no status")
	}
	return s
}

// pool is what a relay does with the tokens of "ip": other mail takes a shared source or waits.
type pool struct {
	shared []string
	hold   bool
}

type chosen struct {
	source string
	n      int64
	asking bool
}

func (p pool) choose(c *warmup.Controller, id uint64, q warmup.Ask) chosen {
	n, v := c.Allowance("ip", q)
	switch {
	case n > 0:
		return chosen{source: "ip", n: n}
	case v == warmup.Refused && !p.hold && len(p.shared) > 0:
		return chosen{source: p.shared[id%uint64(len(p.shared))], n: q.Recipients}
	}
	return chosen{asking: v == warmup.Asking}
}

// TestW4_ShareOfTheDedicatedIP offers a message a second to a pool whose source is paced by PID: the
// share p that the status shows takes the dedicated IP, and the rest a shared one at once.
func TestW4_ShareOfTheDedicatedIP(t *testing.T) {
	w := newWorld(t, 350, 8400)
	w.plan.Pacing = warmup.PID
	c := w.node("a")
	from := pool{shared: []string{"s1", "s2"}}
	ask := warmup.Ask{Provider: "google", Recipients: 1, Whole: true}
	count := make(map[string]int)
	id, expected := uint64(0), 0.
	offer := func() {
		id++
		for ask.Again = false; ; ask.Again = true {
			x := from.choose(c, id*0x9e3779b97f4a7c15, ask)
			if x.source == "ip" && !c.Begin("ip", "google", 1) {
				t.Fatal("a message that was let out may not begin")
			}
			if x.source != "" {
				count[x.source]++
				break
			}
			if !x.asking {
				t.Fatal("a message was delayed")
			}
			c.Step(context.Background())
		}
		w.pass(time.Second)
		c.Step(context.Background())
	}
	for n := 0; status(t, c).Throttle > .8 || n < 60; n++ {
		if offer(); n > 1500 {
			t.Fatal("the controller never throttles")
		}
	}
	clear(count)
	total := 0
	for range 60 {
		expected += status(t, c).Throttle
		offer()
		total++
	}
	if got := float64(count["ip"]); expected < .05*float64(total) || expected > .9*float64(total) || math.Abs(got-expected) > .15*float64(total) {
		t.Errorf("%v of %d took the dedicated IP, p says %.0f", got, total, expected)
	}
	if count["s1"]+count["s2"]+count["ip"] != total || count["s1"] == 0 || count["s2"] == 0 {
		t.Errorf("sources: %v", count)
	}
}

func TestW4_LedgerDivertsWhatDoesNotFit(t *testing.T) {
	w := newWorld(t, 50, 400)
	var retry int
	var c *warmup.Controller
	from := pool{shared: []string{"shared"}}
	ask := warmup.Ask{Provider: "google", Recipients: 1, Whole: true}
	count := make(map[string]int)
	parked := 0
	choose := func(id uint64, again bool) {
		ask.Again = again
		x := from.choose(c, id, ask)
		if x.source == "" {
			parked++
			return
		}
		if x.source == "ip" && !c.Begin("ip", "google", 1) {
			t.Fatal("a message that was let out may not begin")
		}
		count[x.source]++
	}
	c = w.node("a", func(cfg *warmup.Config) {
		cfg.OnTokens = func(ip, provider string) {
			if ip != "ip" || provider != "google" {
				t.Errorf("room of %s for %s", ip, provider)
			}
			for range parked {
				parked--
				retry++
				choose(uint64(retry), true)
			}
		}
	})
	const n = 7200
	for id := range uint64(n) {
		choose(id, false)
		c.Step(context.Background())
		if parked > 0 { // asked before the store was; answered within the same step
			t.Fatalf("message %d waits although it may be diverted", id)
		}
		w.pass(500 * time.Millisecond)
	}
	if count["ip"] > 50 || count["ip"] < 48 || count["ip"]+count["shared"] != n {
		t.Errorf("%v of %d, cap 50", count, n)
	}
}

func TestW6_ReloadKeepsStageAndCounters(t *testing.T) {
	w := newWorld(t, 3600, 86_400)
	w.plan.Stages = append(w.plan.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: 7200, Daily: 100_000}})
	w.plan.StartStage = 2
	c := w.node("a")
	for range 1800 {
		send(c, "google", 10)
		w.pass(time.Second)
	}
	before := status(t, c)
	if before.Stage != 2 || before.SentHour < 3000 {
		t.Fatalf("before the reload: %+v", before)
	}
	q := *w.plan
	q.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: 10, Daily: 20}}, {Caps: warmup.Caps{Hourly: 100, Daily: 4000}}, {Caps: warmup.Caps{Hourly: 200, Daily: 5000}}}
	q.StartStage = 1
	if err := c.Assign(map[string]*warmup.Plan{"ip": &q}); err != nil {
		t.Fatal(err)
	}
	w.pass(time.Second)
	c.Step(context.Background())
	after := status(t, c)
	if after.Stage != 2 || after.HourlyLimit != 7200 || after.SentHour != before.SentHour || after.SentDay != before.SentDay || after.SentStage != before.SentStage {
		t.Errorf("after the reload %+v\nbefore %+v", after, before)
	}
	w.pass(30 * time.Minute)
	c.Step(context.Background())
	if s := status(t, c); s.HourlyLimit != 100 || s.StageLimit != 100_000 || s.Stage != 2 {
		t.Errorf("in the next hour: hourly %d (want 100), daily %d (want the day's 100000)", s.HourlyLimit, s.StageLimit)
	}
	w.pass(23 * time.Hour)
	c.Step(context.Background())
	if s := status(t, c); s.StageLimit != 4000 && s.StageLimit != 5000 {
		t.Errorf("in the next day: %+v", s)
	}
	if err := c.Assign(map[string]*warmup.Plan{"ip": {}}); err == nil {
		t.Error("a plan without stages was taken")
	}
}

// watch is a store that checks that nobody computes an IP that another holds, and counts.
type watch struct {
	warmup.Store
	mu       sync.Mutex // guards the rest
	holder   map[string]uint64
	computed map[string]int
	errs     []string
}

func (s *watch) Claim(ctx context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) ([]warmup.Record, warmup.Instant, error) {
	rs, now, err := s.Store.Claim(ctx, owner, ttl, keys, dst)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range rs {
		if r.Busy {
			continue
		}
		if held := s.holder[r.Name]; held != 0 {
			s.errs = append(s.errs, fmt.Sprintf("%s was locked under fence %d while %d was in use", r.Name, r.Fence, held))
		}
		s.holder[r.Name] = r.Fence
		s.computed[r.Name]++
	}
	return rs, now, err
}

func (s *watch) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	s.mu.Lock()
	for _, c := range changes {
		if s.holder[c.Name] != c.Fence {
			s.errs = append(s.errs, fmt.Sprintf("%s was written under fence %d by none of its holders", c.Name, c.Fence))
		}
		s.holder[c.Name] = 0
	}
	s.mu.Unlock()
	return s.Store.Write(ctx, changes, dst)
}

func TestW7_ThousandsOfIPsByThreeNodes(t *testing.T) {
	const ips, nodes, workers = 5000, 3, 4
	w := newWorld(t, 3600, 86_400)
	st := &watch{Store: w.store, holder: make(map[string]uint64), computed: make(map[string]int)}
	plans := make(map[string]*warmup.Plan, ips)
	names := make([]string, ips)
	for i := range names {
		names[i] = fmt.Sprintf("10.0.%d.%d", i/250, i%250)
		plans[names[i]] = w.plan
	}
	var cs []*warmup.Controller
	for i := range nodes {
		c := w.node(fmt.Sprint("node", i), func(cfg *warmup.Config) { cfg.Store = st })
		if err := c.Assign(plans); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
	}
	round := func() {
		var wg sync.WaitGroup
		for k := range workers { // traffic on every IP, somewhere
			wg.Go(func() {
				for i := k; i < ips; i += workers {
					cs[i%nodes].Allowance(names[i], warmup.Ask{Provider: "google", Recipients: 1})
				}
			})
		}
		for _, c := range cs {
			wg.Go(func() { c.Step(context.Background()) })
		}
		wg.Wait()
		for _, c := range cs { // an IP that was locked, or asked late, is tried at the next look
			c.Step(context.Background())
		}
	}
	round()
	for range 6 {
		st.mu.Lock()
		clear(st.computed)
		st.mu.Unlock()
		for range 2 {
			w.pass(time.Second)
			round()
		}
		for _, name := range names {
			if st.computed[name] == 0 {
				t.Fatalf("%s was not computed within two periods", name)
			}
		}
	}
	for _, e := range st.errs {
		t.Error(e)
	}

	// A node dies with every lock in its hands.
	keys := make([]warmup.Key, ips)
	for i, name := range names {
		keys[i].Name = name
	}
	if _, _, err := w.store.Claim(t.Context(), "dead", 3*time.Second, keys, nil); err != nil {
		t.Fatal(err)
	}
	st.holder, st.computed = make(map[string]uint64), make(map[string]int)
	w.pass(2900 * time.Millisecond)
	round()
	if n := len(st.computed); n != 0 {
		t.Errorf("%d IPs were computed while the dead node's lock lasts", n)
	}
	w.pass(time.Second)
	round()
	w.pass(time.Second)
	round()
	if n := len(st.computed); n != ips {
		t.Errorf("%d of %d IPs were computed after the dead node's lock ended", n, ips)
	}
}

// An address without tokens to get and without anything to write is computed every other second.
func TestOffersAloneComputeAnAddressSeldom(t *testing.T) {
	w := newWorld(t, 10, 240)
	st := &watch{Store: w.store, holder: make(map[string]uint64), computed: make(map[string]int)}
	c := w.node("a", func(cfg *warmup.Config) { cfg.Store = st })
	for range 60 {
		send(c, "google", 1)
		c.Step(context.Background())
		w.pass(time.Second)
	}
	clear(st.computed)
	for range 20 {
		send(c, "google", 1)
		c.Step(context.Background())
		w.pass(time.Second)
	}
	if n := st.computed["ip"]; n < 10 || n > 12 {
		t.Errorf("computed %d times in 20 seconds, want every other second", n)
	}
}

// TestW8_LagDoesNotTouchTheCap has three nodes whose statistics are a minute late.
func TestW8_LagDoesNotTouchTheCap(t *testing.T) {
	for _, pacing := range []warmup.Pacing{warmup.Ledger, warmup.PID} {
		w := newWorld(t, 600, 14_400)
		w.plan.Pacing = pacing
		var cs []*warmup.Controller
		for i := range 3 {
			cs = append(cs, w.node(fmt.Sprint("n", i), func(cfg *warmup.Config) {
				cfg.StatsLag = func() time.Duration { return time.Minute }
			}))
		}
		var sent int64
		for range 3600 {
			for _, c := range cs {
				sent += send(c, "google", 20)
				c.Step(context.Background())
			}
			w.pass(time.Second)
		}
		if sent > 600 || sent < 588 {
			t.Errorf("%v: %d sent, cap 600", pacing, sent)
		}
	}
}

func TestW17_StoreLostSpendsLeasesThenCloses(t *testing.T) {
	w := newWorld(t, 36_000, 864_000) // ten a second
	c := w.node("a")
	var sent int64
	tick := func(n int64) {
		sent += send(c, "google", n)
		w.pass(time.Second)
		c.Step(context.Background())
	}
	for range 300 {
		tick(5)
	}
	w.store.SetDown(true)
	before := sent
	for range 10 {
		tick(5)
	}
	if extra := sent - before; extra == 0 || extra > 20 {
		t.Errorf("%d sent without store: want the lease of a second or two", extra)
	}
	if s := status(t, c); s.State != "store_down" {
		t.Errorf("state is %q", s.State)
	}
	from := pool{shared: []string{"shared"}}
	ask := warmup.Ask{Provider: "google", Recipients: 1, Whole: true}
	if x := from.choose(c, 1, ask); x.source != "shared" {
		t.Errorf("without store: %+v, want the shared source", x)
	}
	from.hold = true
	if x := from.choose(c, 1, ask); x.source != "" || x.asking {
		t.Errorf("without store in hold mode: %+v", x)
	}
	w.store.SetDown(false)
	w.pass(2 * time.Second)
	c.Step(context.Background())
	if n := send(c, "google", 5); n != 5 {
		t.Errorf("%d of 5 sent when the store was back", n)
	}
	s := status(t, c)
	if s.State != "normal" || s.SentHour < sent || s.SentHour > sent+100 {
		t.Errorf("store counts %d, %d were sent; state %q", s.SentHour, sent, s.State)
	}
}

// TestUnknownOutcomes has writes fail without word, applied or not: what is granted is never more
// than what the store counts.
func TestUnknownOutcomes(t *testing.T) {
	w := newWorld(t, 36_000, 864_000)
	r := rand.New(rand.NewPCG(3, 4))
	unsure := func() (apply, answer bool) {
		apply = r.IntN(3) > 0
		return apply, apply && r.IntN(3) > 0
	}
	w.store.Unsure(unsure)
	a, b := w.node("a"), w.node("b")
	var sent int64
	for range 1800 {
		sent += send(a, "google", 4) + send(b, "yahoo", 4)
		w.pass(time.Second)
		a.Step(context.Background())
		b.Step(context.Background())
	}
	w.store.Unsure(nil)
	for range 10 {
		w.pass(5 * time.Second)
		a.Step(context.Background())
		b.Step(context.Background())
	}
	s := status(t, a)
	if sent > s.SentHour {
		t.Errorf("%d sent, but the store counts %d", sent, s.SentHour)
	}
	if sent < 5000 {
		t.Errorf("only %d of 14400 sent", sent)
	}
}

// TestW18_ThrottledMailLeavesAtTheCap has 2,000 messages at once and no pool: all leave, evenly.
func TestW18_ThrottledMailLeavesAtTheCap(t *testing.T) {
	w := newWorld(t, 500, 12_000)
	var c *warmup.Controller
	from := pool{hold: true}
	ask := warmup.Ask{Provider: "google", Recipients: 1, Whole: true}
	var parked []uint64
	left := make(map[uint64]int64) // when each message left, in seconds
	try := func(id uint64, again bool) {
		ask.Again = again
		if x := from.choose(c, id, ask); x.source == "ip" && c.Begin("ip", "google", 1) {
			left[id] = w.read() / 1000
		} else {
			parked = append(parked, id)
		}
	}
	c = w.node("a", func(cfg *warmup.Config) {
		cfg.Waiting = func(string, string) int64 { return int64(len(parked)) }
		cfg.OnTokens = func(string, string) {
			batch := parked
			parked = nil
			for _, id := range batch {
				try(id, true)
			}
		}
	})
	for id := range uint64(2000) {
		try(id, false)
	}
	for range 5 * 3600 {
		c.Step(context.Background())
		w.pass(time.Second)
	}
	if len(left) != 2000 || len(parked) != 0 {
		t.Fatalf("%d of 2000 left, %d wait", len(left), len(parked))
	}
	var hours [5]int
	five := make([]int, 5*12)
	for _, s := range left {
		hours[s/3600]++
		five[s/300]++
	}
	for h := range 4 {
		if hours[h] > 500 || hours[h] < 490 {
			t.Errorf("hours: %v, cap 500", hours)
		}
	}
	for i, n := range five[:4*12] {
		if n < 20 || n > 75 {
			t.Errorf("five minutes %d: %d messages, want about 42", i, n)
		}
	}
}

func TestW19_RetryKeepsTheSource(t *testing.T) {
	w := newWorld(t, 500, 12_000)
	c := w.node("a")
	from := pool{shared: []string{"shared"}}
	ask := warmup.Ask{Provider: "google", Recipients: 1, Whole: true}
	if x := from.choose(c, 7, ask); x.source != "" || !x.asking {
		t.Fatalf("the first choice: %+v, want to wait for the store", x)
	}
	c.Step(context.Background())
	if x := from.choose(c, 7, ask); x.source != "ip" || !c.Begin("ip", "google", 1) {
		t.Fatalf("with tokens: %+v", x)
	}
	// 450: the retry comes when nothing is left, and waits for this IP instead of taking another.
	if err := c.Do(withStep(t, c), "ip", warmup.Pause()); err != nil {
		t.Fatal(err)
	}
	w.pass(5 * time.Minute)
	c.Step(context.Background())
	c.Allowance("ip", ask)
	for range 3 {
		c.Step(context.Background())
		w.pass(time.Second)
	}
	if n, v := c.Allowance("ip", ask); n != 0 {
		t.Errorf("a retry without tokens: %d, %v", n, v)
	}
	if err := c.Do(withStep(t, c), "ip", warmup.Resume()); err != nil {
		t.Fatal(err)
	}
	w.pass(2 * time.Minute)
	c.Step(context.Background())
	c.Allowance("ip", ask)
	c.Step(context.Background())
	if n, v := c.Allowance("ip", ask); n != 1 || v != warmup.Granted {
		t.Errorf("a retry with tokens: %d, %v", n, v)
	}
}

// withStep gives a context and has c step meanwhile, as Run would.
func withStep(t *testing.T, c *warmup.Controller) context.Context {
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c.Step(ctx)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return t.Context()
}

func TestW20_TenRecipientsNineTokens(t *testing.T) {
	w := newWorld(t, 9, 9)
	c := w.node("a")
	c.Step(context.Background())
	w.pass(30 * time.Minute)
	from := pool{shared: []string{"shared"}}
	ask := warmup.Ask{Provider: "google", Recipients: 10, Whole: true}
	from.choose(c, 1, ask)
	c.Step(context.Background())
	if x := from.choose(c, 1, ask); x.source != "shared" || x.n != 10 {
		t.Errorf("10 recipients with 9 left: %+v, want the pool for all", x)
	}
	if s := status(t, c); s.SentHour != 0 {
		t.Errorf("%d tokens went with it", s.SentHour)
	}
	// Of what may wait, as many set out as there are tokens, in one transaction.
	w.pass(2 * time.Minute)
	ask.Whole, from.hold = false, true
	from.choose(c, 1, ask)
	c.Step(context.Background())
	ask.Again = true
	if x := from.choose(c, 1, ask); x.source != "ip" || x.n < 1 || x.n > 9 || c.Begin("ip", "google", x.n+1) || !c.Begin("ip", "google", x.n) {
		t.Errorf("10 recipients that may wait: %+v", x)
	}
}

// TestAPromiseIsNotMadeTwice: no more recipients are out for an IP than it has tokens. What is out and does
// not begin keeps others waiting for as long as a connection takes to be made, and no longer.
func TestAPromiseIsNotMadeTwice(t *testing.T) {
	w := newWorld(t, 3600, 86_400)
	c := w.node("a")
	c.Step(context.Background())
	w.pass(10 * time.Minute)
	ask := warmup.Ask{Provider: "google", Recipients: 10, Again: true}
	allowance := func(want int64) {
		t.Helper()
		if n, _ := c.Allowance("ip", ask); n != want {
			t.Errorf("%d are let out, want %d", n, want)
		}
	}
	c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 10})
	c.Step(context.Background())
	allowance(10)
	allowance(0)
	c.Drop("ip", "google", 4)
	allowance(4)
	if !c.Begin("ip", "google", 7) || c.Begin("ip", "google", 4) || !c.Begin("ip", "google", 3) {
		t.Error("ten tokens are not good for ten recipients")
	}
	if s := status(t, c); s.SentHour != 10 {
		t.Errorf("%d are counted", s.SentHour)
	}
	c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 10})
	c.Step(context.Background())
	allowance(10)
	for range 40 {
		w.pass(time.Second)
		c.Step(context.Background())
	}
	if s := status(t, c); s.SentHour != 10 || c.Begin("ip", "google", 1) {
		t.Errorf("%d are counted; what never began kept its tokens", s.SentHour)
	}
	c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 10})
	c.Step(context.Background())
	allowance(10)
}

// TestCharges: a source takes tokens until its plan is passed; one without a plan takes none.
func TestCharges(t *testing.T) {
	w := newWorld(t, 1000, 1000)
	w.plan.Finish, w.plan.EaseOut, w.plan.Health.MinSample = true, 0, 0
	c := w.node("a")
	if !c.Charges("ip") || c.Charges("other") {
		t.Error("before the store is asked")
	}
	c.Step(context.Background())
	if !c.Charges("ip") {
		t.Error("on the first day")
	}
	w.pass(10 * time.Minute)
	if send(c, "google", 1) != 1 {
		t.Fatal("nothing was sent, and a day without mail passes no stage")
	}
	w.pass(25 * time.Hour)
	c.Step(context.Background())
	if c.Charges("ip") || status(t, c).State != "warm" {
		t.Errorf("charges: %v, state %s", c.Charges("ip"), status(t, c).State)
	}
}

func TestOperator(t *testing.T) {
	w := newWorld(t, 100, 1000)
	w.plan.Stages = append(w.plan.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: 200, Daily: 2000}})
	c := w.node("a")
	ctx := withStep(t, c)
	for _, x := range []struct {
		name  string
		act   warmup.Action
		state string
		stage int
	}{
		{"pause", warmup.Pause(), "paused", 1}, {"resume", warmup.Resume(), "normal", 1},
		{"set-stage", warmup.SetStage(2), "normal", 2}, {"start", warmup.Start(0), "normal", 1},
	} {
		if err := c.Do(ctx, "ip", x.act); err != nil {
			t.Fatalf("%s: %v", x.name, err)
		}
		if s := status(t, c); s.State != x.state || s.Stage != x.stage {
			t.Errorf("%s: %s on stage %d, want %s on %d", x.name, s.State, s.Stage, x.state, x.stage)
		}
	}
	if err := c.Do(ctx, "ip", warmup.SetStage(3)); !errors.Is(err, warmup.ErrNoStage) || !strings.Contains(err.Error(), "stage 3: no such stage, the plan has 2") {
		t.Errorf("stage 3 of 2: %v", err)
	}
	if err := c.Do(ctx, "nosuch", warmup.Pause()); err == nil {
		t.Error("an IP without plan was paused")
	}
}

// TestCorruptRecordStopsTheIP: what was sent is not known, so nothing is, until an operator says.
func TestCorruptRecordStopsTheIP(t *testing.T) {
	w := newWorld(t, 100, 1000)
	r, _, _ := w.store.Claim(t.Context(), "x", time.Second, []warmup.Key{{Name: "ip"}}, nil)
	if _, err := w.store.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: r[0].Fence, Value: []byte("\x04garbage"), Release: true}}, nil); err != nil {
		t.Fatal(err)
	}
	c := w.node("a")
	if n := send(c, "google", 1); n != 0 {
		t.Error("sent from an IP whose state can't be read")
	}
	if s := status(t, c); s.State != "corrupt" {
		t.Errorf("state %q", s.State)
	}
	if err := c.Do(withStep(t, c), "ip", warmup.Start(1)); err != nil {
		t.Fatal(err)
	}
	if s := status(t, c); s.State != "normal" || s.SentHour != s.HourlyLimit {
		t.Errorf("after a start: %+v", s)
	}
}

func TestChoosingAndChargingDoesNotAllocate(t *testing.T) {
	w := newWorld(t, 2_000_000, 48_000_000)
	c := w.node("a")
	c.Step(context.Background()) // the warm-up begins
	w.pass(10 * time.Minute)
	send(c, "google", 5000)
	c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 5000})
	c.Step(context.Background())
	c.Drop("ip", "google", 5000)
	granted := 0
	from := pool{}
	if n := testing.AllocsPerRun(1000, func() {
		if x := from.choose(c, 1, warmup.Ask{Provider: "google", Recipients: 1}); x.source == "ip" && c.Begin("ip", "google", 1) {
			granted++
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if granted < 900 {
		t.Errorf("only %d were granted, so the test shows little", granted)
	}
}

// stopsAt is a store that ends the run of its controller by each claim, as a relay's stop may.
type stopsAt struct {
	*warmup.Memory
	stop func()
}

func (s stopsAt) Claim(ctx context.Context, node string, ttl time.Duration, keys []warmup.Key, into []warmup.Record) (
	[]warmup.Record, warmup.Instant, error) {
	s.stop()
	if err := ctx.Err(); err != nil {
		return into, 0, err
	}
	return s.Memory.Claim(ctx, node, ttl, keys, into)
}

// TestStopInAStep has a stop end no call of the store: that would be an error, and an event about a lost ledger.
func TestStopInAStep(t *testing.T) {
	w := newWorld(t, 3000, 72_000)
	ctx, stop := context.WithCancel(t.Context())
	c := w.node("a", func(cfg *warmup.Config) { cfg.Store = stopsAt{w.store, stop} })
	if err := c.Run(ctx); err != nil || ctx.Err() == nil {
		t.Fatalf("%v, and its context: %v", err, ctx.Err())
	}
	if s := status(t, c); s.LedgerFailure() != "" {
		t.Errorf("the ledger fails: %s", s.LedgerFailure())
	}
}

// TestManyGoroutines has everything at once, for the race detector, and recounts.
func TestManyGoroutines(t *testing.T) {
	w := newWorld(t, 3000, 72_000)
	cs := []*warmup.Controller{w.node("a"), w.node("b")}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	var sent int64
	for _, c := range cs {
		wg.Go(func() { c.Run(ctx) })
	}
	var senders sync.WaitGroup
	for k := range 4 {
		senders.Go(func() {
			for i := range 3000 {
				_, v := cs[k%2].Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1})
				if v == warmup.Granted && i%10 == 0 {
					cs[k%2].Drop("ip", "google", 1)
				} else if v == warmup.Granted && cs[k%2].Begin("ip", "google", 1) {
					cs[k%2].Report("ip", "google", warmup.Delivered)
					mu.Lock()
					sent++
					mu.Unlock()
				}
				if i%10 == 0 {
					w.pass(200 * time.Millisecond)
					cs[k%2].Step(ctx) // Run's goroutine does so, too, but on the real clock
					cs[k%2].Status("ip")
				}
			}
		})
	}
	senders.Wait()
	cancel()
	wg.Wait()
	if sent > 3000 {
		t.Errorf("%d sent, cap 3000", sent)
	}
	if sent == 0 {
		t.Error("nothing was sent")
	}
}

// TestW11_LeaseEndsWithItsHour leaves a lease over an hour's end, without store: it must not be
// used then, for the new hour may be filled by others.
func TestW11_LeaseEndsWithItsHour(t *testing.T) {
	w := newWorld(t, 36_000, 864_000)
	c := w.node("a")
	c.Step(context.Background())
	for range 3590 {
		send(c, "google", 8)
		w.pass(time.Second)
		c.Step(context.Background())
	}
	w.store.SetDown(true)
	if n := send(c, "google", 1); n != 1 {
		t.Fatal("there is no lease, so the test shows nothing")
	}
	w.pass(11 * time.Second)
	if n := send(c, "google", 1); n != 0 {
		t.Error("a lease was used after its hour")
	}
}

// TestW11_LeaseEndsAfterAMinute: the sliding hour covers tokens only that long.
func TestW11_LeaseEndsAfterAMinute(t *testing.T) {
	w := newWorld(t, 36_000, 864_000)
	c := w.node("a")
	for range 600 {
		send(c, "google", 8)
		w.pass(time.Second)
		c.Step(context.Background())
	}
	w.store.SetDown(true)
	if n := send(c, "google", 1); n != 1 {
		t.Fatal("there is no lease, so the test shows nothing")
	}
	w.pass(61 * time.Second)
	if n := send(c, "google", 1); n != 0 {
		t.Error("a lease was used after a minute")
	}
}

// TestOutlookOfAYoungDay: that a day is not filled is said when it falls behind, and not from its first
// minute; what is wrong with the mail at once.
func TestOutlookOfAYoungDay(t *testing.T) {
	const open, held = "open: the day may yet be filled", "stayed: daily cap not filled"
	w := newWorld(t, 1000, 2400)
	w.plan.Stages = append(w.plan.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: 1000, Daily: 2400}})
	c := w.node("a")
	c.Step(context.Background())
	at, sent := time.Duration(0), int64(0)
	for _, x := range []struct {
		at   time.Duration
		sent int64 // by then
		want string
	}{
		{0, 0, open}, {59 * time.Minute, 0, open},
		{61 * time.Minute, 0, held}, // half of the day's cap is 50 an hour
		{3 * time.Hour, 200, open}, {5 * time.Hour, 200, held},
		{8 * time.Hour, 1100, open}, {9 * time.Hour, 1200, "advanced"},
	} {
		for ; at < x.at; at += time.Second {
			sent += send(c, "google", min(10, x.sent-sent))
			w.pass(time.Second)
			c.Step(context.Background())
		}
		if s := status(t, c); s.Outlook != x.want || s.SentDay != x.sent {
			t.Errorf("after %v with %d sent: outlook %q, want %q with %d", x.at, s.SentDay, s.Outlook, x.want, x.sent)
		}
	}
	bad := newWorld(t, 1000, 2400)
	c = bad.node("a")
	send(c, "google", 1)
	c.ReportSome("ip", "google", warmup.HardBounce, 100)
	bad.pass(time.Minute)
	c.Step(context.Background())
	if s := status(t, c); s.Outlook != "went back: outcomes over the limits" {
		t.Errorf("after a minute of refusals: outlook %q", s.Outlook)
	}
}

// TestOutlook: what Status says that the day would do, ended it now, is what its end then does.
func TestOutlook(t *testing.T) {
	for _, x := range []struct {
		name             string
		send             int64
		outcome          warmup.Outcome
		why, who, health string
	}{
		{"too little", 40, warmup.Delivered, "stayed: daily cap not filled", "", "unjudged"},
		{"a good day", 600, warmup.Delivered, "advanced", "", "good"},
		{"a bad day", 600, warmup.HardBounce, "went back: outcomes over the limits", "google", "bad"},
	} {
		w := newWorld(t, 1000, 1000)
		w.plan.Stages = append(w.plan.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: 1000, Daily: 1000}})
		c := w.node("a")
		var sent int64
		for range 3600 {
			sent += send(c, "google", min(10, x.send-sent))
			w.pass(time.Second)
			c.Step(context.Background())
		}
		if sent != x.send {
			t.Fatalf("%s: only %d of %d sent", x.name, sent, x.send)
		}
		c.ReportSome("ip", "google", x.outcome, sent)
		w.pass(2 * time.Hour)
		c.Step(context.Background())
		s := status(t, c)
		if s.Outlook != x.why || s.OutlookProvider != x.who || s.Providers[0].Health != x.health || len(s.History) > 0 {
			t.Errorf("%s: outlook %q by %q, health %q", x.name, s.Outlook, s.OutlookProvider, s.Providers[0].Health)
		}
		w.pass(23 * time.Hour)
		c.Step(context.Background())
		if day := status(t, c).History[0]; day.Why != x.why || day.Provider != x.who || day.Sent != x.send {
			t.Errorf("%s: the day ended as %+v", x.name, day)
		}
	}
}

// TestBegin: nothing takes the IP before its plan begins, and an operator can begin it sooner.
func TestBegin(t *testing.T) {
	for _, early := range []bool{false, true} {
		w := newWorld(t, 100, 200)
		w.plan.Begin = w.now().Add(90 * time.Minute)
		var got told
		c := w.node("a", got.config)
		c.Step(context.Background())
		w.pass(time.Hour)
		if s := status(t, c); send(c, "google", 1) != 0 || s.State != "scheduled" || !s.Started.Equal(w.plan.Begin) || len(s.Forecast) == 0 {
			t.Errorf("before its begin: %+v", s)
		}
		got.want(t, "before its begin")
		if of, all := c.Left("ip", "google", time.Hour); of+all > 0 {
			t.Errorf("%d and %d are left before its begin", of, all)
		}
		want := warmup.EventBegun
		if early {
			want = warmup.EventRestarted
			done := make(chan error)
			go func() { done <- c.Do(context.Background(), "ip", warmup.Start(0)) }()
			for waiting := true; waiting; {
				select {
				case err := <-done:
					if waiting = false; err != nil {
						t.Fatal(err)
					}
				default:
					c.Step(context.Background())
				}
			}
		} else {
			w.pass(time.Hour)
		}
		c.Step(context.Background())
		got.want(t, "its begin", want)
		w.pass(time.Minute)
		if s := status(t, c); send(c, "google", 1) != 1 || s.State != "normal" {
			t.Errorf("after its begin, early %v: %+v", early, s)
		}
	}
}

// small is a store that can't answer much at a time, takes its time, and fails.
type small struct {
	warmup.Store
	takes          func()
	claim, write   error // of each call, nil: it succeeds
	claims, writes int
	largest        int // of writes
}

func (s *small) Claim(ctx context.Context, owner string, ttl time.Duration, keys []warmup.Key, dst []warmup.Record) ([]warmup.Record, warmup.Instant, error) {
	s.claims++
	if s.takes(); s.claim != nil || len(keys) > 500 {
		return dst, 0, cmp.Or(s.claim, warmup.ErrDown)
	}
	return s.Store.Claim(ctx, owner, ttl, keys, dst)
}

func (s *small) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	s.writes++
	s.largest = max(s.largest, len(changes))
	if s.takes(); s.write != nil || len(changes) > 500 {
		return dst, cmp.Or(s.write, warmup.ErrUnknownOutcome)
	}
	return s.Store.Write(ctx, changes, dst)
}

func nthIP(i int) string { return fmt.Sprintf("10.0.%d.%d", i/250, i%250) }

// manyIPs is a node of some thousands of addresses, and what has each ask for a token.
func manyIPs(t *testing.T, w *world, n int, st *small) (c *warmup.Controller, ask func() (sent int64)) {
	t.Helper()
	c = w.node("a", func(cfg *warmup.Config) { cfg.Store = st })
	plans := make(map[string]*warmup.Plan)
	for i := range n {
		plans[nthIP(i)] = w.plan
	}
	if err := c.Assign(plans); err != nil {
		t.Fatal(err)
	}
	return c, func() (sent int64) {
		for i := range n {
			n, _ := take(c, nthIP(i), "google", 1, false)
			sent += n
		}
		return sent
	}
}

// TestManyIPsTakeSeveralCalls: a node of thousands of addresses asks for some at a time, whatever has failed before. A
// store that fails is asked no second time in a step, also for writes whose outcome is not known.
func TestManyIPsTakeSeveralCalls(t *testing.T) {
	for _, test := range []struct {
		claim, write error
		first        [2]int // claims and writes of the first step
		later        int    // most calls of another
	}{
		{warmup.ErrDown, nil, [2]int{1, 0}, 1},
		{nil, warmup.ErrDown, [2]int{1, 1}, 2},
		{nil, warmup.ErrUnknownOutcome, [2]int{1, 1}, 2},
	} {
		w := newWorld(t, 3600, 86_400)
		st := &small{Store: w.store, takes: func() {}, claim: test.claim, write: test.write}
		c, ask := manyIPs(t, w, 1200, st)
		ask()
		if c.Step(t.Context()); [2]int{st.claims, st.writes} != test.first {
			t.Errorf("%v, %v: %d claims and %d writes in a step", test.claim, test.write, st.claims, st.writes)
		}
		for range 20 { // until the outcomes of more than a part are unknown
			w.pass(600 * time.Millisecond)
			ask()
			before := st.claims + st.writes
			if c.Step(t.Context()); st.claims+st.writes-before > test.later {
				t.Errorf("%v, %v: %d calls in a step", test.claim, test.write, st.claims+st.writes-before)
			}
		}
		st.claim, st.write = nil, nil
		for range 5 {
			w.pass(time.Second)
			ask()
			c.Step(t.Context())
		}
		if n := ask(); n != 1200 || st.largest > 500 {
			t.Errorf("%v, %v: %d of 1200 addresses have tokens", test.claim, test.write, n)
		}
	}
}

// one is a store that fails in all writes of an address.
type one struct {
	warmup.Store
	ip string
}

func (s *one) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	if slices.ContainsFunc(changes, func(c warmup.Change) bool { return c.Name == s.ip }) {
		return dst, warmup.ErrUnknownOutcome
	}
	return s.Store.Write(ctx, changes, dst)
}

// TestAWriteThatAlwaysFails: writes whose outcome never gets known stop no other addresses.
func TestAWriteThatAlwaysFails(t *testing.T) {
	w := newWorld(t, 3600, 86_400)
	c, ask := manyIPs(t, w, 1200, &small{Store: &one{w.store, "10.0.0.0"}, takes: func() {}})
	for range 20 {
		ask()
		c.Step(t.Context())
		w.pass(600 * time.Millisecond)
	}
	w.pass(time.Minute) // the others have saved up tokens
	ask()
	c.Step(t.Context())
	if n := ask(); n != 700 {
		t.Errorf("%d of 700 addresses have tokens", n)
	}
}

// TestAStepEndsInTime: a slow store has a step end after a second and two calls, with the other addresses left to the
// next ones: each has its turn. So it is with writes that are repeated.
func TestAStepEndsInTime(t *testing.T) {
	for _, write := range []error{nil, warmup.ErrUnknownOutcome} {
		w := newWorld(t, 3600, 86_400)
		st := &small{Store: w.store, takes: func() {}}
		c, ask := manyIPs(t, w, 5000, st)
		if st.write = write; write != nil {
			for range 30 {
				ask()
				c.Step(t.Context())
				w.pass(600 * time.Millisecond)
			}
			st.write = nil
		}
		const call = 900 * time.Millisecond // both are within the time for which an address is locked
		st.takes = func() { w.pass(call) }
		tokens := make(map[string]bool)
		for steps := 0; len(tokens) < 5000; steps++ {
			if steps == 50 {
				t.Fatalf("%v: %d addresses of 5000 have had tokens", write, len(tokens))
			}
			ask()
			began := w.now()
			wait := c.Step(t.Context())
			if w.now().Sub(began) > time.Second+2*call || wait > time.Second {
				t.Fatalf("%v: a step takes %v, and the next is in %v", write, w.now().Sub(began), wait)
			}
			w.pass(wait)
			for i := range 5000 {
				if n, _ := take(c, nthIP(i), "google", 1, true); n > 0 {
					tokens[nthIP(i)] = true
				}
			}
		}
	}
}
