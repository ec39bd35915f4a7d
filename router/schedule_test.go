package router

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

var t0 = time.Unix(1e9, 0)

// office is a schedule with a number of workers, driven by hand.
type office struct {
	*schedule
	workers int
	running []job
	now     time.Time
}

func newOffice(workers int) *office {
	return &office{schedule: newSchedule(Allowance{2, 10}, guard{}), workers: workers, now: t0}
}

// envelopeOf adds a message with so many jobs.
func (o *office) envelopeOf(jobs int) *entry { return o.envelopeFrom("", jobs) }

// envelopeFrom adds a tenant's.
func (o *office) envelopeFrom(tenant string, jobs int) *entry {
	e := &entry{request: Request{Tenant: tenant}, waiting: make([]string, jobs), arrived: o.now}
	o.add(e)
	return e
}

// A message of the first tier goes before a thousand of a later one of its tenant, and those have their
// share; between tenants weights decide.
func TestTiersAndWeights(t *testing.T) {
	o := newOffice(1)
	add := func(tenant string, weight int, tier uint8) *entry {
		e := &entry{request: Request{Tenant: tenant, Weight: weight, Tier: tier}, waiting: make([]string, 1), arrived: o.now}
		o.add(e)
		return e
	}
	for range 1000 {
		add("shop", 1, 4)
	}
	reset := add("shop", 1, 1)
	o.fill()
	if reset.running != 1 {
		t.Fatal("a message of tier 1 waits behind tier 4")
	}
	for range 1000 {
		add("shop", 1, 1)
		add("bank", 3, 3)
	}
	count := make(map[string]int)
	for range 400 {
		o.finish()
		o.fill()
		r := &o.running[0].entry.request
		count[fmt.Sprintf("%s %d", r.Tenant, r.Tier)]++
	}
	if count["bank 3"] != 300 || count["shop 1"] != 95 || count["shop 4"] != 5 {
		t.Errorf("turns: %v, want three in four for the tenant of weight 3, and one in twenty of the other's for tier 4", count)
	}
}

// fill gives out all jobs that may run.
func (o *office) fill() {
	for {
		j, ok := o.next(o.now, o.workers-len(o.running))
		if !ok {
			return
		}
		o.running = append(o.running, j)
	}
}

// finish ends the job that runs for longest.
func (o *office) finish() {
	o.done(o.running[0])
	o.running = o.running[1:]
}

func shares(es ...*entry) string {
	var out []int
	for _, e := range es {
		out = append(out, e.running)
	}
	return fmt.Sprint(out)
}

const endless = 1 << 20

func TestS3_AllowanceStopsOneMessageAt91Of100(t *testing.T) {
	o := newOffice(100)
	m := o.envelopeOf(endless)
	o.fill()
	if m.running != 91 {
		t.Errorf("%d workers, want 91", m.running)
	}
}

func TestS3_AllowanceGivesTwoMessages48Each(t *testing.T) {
	o := newOffice(100)
	a, b := o.envelopeOf(endless), o.envelopeOf(endless)
	o.fill()
	if a.running != 48 || b.running != 48 {
		t.Errorf("%d and %d workers, want 48 each", a.running, b.running)
	}
}

// A third message makes all converge to a share of 32.3 %: 10/31 of the workers, and the rest
// free for whoever comes.
func TestS3_AllowanceConvergesToAThirdEachWhenAThirdArrives(t *testing.T) {
	o := newOffice(100)
	a, b := o.envelopeOf(endless), o.envelopeOf(endless)
	o.fill()
	c := o.envelopeOf(endless)
	o.fill()
	if c.running != 4 {
		t.Errorf("the third got %d of the 4 free workers", c.running)
	}
	for range 200 {
		o.finish()
		o.fill()
	}
	total := 0
	for _, e := range []*entry{a, b, c} {
		total += e.running
		if e.running < 32 || e.running > 33 {
			t.Errorf("shares %s, want 32.3 each", shares(a, b, c))
		}
	}
	if total != 97 {
		t.Errorf("shares %s use %d workers, want 97", shares(a, b, c), total)
	}
}

