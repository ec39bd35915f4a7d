package admit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/submission/intake"
)

// slowDisk stores what comes together with one sync: 2 ms, and 1/rate s for each message.
type slowDisk struct {
	rate float64

	mu      sync.Mutex
	waiting []chan struct{}
	syncing bool
}

func (d *slowDisk) commit() error {
	done := make(chan struct{})
	d.mu.Lock()
	d.waiting = append(d.waiting, done)
	if !d.syncing {
		d.syncing = true
		go d.sync()
	}
	d.mu.Unlock()
	<-done
	return nil
}

func (d *slowDisk) sync() {
	for {
		d.mu.Lock()
		group := d.waiting
		d.waiting = nil
		d.syncing = len(group) > 0
		d.mu.Unlock()
		if len(group) == 0 {
			return
		}
		time.Sleep(2*time.Millisecond + time.Duration(float64(len(group))/d.rate*float64(time.Second)))
		for _, c := range group {
			close(c)
		}
	}
}

// machine is one with nothing to complain of.
func machine() Machine {
	return Machine{
		Now: time.Now, Room: func() int64 { return 1 << 40 }, Memory: func() int64 { return 1 << 20 }, Slots: 4096,
	}
}

func settings() Settings { return Settings{Mode: Utilisation, SyncLatency: 100 * time.Millisecond} }

func running(t *testing.T, s Settings, m Machine) *Gate {
	g := New(s, m)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { g.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return g
}

func request(tenant string, tier uint8) intake.AdmitRequest {
	return intake.AdmitRequest{
		Peer: netip.MustParseAddrPort("192.0.2.1:4000"), Network: netip.MustParsePrefix("192.0.2.1/32"),
		Sender: envelope.Address("a@" + tenant + ".example"), Tenant: tenant, Tier: tier, Size: rand.Int64(),
	}
}

// tally is what became of the messages of a tier.
type tally struct {
	mu            sync.Mutex
	asked, stored int
	took          []time.Duration // of those stored
}

// offer submits messages of tiers at random times, so many a second together, for a while.
func offer(g *Gate, d *slowDisk, rate float64, tiers []uint8, lasts time.Duration) map[uint8]*tally {
	out := make(map[uint8]*tally)
	for _, tier := range tiers {
		out[tier] = new(tally)
	}
	var all sync.WaitGroup
	random := rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		time.Sleep(time.Duration(random.ExpFloat64() / rate * float64(time.Second)))
		tier := tiers[random.IntN(len(tiers))]
		size := random.Int64()
		all.Go(func() {
			began, o := time.Now(), out[tier]
			r := request("t", tier)
			r.Size = size
			a, refused := g.Admit(r)
			if refused == nil {
				refused, _ = a.Commit(context.Background(), tier, d.commit)
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			if o.asked++; refused == nil {
				o.stored++
				o.took = append(o.took, time.Since(began))
			}
		})
	}
	all.Wait()
	return out
}

func (o *tally) share() float64 { return float64(o.stored) / float64(o.asked) }

func (o *tally) p99() time.Duration {
	slices.Sort(o.took)
	return o.took[len(o.took)*99/100]
}

// TestA6_TheMostImportantAreServedInOverload offers three times what the disk takes, from its start on.
func TestA6_TheMostImportantAreServedInOverload(t *testing.T) {
	for rate, longest := range map[float64]time.Duration{
		1300: 250 * time.Millisecond,
		100:  time.Second, // the limit has to fall to an eighth first, while each commit takes long
	} {
		bubble.Test(t, func(t *testing.T) {
			g := running(t, settings(), machine())
			got := offer(g, &slowDisk{rate: rate}, 3*rate, []uint8{1, 3, 3, 4, 4}, time.Minute)
			stored := 0
			for _, o := range got {
				stored += o.stored
			}
			if s := got[1].share(); s < .995 {
				t.Errorf("%.0f/s: %.4f of tier 1 accepted", rate, s)
			}
			if p99 := got[1].p99(); p99 > longest {
				t.Errorf("%.0f/s: p99 of acceptance in tier 1 is %v", rate, p99)
			}
			if got[3].share() < got[4].share() {
				t.Errorf("%.0f/s: %.3f of tier 3 and %.3f of tier 4", rate, got[3].share(), got[4].share())
			}
			if goodput := float64(stored) / 60 / rate; goodput < .8 {
				t.Errorf("%.0f/s: %.3f of what the disk takes was stored", rate, goodput)
			}
			t.Logf("%.0f/s: tiers 1, 3, 4: %.4f %.3f %.3f; p99 %v %v %v, %.2f of capacity, limit %.0f", rate, got[1].share(), got[3].share(), got[4].share(),
				got[1].p99(), got[3].p99(), got[4].p99(), float64(stored)/60/rate, g.Status().Now.Limit)
		})
	}
}

func TestNothingIsRefusedBelowTheCapacity(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		g := running(t, settings(), machine())
		for tier, o := range offer(g, &slowDisk{rate: 1300}, 900, []uint8{1, 3, 4}, time.Minute) {
			if o.stored != o.asked {
				t.Errorf("tier %d: %d of %d refused", tier, o.asked-o.stored, o.asked)
			}
		}
		if s := g.Status(); !s.Since.IsZero() || g.Trouble() != "" {
			t.Errorf("trouble %q", g.Trouble())
		}
	})
}

