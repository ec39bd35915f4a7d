package admission

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// clock is a time that tests move.
type clock struct{ t time.Time }

func newClock() *clock                   { return &clock{time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)} }
func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

// fixed is a law that always refuses the same share.
type fixed float64

func (f fixed) Share(Load) float64 { return float64(f) }

// BenchmarkAdmit is A1: a load, a comparison, and what is counted.
func BenchmarkAdmit(b *testing.B) {
	c := New(Config{Limit: 20, Now: newClock().now})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		p := Of(3, 17)
		for pb.Next() {
			c.Admit(p)
		}
	})
}

func TestA1_AdmittingDoesNotAllocate(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 20, Now: clk.now, Law: fixed(.5)})
	if n := testing.AllocsPerRun(1000, func() { c.Admit(Of(3, 17)) }); n != 0 {
		t.Errorf("%v allocations when all is admitted", n)
	}
	clk.advance(Period)
	c.Calibrate()
	if n := testing.AllocsPerRun(1000, func() { c.Admit(Of(3, 17)) }); n != 0 {
		t.Errorf("%v allocations at the threshold", n)
	}
}

func TestA2_TheThresholdChangesByCalibrationAlone(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 1, Now: clk.now, Law: fixed(.5)})
	for range 5000 {
		if _, r := c.Admit(Of(5, 127)); r != nil {
			t.Fatal("refused before the first calibration")
		}
	}
	clk.advance(Period)
	c.Calibrate()
	before := c.gate.Load()
	for range 5000 {
		c.Admit(0)
		clk.advance(time.Millisecond)
	}
	if c.gate.Load() != before {
		t.Error("the threshold changed between calibrations")
	}
}

func TestA3_PublishedTarget(t *testing.T) {
	for _, test := range []struct {
		in, out, free int
		limit, want   float64
	}{{5, 5, 0, 5, 0}, {1, 1, 4, 5, -4}, {3, 0, 5, 5, -.4}} {
		if got := target(Load{In: test.in, Out: test.out, Free: test.free, Limit: test.limit}); got != test.want {
			t.Errorf("in %d, out %d, free %d: %v, want %v", test.in, test.out, test.free, got, test.want)
		}
	}
}

func TestA4_TheIntegralForgetsAfter30Seconds(t *testing.T) {
	law := Published()
	if got, want := law.Share(Load{In: 110, Out: 100}), .1*.1+1.4*.1*.5; math.Abs(got-want) > 1e-9 {
		t.Errorf("the first share is %v, want %v", got, want)
	}
	for range 59 {
		if law.Share(Load{In: 100, Out: 100}) == 0 {
			t.Fatal("forgotten within 60 periods")
		}
	}
	if got := law.Share(Load{In: 100, Out: 100}); got != 0 {
		t.Errorf("after 60 periods the share is %v", got)
	}
}

func TestA5_ThresholdFromTheLastPriorities(t *testing.T) {
	var s sample
	for n := range uint64(sampled) { // tiers 1 to 4, all cohorts alike
		s.add(n, Of(1+int(n)%4, int(n)/4*127/250))
	}
	cut := s.cut(.1)
	if p := Priority(cut.level()); p.Tier() != 4 || p.Cohort() < 72 || p.Cohort() > 80 {
		t.Errorf("a tenth is cut at tier %d, cohort %d; want about 4, 76", p.Tier(), p.Cohort())
	}
	if got := s.cut(0); got != open {
		t.Errorf("nothing to refuse, and the threshold is %x", got)
	}
	for n := range uint64(sampled) { // only one level is left, and refused ones count
		s.add(n, Of(2, 0))
	}
	for range 40 {
		cut = s.cut(.25)
	}
	if cut.level() != int(Of(2, 0)) || math.Abs(cut.part()-.75) > .01 {
		t.Errorf("a quarter of one level is cut at %d, %.3f of it", cut.level(), cut.part())
	}
}