// The second big envelope takes the rest of the workers at once, and over time as many as the
// first: within the time in which each worker ends ten jobs, as S4 wants, and in fact within one.
func TestS4_WorkersMoveOverToTheSecondMessage(t *testing.T) {
	o := newOffice(100)
	a := o.envelopeOf(endless)
	o.fill()
	b := o.envelopeOf(endless)
	o.fill()
	if a.running != 91 || b.running != 9 {
		t.Fatalf("at first %s, want 91 and 9", shares(a, b))
	}
	steps := 0
	for ; a.running != b.running && steps < 1000; steps++ {
		o.finish()
		o.fill()
	}
	if steps > 100 {
		t.Errorf("it took %d jobs to come to %s, want at most one for each worker", steps, shares(a, b))
	}
	for range 1000 {
		o.finish()
		o.fill()
		if d := a.running - b.running; d < -1 || d > 1 {
			t.Fatalf("it does not stay equal: %s", shares(a, b))
		}
	}
}

func TestS5_EmptyAndBlockedAreIdle(t *testing.T) {
	o := newOffice(100)
	if _, ok := o.next(t0, 100); ok {
		t.Error("a job from nowhere")
	}
	m := o.envelopeOf(1)
	if _, ok := o.next(t0, 0); ok {
		t.Error("a job without a worker")
	}
	if _, ok := o.next(t0, -3); ok { // after a reload to fewer workers
		t.Error("a job with fewer than no workers")
	}
	o.fill()
	o.finish()
	if m.running != 0 || o.messages() != 0 || o.arrival.Len() != 0 {
		t.Errorf("left over: %d running, %d messages, %d in order", m.running, o.messages(), o.arrival.Len())
	}

	o = newOffice(10)
	o.allowance = Allowance{2, 1}
	a, b, c := o.envelopeOf(endless), o.envelopeOf(endless), o.envelopeOf(endless)
	o.fill()
	free := o.workers - len(o.running)
	if free == 0 {
		t.Fatal("nobody is blocked")
	}
	before := shares(a, b, c)
	for range 5 {
		if _, ok := o.next(t0, free); ok {
			t.Error("all are blocked, and one got a worker")
		}
	}
	if after := shares(a, b, c); after != before || o.messages() != 3 {
		t.Errorf("shares %s have become %s", before, after)
	}
}

// Whoever is not permitted blocks nobody who is: the message with the fewest comes first.
func TestBlockedMessageHoldsNobodyUp(t *testing.T) {
	o := newOffice(100)
	big := o.envelopeOf(endless)
	o.fill()
	var small []*entry
	for range 9 {
		small = append(small, o.envelopeOf(1))
	}
	o.fill()
	for i, e := range small {
		if e.running != 1 {
			t.Errorf("small message %d has to wait for the big one, which has %d workers", i, big.running)
		}
	}
}

func TestLeastRunningFirstThenOldest(t *testing.T) {
	o := newOffice(100)
	a, b := o.envelopeOf(10), o.envelopeOf(10)
	give := func(want ...*entry) {
		t.Helper()
		for i, w := range want {
			j, ok := o.next(t0, 1)
			if !ok || j.entry != w {
				t.Fatalf("grant %d went to another message: a and b have %s", i, shares(a, b))
			}
			o.running = append(o.running, j)
		}
	}
	give(a, b, a, b)
	o.finish() // one of a
	c, d := o.envelopeOf(10), o.envelopeOf(10)
	give(c, d)       // nothing running comes first, the older before the younger
	give(a, c, d)    // then those with one
	give(a, b, c, d) // then all
}

