package warmup_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// BenchmarkLookAndBegin is the hot path with a lease at hand: a source is chosen, and charged at MAIL.
func BenchmarkLookAndBegin(b *testing.B) {
	var now time.Time = time.Unix(0, 0)
	st := warmup.NewMemory(func() warmup.Instant { return warmup.Instant(now.UnixMilli()) })
	c := warmup.New(warmup.Config{Node: "a", Store: st, Now: func() time.Time { return now }})
	p := warmup.DefaultPlan()
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: 1 << 39, Daily: 1 << 40}}}
	if err := c.Assign(map[string]*warmup.Plan{"ip": &p}); err != nil {
		b.Fatal(err)
	}
	c.Step(context.Background())
	now = now.Add(time.Minute)
	c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1 << 30})
	c.Step(context.Background())
	granted := 0
	b.ReportAllocs()
	for b.Loop() {
		if n, _ := c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1}); n > 0 && c.Begin("ip", "google", 1) {
			granted++
		}
	}
	if granted == 0 {
		b.Fatal("nothing was granted")
	}
}

// BenchmarkStep5000 runs 5,000 IPs for a second of their time, as the relay does: each has a message, which is
// charged, or waits to be called and is charged then, and has its outcome reported. The share of a core is that of
// the steps, with the calls.
func BenchmarkStep5000(b *testing.B) {
	for _, kind := range []string{"memory", "bolt", "bolt-all-granted", "bolt-idle"} {
		b.Run(kind, func(b *testing.B) {
			now := time.Unix(1_700_000_000, 0)
			var st warmup.Store = warmup.NewMemory(func() warmup.Instant { return warmup.Instant(now.UnixMilli()) })
			if kind != "memory" {
				s, err := warmup.OpenFile(filepath.Join(b.TempDir(), "warmup.db"), func() time.Time { return now })
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				st = s
			}
			r := newRelay5000(b, st, &now, kind == "bolt-all-granted")
			for round := range 60 {
				r.second(round)
			}
			if r.granted, r.spent = 0, 0; kind == "bolt-idle" {
				clear(r.waiting)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for round := range b.N {
				b.StopTimer()
				if kind != "bolt-idle" {
					r.mail(round)
				}
				now = now.Add(time.Second)
				b.StartTimer()
				r.steps()
			}
			b.ReportMetric(100*r.spent.Seconds()/float64(b.N), "%core")
			b.ReportMetric(float64(r.granted)/float64(b.N), "granted/op")
		})
	}
}

// relay5000 is what stands around a controller in the relay: mail that waits, and is called.
type relay5000 struct {
	b       *testing.B
	c       *warmup.Controller
	now     *time.Time
	names   []string
	waiting map[[2]string]int64
	granted int
	spent   time.Duration
}

func newRelay5000(b *testing.B, st warmup.Store, now *time.Time, ample bool) *relay5000 {
	r := &relay5000{b: b, now: now, waiting: make(map[[2]string]int64)}
	r.c = warmup.New(warmup.Config{Node: "a", Store: st, Now: func() time.Time { return *now }, Rand: rand.New(rand.NewPCG(1, 2)), OnTokens: r.room,
		Waiting: func(ip, provider string) int64 { return r.waiting[[2]string{ip, provider}] }})
	p, err := warmup.Preset("standard")
	if err != nil {
		b.Fatal(err)
	}
	if ample { // four a second for each IP
		p.StartStage = len(p.Stages)
	}
	plans := make(map[string]*warmup.Plan)
	for i := range 5000 {
		r.names = append(r.names, fmt.Sprintf("10.1.%d.%d", i/250, i%250))
		plans[r.names[i]] = p
	}
	if err := r.c.Assign(plans); err != nil {
		b.Fatal(err)
	}
	return r
}

func (r *relay5000) second(round int) {
	r.mail(round)
	*r.now = r.now.Add(time.Second)
	r.steps()
}

// mail has a message for each IP, each second for another provider.
func (r *relay5000) mail(round int) {
	provider := []string{"google", "microsoft", "yahoo", "other"}[round%4]
	for _, ip := range r.names {
		at := [2]string{ip, provider}
		if r.waiting[at] > 0 || !r.send(ip, provider, false) {
			r.waiting[at]++
		}
	}
}

func (r *relay5000) send(ip, provider string, again bool) bool {
	if n, _ := r.c.Allowance(ip, warmup.Ask{Provider: provider, Recipients: 1, Again: again}); n == 0 || !r.c.Begin(ip, provider, 1) {
		return false
	}
	r.c.Report(ip, provider, warmup.Delivered)
	r.granted++
	return true
}

func (r *relay5000) room(ip, provider string) {
	for at := [2]string{ip, provider}; r.waiting[at] > 0 && r.send(ip, provider, true); {
		r.waiting[at]--
	}
}

// steps does what Run does in a second.
func (r *relay5000) steps() {
	before := cpu(r.b)
	for r.c.Step(context.Background()); r.c.Asking(); {
		r.c.Step(context.Background())
	}
	r.spent += cpu(r.b) - before
}

// cpu is the process's time on all cores, which unlike the clock on the wall knows nothing of
// what else the machine does.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