func TestNothingIsAskedAndNothingIsCut(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 1, Now: clk.now, Law: fixed(.9)})
	clk.advance(Period)
	c.Calibrate()
	if _, r := c.Admit(Of(5, 127)); r != nil {
		t.Error("refused though nobody has come yet")
	}
}

func TestA15_OneLevelIsCutByItsShare(t *testing.T) {
	for _, share := range []float64{.01, .1, .5, .57, .8, .98} {
		clk := newClock()
		c := New(Config{Limit: 1, Now: clk.now, Law: fixed(share)})
		refused := 0
		for i := range 6000 {
			if i%500 == 0 {
				clk.advance(Period)
				c.Calibrate()
			}
			if _, r := c.Admit(Of(3, 5)); r != nil && i >= 1000 {
				refused++
			}
		}
		if got := float64(refused) / 5000; math.Abs(got-share) > .01 {
			t.Errorf("%.3f of one level is refused, want %.3f", got, share)
		}
	}
}

func TestA6_LessImportantMailGoesFirst(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 1, Now: clk.now, Law: fixed(.5)})
	for i := range 20_000 {
		if i%500 == 0 {
			clk.advance(Period)
			c.Calibrate()
		}
		c.Admit(Of([]int{0, 3, 3, 3, 4, 4}[i%6], i*7%128))
	}
	counts := c.Counts()
	if counts[0].Refused != 0 {
		t.Errorf("%d of tier 0 refused", counts[0].Refused)
	}
	if share := float64(counts[4].Refused) / float64(counts[4].Asked); share < .95 {
		t.Errorf("%.3f of tier 4 refused, want nearly all", share)
	}
	if share := float64(counts[3].Refused) / float64(counts[3].Asked); share < .25 || share > .45 {
		t.Errorf("%.3f of tier 3 refused, want a third", share)
	}
}

func TestA11_AllAtOnce(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 4, Now: clk.now, Tuner: new(Tuner)})
	stop := make(chan struct{})
	var all sync.WaitGroup
	var admitted, done atomic.Int64
	for g := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				ticket, refusal := c.Admit(Of(g%Tiers, i%Cohorts))
				if refusal != nil {
					continue
				}
				admitted.Add(1)
				if ticket.Wait(context.Background()) == nil {
					ticket.Done(time.Millisecond)
				}
				done.Add(1)
			}
		})
	}
	for done.Load() < 10_000 {
		c.Calibrate() // the clock stands still: nothing is divided by nothing
	}
	close(stop)
	all.Wait()
	if c.mu.busy != 0 || c.mu.waiting != 0 || admitted.Load() != done.Load() {
		t.Errorf("%d slots in use, %d waiting, %d of %d ended", c.mu.busy, c.mu.waiting, done.Load(), admitted.Load())
	}
}

func TestA12_WhoWaitsTooLongIsRefused(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(Config{Limit: 1, Now: time.Now})
		first, _ := c.Admit(0)
		if r := first.Wait(t.Context()); r != nil {
			t.Fatal(r)
		}
		second, _ := c.Admit(0)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		began := time.Now()
		if r := second.Wait(ctx); r == nil || r.Reason != Line {
			t.Errorf("the second got %v", r)
		}
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("it waited %v", waited)
		}
		first.Done(0)
		third, _ := c.Admit(0)
		if r := third.Wait(t.Context()); r != nil {
			t.Errorf("the slot came back, and the third got %v", r)
		}
	})
}