// Tenants share the workers evenly, however many messages each has waiting; and a tenant's own mail
// goes by the fewest running, as ever.
func TestTenantsTakeTurns(t *testing.T) {
	o := newOffice(30)
	o.allowance = Allowance{2, 1000} // the allowance is not what this is about
	for range 1000 {
		o.envelopeFrom("crowd", 1)
	}
	big := o.envelopeFrom("big", endless)
	var few []*entry
	for range 40 {
		few = append(few, o.envelopeFrom("few", 1))
	}
	count := func() map[string]int {
		by := map[string]int{}
		for _, j := range o.running {
			by[j.entry.request.Tenant]++
		}
		return by
	}
	o.fill()
	if got := count(); got["crowd"] != 10 || got["big"] != 10 || got["few"] != 10 || big.running != 10 {
		t.Errorf("30 workers go to %v, want 10 each", got)
	}
	for range 60 {
		o.finish()
		o.fill()
	}
	for i, e := range few {
		if len(e.waiting) > 0 && i < 30 {
			t.Errorf("message %d of the tenant with few still waits after 90 jobs", i)
		}
	}
	for range 60 { // those with few have none left: the others share
		o.finish()
		o.fill()
	}
	if got := count(); got["crowd"] != 15 || got["big"] != 15 || len(o.tenants) != 2 {
		t.Errorf("30 workers go to %v of %d tenants, want 15 each of 2", got, len(o.tenants))
	}
	// A new message of the tenant with the big one comes before its other jobs.
	small := o.envelopeFrom("big", 1)
	for range 2 {
		o.finish()
		o.fill()
	}
	if small.running != 1 {
		t.Error("a tenant's small message waits behind his big one")
	}
}

// A tenant who may have no more workers is passed over, and nobody else waits for him.
func TestTenantAtHisAllowanceHoldsNobodyUp(t *testing.T) {
	o := newOffice(10)
	o.allowance = Allowance{2, 1}
	big := o.envelopeFrom("big", endless)
	o.fill()
	had := big.running
	small := o.envelopeFrom("small", 1)
	o.fill()
	if had < 5 || small.running != 1 {
		t.Errorf("the big one has %d workers, the other tenant's small one %d", had, small.running)
	}
}

// The guard of docs/control.md, Turns: who has waited for five minutes is served by a tenth of the
// workers, although there is always somebody with fewer running.
func TestGuardServesTheOldest(t *testing.T) {
	run := func(g guard) int {
		o := newOffice(20)
		o.guard = g
		big := o.envelopeOf(endless)
		most := 0
		for step := range 20_000 {
			o.now = o.now.Add(100 * time.Millisecond)
			for o.messages() < 60 { // overload: there is always a small message without a worker
				o.envelopeOf(1)
			}
			o.fill()
			if len(o.running) > 0 {
				o.finish()
			}
			if step > 10_000 {
				most = max(most, big.running)
			}
		}
		return most
	}
	if without, with := run(guard{}), run(guard{age: 5 * time.Minute, workers: 2}); without > 1 || with < 2 || with > 3 {
		t.Errorf("the big envelope has %d workers without the guard and %d with it, want 1 and 2 or 3", without, with)
	}
}

// A decision costs no more when a message has a million recipients: no job is looked at but the
// one that is taken.
func TestDecisionCostDoesNotGrowWithJobs(t *testing.T) {
	cost := func(jobs int) time.Duration {
		o := newOffice(100)
		for range 100 {
			o.envelopeOf(jobs)
		}
		start := time.Now()
		for range 500 {
			o.fill()
			o.finish()
		}
		return time.Since(start)
	}
	few, many := cost(1_000), cost(1_000_000)
	if many > 50*few+time.Second { // a look at each job would cost 1,000 times as much
		t.Errorf("500 decisions take %s with a thousand jobs each and %s with a million", few, many)
	}
	o := newOffice(100)
	o.envelopeOf(1_000_000)
	if n := testing.AllocsPerRun(1000, func() {
		if j, ok := o.next(t0, 100); ok {
			o.done(j)
		}
	}); n != 0 {
		t.Errorf("%v allocations for a decision", n)
	}
}

func benchmarkDecision(b *testing.B, messages, jobs int) {
	domains := make([]string, jobs)
	s := newSchedule(Allowance{2, 10}, guard{age: time.Minute, workers: 10})
	for range messages {
		s.add(&entry{waiting: domains, arrived: t0})
	}
	for b.Loop() {
		j, ok := s.next(t0, 100)
		if !ok {
			b.Fatal("nothing to do")
		}
		if len(j.entry.waiting) < 2 {
			j.entry.waiting = domains
		}
		s.done(j)
	}
}

func BenchmarkDecision(b *testing.B) {
	for _, messages := range []int{1, 100, 10_000, 1_000_000} {
		b.Run(fmt.Sprintf("messages=%d", messages), func(b *testing.B) {
			b.ReportAllocs()
			benchmarkDecision(b, messages, 1000)
		})
	}
}