// TestAGreedyTenantDoesNotCrowdOutTheOthers has one tenant that offers three times what the disk
// takes, and ten that offer a twentieth of that each, all at one tier: whatever the cohorts of the
// hour are, the others are served.
func TestAGreedyTenantDoesNotCrowdOutTheOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const rate = 500.
		g, d := running(t, settings(), machine()), &slowDisk{rate: rate}
		var all sync.WaitGroup
		var greedy, others tally
		random := rand.New(rand.NewPCG(3, 4))
		began := time.Now()
		for time.Since(began) < 90*time.Second {
			time.Sleep(time.Duration(random.ExpFloat64() / (3.5 * rate) * float64(time.Second)))
			tenant, o := "greedy", &greedy
			if n := random.IntN(70); n < 10 {
				tenant, o = string(rune('a'+n)), &others
			}
			measured := time.Since(began) > 20*time.Second
			all.Go(func() {
				a, refused := g.Admit(request(tenant, 3))
				if refused == nil {
					refused, _ = a.Commit(context.Background(), 3, d.commit)
				}
				o.mu.Lock()
				defer o.mu.Unlock()
				if !measured {
					return
				}
				if o.asked++; refused == nil {
					o.stored++
				}
			})
		}
		all.Wait()
		if s := others.share(); s < .99 {
			t.Errorf("%.3f of the others' mail is accepted beside %.3f of the greedy tenant's", s, greedy.share())
		}
		if s := greedy.share(); s < .1 {
			t.Errorf("%.3f of the greedy tenant's mail is accepted", s)
		}
	})
}

// TestWhoComesBackGoesFirst refuses nearly all of a tenant. A message that comes back is before all new ones of its
// tenant, and another one of its sender is not.
func TestWhoComesBackGoesFirst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := machine()
		m.Memory = func() int64 { return 100 }
		s := settings()
		s.MemoryLimit = 100
		g := running(t, s, m)
		time.Sleep(time.Second)
		cohort := func(size int64) int {
			r := request("acme", 4)
			r.Size = size
			if _, refused := g.Admit(r); refused == nil {
				return -1
			}
			return g.account.lastOf(func(*Refusal) bool { return true })[0].Cohort
		}
		sum := 0
		for i := range int64(1000) {
			time.Sleep(50 * time.Millisecond)
			sum += cohort(i)
		}
		others, again := sum/1000, cohort(900)
		if again > others-15 { // one in twenty comes before it at most
			t.Errorf("what comes back after five seconds is in cohort %d, new ones are in %d on average", again, others)
		}
		if c := cohort(5000); c <= again {
			t.Errorf("another one is in cohort %d, and what comes back is in %d", c, again)
		}
	})
}

func TestOff(t *testing.T) {
	g := New(Settings{Mode: Off}, machine())
	if a, refused := g.Admit(request("t", 5)); a != nil || refused != nil {
		t.Errorf("%v %v", a, refused)
	}
}

func TestACommitThatFailsGivesBackItsSlot(t *testing.T) {
	g := New(settings(), Machine{Now: time.Now, Room: machine().Room, Memory: machine().Memory, Slots: 1})
	for range 10 {
		a, refused := g.Admit(request("t", 3))
		if refused != nil {
			t.Fatal("refused")
		}
		broken := errors.New("broken")
		if refused, err := a.Commit(t.Context(), 3, func() error { return broken }); err != broken || refused != nil {
			t.Fatal(err, refused)
		}
	}
}

// BenchmarkAdmit is what asking costs: while nothing is refused, with the commit, and while all is.
func BenchmarkAdmit(b *testing.B) {
	full := machine()
	full.Memory = func() int64 { return 1 }
	for name, s := range map[string]Settings{"taken": settings(), "refused": {Mode: Utilisation, SyncLatency: time.Second, MemoryLimit: 1}} {
		b.Run(name, func(b *testing.B) {
			g := New(s, full)
			r := request("tenant", 4)
			for range 1000 {
				g.Admit(r)
			}
			g.tick()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := r
				for pb.Next() {
					r.Size++
					if a, refused := g.Admit(r); refused == nil {
						a.Commit(b.Context(), 4, func() error { return nil })
					}
				}
			})
		})
	}
}