func TestWhoIsCompleteIsNotTurnedAway(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(Config{Limit: 1, Line: 2, Now: time.Now})
		ticket, _ := c.Admit(3)
		if !ticket.Enter() {
			t.Fatal("no slot at the start")
		}
		var order []Priority
		wait := func(p Priority) {
			w, _ := c.Admit(p)
			go func() {
				if w.Wait(t.Context()) == nil {
					order = append(order, p)
					w.Done(0)
				}
			}()
			synctest.Wait()
		}
		wait(5)
		if r := ticket.Full(); r != nil {
			t.Errorf("one of two places is taken: %v", r)
		}
		wait(4)
		if r := ticket.Full(); r != nil {
			t.Errorf("both places are taken by others that are less important: %v", r)
		}
		late, _ := c.Admit(6)
		if r := late.Full(); r == nil || r.Reason != Line {
			t.Errorf("the least important got %v", r)
		}
		if got, place := late.Ask(nil); got || place != nil {
			t.Error("there is a third place")
		}
		if got, place := ticket.Ask(nil); got || place != nil {
			t.Error("it took the place of one who is complete")
		}
		wait(6)
		ticket.Done(0)
		synctest.Wait()
		if !slices.Equal(order, []Priority{4, 5, 6}) {
			t.Errorf("served %v", order)
		}
	})
}

// TestWhoIsCompleteDoesNotStarve has more important ones come as fast as there are slots. Who is complete
// and unimportant is served after two seconds, and costs the others one slot in four.
func TestWhoIsCompleteDoesNotStarve(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		c := New(Config{Limit: 1, Now: time.Now})
		began, late := time.Now(), 0
		var last time.Duration
		wait := func(p Priority, served func()) {
			w, _ := c.Admit(p)
			go func() {
				if w.Wait(t.Context()) == nil {
					served()
					time.Sleep(10 * time.Millisecond)
					w.Done(0)
				}
			}()
			synctest.Wait()
		}
		for range 3 {
			wait(0, func() {})
		}
		for range 10 {
			wait(600, func() { late++; last = time.Since(began) })
		}
		important := 0
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			wait(0, func() { important++ })
		}
		time.Sleep(time.Second)
		synctest.Wait() // orders what the goroutines wrote before what follows
		if late != 10 || last < overdue+10*ageShare*8*time.Millisecond || last > overdue+10*ageShare*11*time.Millisecond {
			t.Errorf("%d of 10 were served, the last after %v", late, last)
		}
		if important < 480 {
			t.Errorf("%d of 500 more important ones were served", important)
		}
	})
}

func TestTheLineIsOrderedAndBounded(t *testing.T) {
	c := New(Config{Limit: 1, Now: newClock().now})
	busy, _ := c.Admit(0)
	if got, _ := busy.Ask(nil); !got {
		t.Fatal("no slot at the start")
	}
	var served, lost []Priority
	ask := func(p Priority) bool {
		ticket, _ := c.Admit(p)
		_, place := ticket.Ask(func(got bool) {
			if got {
				served = append(served, p)
			} else {
				lost = append(lost, p)
			}
		})
		return place != nil
	}
	for _, p := range []Priority{300, 500, 300} {
		if !ask(p) {
			t.Fatalf("no place for %d", p)
		}
	}
	if ask(500) {
		t.Error("a fourth one got a place, though three are the most and none is less important")
	}
	if !ask(100) || len(lost) != 1 || lost[0] != 500 {
		t.Errorf("a more important one displaced %v, want 500", lost)
	}
	for range 3 {
		busy.Done(0)
	}
	if len(served) != 3 || served[0] != 100 || served[1] != 300 || served[2] != 300 {
		t.Errorf("served in the order %v", served)
	}
}

// TestTenantsTakeTurnsInLine has a tenant with many in line: another one's are served in turns with them, each
// tenant's in order, and the line is full for the one that has more than its part of it.
func TestTenantsTakeTurnsInLine(t *testing.T) {
	c := New(Config{Limit: 1, Line: 6, Now: newClock().now})
	busy, _ := c.Admit(0)
	busy.Enter()
	served := ""
	ask := func(name string) *Place {
		ticket, _ := c.Admit(300)
		_, place := ticket.Of(name[:1]).Ask(func(got bool) {
			if served += name + " "; !got {
				served += "lost "
			}
		})
		return place
	}
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		ask(name)
	}
	ask("b1").Leave() // the tenant keeps its turn
	for _, name := range []string{"b2", "b3"} {
		ask(name)
	}
	many, _ := c.Admit(300)
	if many.Of("a").Full() == nil || many.Of("b").Full() != nil || many.Of("c").Full() != nil {
		t.Error("want the line full for a alone")
	}
	if ask("a5") != nil || ask("c1") == nil {
		t.Error("want a place for c, and none for a")
	}
	for range 6 {
		busy.Done(0)
	}
	if want := "a4 lost a1 b2 c1 a2 b3 a3 "; served != want {
		t.Errorf("served %swant %s", served, want)
	}
	if l := &c.mu.lines[300]; l.waiting != 0 || l.tenants != 0 || len(l.turns) != len(l.of) {
		t.Errorf("left: %+v", l)
	}
}