// Whatever comes and goes: workers add up, no message has more than the rule allows, nobody
// waits while one who may could run, and all jobs are given out once.
func TestScheduleKeepsItsRules(t *testing.T) {
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		o := newOffice(1 + rnd.IntN(50))
		o.allowance = Allowance{1 + rnd.IntN(3), 1 + rnd.IntN(12)}
		if rnd.IntN(2) == 0 {
			o.guard = guard{age: time.Duration(rnd.IntN(100)) * time.Second, workers: max(1, o.workers/10)}
		}
		given, taken := 0, 0
		var all []*entry
		for step := range 1000 {
			o.now = o.now.Add(time.Second)
			switch rnd.IntN(3) {
			case 0:
				n := 1
				if rnd.IntN(5) == 0 {
					n = 1 + rnd.IntN(200)
				}
				given += n
				all = append(all, o.envelopeFrom(fmt.Sprint("tenant", rnd.IntN(4)), n))
			default:
				if len(o.running) > 0 {
					i := rnd.IntN(len(o.running))
					o.running[0], o.running[i] = o.running[i], o.running[0]
					o.finish()
				}
			}
			for {
				free := o.workers - len(o.running)
				j, ok := o.next(o.now, free)
				if !ok {
					for _, e := range all {
						if len(e.waiting) > 0 && o.allowance.Permits(e.running, free) {
							t.Fatalf("seed %d: a message with %d running waits while %d workers are free", seed, e.running, free)
						}
					}
					break
				}
				if !o.allowance.Permits(j.entry.running-1, free) {
					t.Fatalf("seed %d: a message with %d running got a worker of %d free", seed, j.entry.running-1, free)
				}
				taken++
				o.running = append(o.running, j)
			}
			if step%10 == 0 {
				check(t, o, all)
			}
		}
		for len(o.running) > 0 {
			o.finish()
			before := len(o.running)
			o.fill()
			taken += len(o.running) - before
		}
		if taken != given || o.messages() != 0 || o.guarded != 0 {
			t.Fatalf("seed %d: %d jobs given, %d taken, %d messages left, %d under the guard", seed, given, taken, o.messages(), o.guarded)
		}
	}
}

func check(t *testing.T, o *office, all []*entry) {
	t.Helper()
	running, waiting := 0, 0
	for _, e := range all {
		running += e.running
		if len(e.waiting) > 0 {
			waiting++
		}
	}
	if running != len(o.running) || running > o.workers || waiting != o.messages() || waiting != o.arrival.Len() {
		t.Fatalf("%d running of %d given out, %d workers; %d messages wait, %d and %d are known", running, len(o.running), o.workers, waiting, o.messages(), o.arrival.Len())
	}
	known := 0
	for _, tenant := range o.tenants {
		for tier := range tenant.fewest {
			h := tenant.fewest[tier].Values()
			known += len(h)
			for i := range h {
				if p := (i - 1) / 2; i > 0 && before(h[i], h[p]) {
					t.Fatal("the heap is out of order")
				}
			}
			if has := tenant.waiting.With(uint8(tier)) == tenant.waiting; has != (len(h) > 0) {
				t.Fatalf("tier %d has %d messages, and is among those that have some: %v", tier, len(h), has)
			}
		}
	}
	if known != waiting || o.round.Empty() != (len(o.tenants) == 0) {
		t.Fatalf("%d messages wait, tenants have %d", waiting, known)
	}
}

func TestDrain(t *testing.T) {
	o := newOffice(2)
	a, b := o.envelopeOf(5), o.envelopeOf(1)
	a.request.Message, b.request.Message = envelope.ID(1), envelope.ID(2)
	o.fill()
	c := o.envelopeOf(3)
	left := o.drain()
	if !slices.Equal(left, []*entry{a, c}) || len(a.waiting)+len(c.waiting) != 7 || o.messages() != 0 {
		t.Errorf("drained %d messages, %d and %d jobs", len(left), len(a.waiting), len(c.waiting))
	}
	o.finish() // of a drained message: nothing to put in order
	o.finish()
	if _, ok := o.next(t0, 2); ok {
		t.Error("a job after drain")
	}
}