// TestTheAlarmBeginsAndEnds refuses for a while.
func TestTheAlarmBeginsAndEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var used atomic.Int64
		m := machine()
		m.Memory = used.Load
		s := settings()
		s.MemoryLimit = 100
		g := running(t, s, m)
		offer := func(d time.Duration) {
			for range int(d / (100 * time.Millisecond)) {
				time.Sleep(100 * time.Millisecond)
				g.Admit(request("acme", 4))
			}
		}
		offer(time.Minute)
		used.Store(100)
		offer(4 * time.Second)
		if text := g.Trouble(); text != "" {
			t.Errorf("it begins at once: %s", text)
		}
		offer(6 * time.Second)
		if text := g.Trouble(); !strings.Contains(text, "98 %") || !strings.Contains(text, "memory") {
			t.Errorf("%q", text)
		}
		used.Store(0)
		offer(20 * time.Second)
		if text := g.Trouble(); !strings.Contains(text, "until a moment ago") {
			t.Errorf("%q", text)
		}
		offer(20 * time.Second)
		if text := g.Trouble(); text != "" {
			t.Errorf("it does not end: %s", text)
		}
		st := g.Status()
		if len(st.Refusals) != 1 || st.Refusals[0].Kind != (Kind{"acme", 4, Memory}) || st.Refusals[0].Count != st.Totals[4].Refused || st.Refusals[0].Count < 80 {
			t.Errorf("%+v", st.Refusals)
		}
		sum := int64(0)
		for _, slice := range st.Slices {
			sum += slice.Tiers[4].Refused
		}
		if sum != st.Totals[4].Refused {
			t.Errorf("%d refusals in the last minutes, %d in all", sum, st.Totals[4].Refused)
		}
		if last := g.Last(func(r *Refusal) bool { return r.Tenant == "acme" }); len(last) != int(sum) || last[0].Time.Before(last[1].Time) {
			t.Errorf("%d refusals are kept", len(last))
		}
	})
}

func TestTenantsAreCountedUpToABound(t *testing.T) {
	var a account
	a.init(time.Unix(0, 0))
	for i := range 2 * mostTenants {
		a.refused(Refusal{Time: time.Unix(int64(i), 0), Tenant: fmt.Sprint(i), Reason: "overload"})
	}
	all := a.refusals()
	if len(all) != mostTenants+1 || all[0].Tenant != Others || all[0].Count != mostTenants {
		t.Errorf("%d kinds, the first %+v", len(all), all[0])
	}
	if n := len(a.lastOf(func(*Refusal) bool { return true })); n != mostLast {
		t.Errorf("%d refusals are kept", n)
	}
}

func TestASessionEndsAfterFiveRefusals(t *testing.T) {
	m := machine()
	m.Memory = func() int64 { return 1 }
	s := settings()
	s.MemoryLimit = 1
	g := New(s, m)
	for range 100 {
		g.Admit(request("t", 4))
	}
	now := time.Now()
	g.machine.Now = func() time.Time { return now }
	g.core.Load().controller.Calibrate()
	for n := range 7 {
		r := request("t", 5)
		r.Refused = n
		_, refused := g.Admit(r)
		if refused == nil || refused.Close != (n >= 5) || refused.Disk {
			t.Errorf("after %d refusals: %+v", n, refused)
		}
	}
}

// TestSet keeps the controller where nothing has changed, and those that are being stored end.
func TestSet(t *testing.T) {
	g := New(settings(), machine())
	before := g.core.Load()
	g.Set(settings())
	if g.core.Load() != before {
		t.Error("the same settings begin anew")
	}
	a, _ := g.Admit(request("t", 3))
	g.Set(Settings{Mode: Off})
	if b, refused := g.Admit(request("t", 3)); b != nil || refused != nil {
		t.Error("it is not off")
	}
	if refused, err := a.Commit(t.Context(), 3, func() error { return nil }); err != nil || refused != nil {
		t.Error(err, refused)
	}
	g.Set(Settings{Mode: PID, SyncLatency: time.Second})
	g.tick()
	if s := g.Status(); !s.On || s.Settings.Mode != PID {
		t.Errorf("%+v", s.Settings)
	}
}

// TestASessionEndsAfterFiveRefusalsAtData tries DATA again and again while the line for slots is full.
func TestASessionEndsAfterFiveRefusalsAtData(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		m := machine()
		m.Slots = 1
		g := running(t, settings(), m)
		time.Sleep(time.Second) // the line has a bound now
		hold := make(chan struct{})
		for range 10 {
			a, _ := g.Admit(request("t", 4))
			go a.Commit(t.Context(), 4, func() error { <-hold; return nil })
		}
		synctest.Wait()
		a, refused := g.Admit(request("t", 4))
		if refused != nil {
			t.Fatalf("refused at MAIL: %+v", refused)
		}
		for n := range 7 {
			if refused := a.Full(); refused == nil || refused.Close != (n >= 5) {
				t.Errorf("DATA after %d refusals: %+v", n, refused)
			}
		}
		close(hold)
		synctest.Wait()
	})
}