// TestA16_WhoIsAheadDoesNotWait has all slots taken: a submission that is ahead of the others gets one more, up to a
// quarter of them, and the line has none until these are given back.
func TestA16_WhoIsAheadDoesNotWait(t *testing.T) {
	c := New(Config{Limit: 8, Now: newClock().now})
	ticket, _ := c.Admit(300)
	for range 8 {
		if !ticket.Enter() {
			t.Fatal("no slot at the start")
		}
	}
	served := 0
	ticket.Ask(func(bool) { served++ })
	for i, want := range []bool{true, true, false} {
		if got := ticket.Ahead().Enter(); got != want {
			t.Errorf("of those ahead number %d got a slot: %v, want %v", i, got, want)
		}
	}
	if ticket.Enter() {
		t.Error("one of the others got a slot, too")
	}
	for i, want := range []int{0, 0, 1} {
		if ticket.Done(0); served != want {
			t.Errorf("%d were given back, and %d of the line served", i+1, served)
		}
	}
}

func TestPressuresPushTheSameThreshold(t *testing.T) {
	clk, used := newClock(), .5
	c := New(Config{Limit: 1, Now: clk.now, Law: None{}, Pressures: []Pressure{
		{Name: "disk", Read: func() float64 { return used }, From: .80, To: .95},
	}})
	refused := func() (n int, why string) {
		for range 40 {
			clk.advance(Period)
			c.Calibrate()
			for range 100 {
				if _, r := c.Admit(Of(3, 0)); r != nil {
					n, why = n+1, r.Reason
				}
			}
		}
		return n, why
	}
	if n, _ := refused(); n != 0 {
		t.Errorf("%d refused with half the disk free", n)
	}
	used = .875
	if n, why := refused(); n < 1950 || n > 2050 || why != "disk" {
		t.Errorf("%d of 4,000 refused (%s) half way between the bounds", n, why)
	}
	used = 1
	if n, _ := refused(); n < 3900 || n == 4000 {
		t.Errorf("%d of 4,000 refused beyond the bound; some must pass", n)
	}
	used = .2
	if n, _ := refused(); n != 0 {
		t.Errorf("%d refused when the disk is free again", n)
	}
}

func TestAClockThatJumps(t *testing.T) {
	clk := newClock()
	c := New(Config{Limit: 1, Now: clk.now, Tuner: new(Tuner)})
	load := func(periods int) (refused int) {
		for range periods {
			var held []Ticket
			for i := range 100 {
				ticket, r := c.Admit(Of(3, i))
				if r != nil {
					refused++
				} else if got, place := ticket.Ask(func(bool) {}); got {
					held = append(held, ticket)
				} else if place != nil {
					place.Leave()
				}
			}
			clk.advance(Period)
			for _, ticket := range held {
				ticket.Done(0)
			}
			c.Calibrate()
		}
		return refused
	}
	load(20)
	clk.advance(-time.Hour)
	c.Calibrate()
	before := c.Status().Share
	load(1)
	if after := c.Status().Share; math.Abs(after-before) > .3 {
		t.Errorf("set back by an hour, the share goes from %.2f to %.2f", before, after)
	}
	clk.advance(24 * time.Hour)
	c.Calibrate()
	if s := c.Status().Share; math.IsNaN(s) || s < 0 || s > most {
		t.Errorf("ahead by a day, the share is %v", s)
	}
}

func TestKindsTakeTurns(t *testing.T) {
	s := NewSorter([32]byte{1})
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	if s.Turn("acme", "", now) != s.Turn("acme", "", now.Add(59*time.Minute)) {
		t.Error("the turn changed within the hour")
	}
	first := 0
	for hour := range time.Duration(400) {
		at := now.Add(hour * time.Hour)
		a, b := s.Turn("acme", "news", at), s.Turn("acme", "receipts", at)
		if a < newcomers || b < newcomers {
			t.Fatal("a new one comes before those that come back")
		}
		if a < b {
			first++
		}
	}
	if first < 150 || first > 250 {
		t.Errorf("one of two kinds was the first in %d of 400 hours", first)
	}
	if s.Turn("ab", "c", now) == s.Turn("a", "bc", now) && s.Turn("abc", "", now) == s.Turn("a", "bc", now) {
		t.Error("tenant and kind run together")
	}
}

// TestWhatComesToNothingDoesNotBendTheLaw has three in four clients give up before they send any
// content: what is left fits, and nothing may be refused.
func TestWhatComesToNothingDoesNotBendTheLaw(t *testing.T) {
	now := newClock()
	c := New(Config{Now: now.now, Limit: 1})
	for period := range 200 {
		for i := range 400 { // 100 of which are served, by slots that could serve 200
			ticket, refused := c.Admit(Of(3, i%Cohorts))
			switch {
			case refused != nil:
				if period > 20 {
					t.Fatalf("refused in period %d with half of the slots free", period)
				}
			case i%4 > 0:
				ticket.Drop()
			default:
				if ticket.Wait(t.Context()) != nil {
					t.Fatal("no slot")
				}
				now.advance(Period / 100 / 2)
				ticket.Done(time.Millisecond)
				now.advance(Period / 100 / 2)
			}
		}
		c.Calibrate()
	}
}

// A slot that comes as its client gives up is the client's or the next one's, and never lost.
func TestASlotThatComesTooLateIsNotLost(t *testing.T) {
	c := New(Config{Limit: 1, Now: time.Now})
	for i := range 2000 {
		holder, _ := c.Admit(0)
		if r := holder.Wait(t.Context()); r != nil {
			t.Fatalf("round %d: the slot of an earlier round is lost: %v", i, r)
		}
		ctx, giveUp := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			late, _ := c.Admit(0)
			if late.Wait(ctx) == nil {
				late.Done(0)
			}
		})
		for c.waiting() == 0 {
			runtime.Gosched()
		}
		giveUp()
		holder.Done(0) // before the waiter runs
		all.Wait()
		if c.mu.busy != 0 || c.mu.waiting != 0 {
			t.Fatalf("round %d: %d slots in use, %d waiting", i, c.mu.busy, c.mu.waiting)
		}
	}
}

func (c *Controller) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.waiting
}

// TestA18_ALineWhereCPULacksIsTheCapacity had its slots mostly free before, which promises twenty times of what CPU
// allows.
func TestA18_ALineWhereCPULacksIsTheCapacity(t *testing.T) {
	law := &Utilisation{Line: 250 * time.Millisecond}
	for range 20 {
		if got := law.Share(Load{Offered: 100, Done: 100, Busy: 1, Limit: 20}); got != 0 {
			t.Fatalf("%.2f refused though most slots are free", got)
		}
	}
	var got float64
	for range 8 {
		got = law.Share(Load{Offered: 600, Done: 100, Busy: 20, Limit: 20, Waiting: 300, Starved: true})
	}
	if got < .8 || got > .9 { // five in six do not fit; a quarter of what fits drains the line
		t.Errorf("after 4 s %.2f are refused", got)
	}
	for range 120 {
		got = law.Share(Load{Offered: 120, Done: 120, Busy: 1, Limit: 20, Starved: true})
	}
	if burst := law.Share(Load{Offered: 1000, Done: 500, Busy: 10, Limit: 20, Starved: true}); got != 0 || burst != 0 {
		t.Errorf("%.2f refused without a line, and %.2f of a burst", got, burst)
	}
}
