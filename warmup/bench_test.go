package warmup_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"mta/warmup"
	"mta/warmup/boltstore"
	"mta/warmup/memstore"
)

// BenchmarkLookAndBegin is the hot path with a lease at hand: a source is chosen, and charged at MAIL.
func BenchmarkLookAndBegin(b *testing.B) {
	var now time.Time = time.Unix(0, 0)
	st := memstore.New(func() warmup.Instant { return warmup.Instant(now.UnixMilli()) })
	c := warmup.New(warmup.Config{Node: "a", Store: st, Now: func() time.Time { return now }})
	p := warmup.DefaultPlan()
	p.Stages = []warmup.Stage{{Caps: warmup.Caps{Hourly: 1 << 39, Daily: 1 << 40}}}
	if err := c.Assign(map[string]*warmup.Plan{"ip": &p}); err != nil {
		b.Fatal(err)
	}
	c.Step(context.Background())
	now = now.Add(time.Minute)
	c.Look("ip", warmup.Ask{Provider: "google", Recipients: 1 << 30})
	c.Step(context.Background())
	granted := 0
	b.ReportAllocs()
	for b.Loop() {
		if n, _ := c.Look("ip", warmup.Ask{Provider: "google", Recipients: 1}); n > 0 && c.Begin("ip", "google", 1) {
			granted++
		}
	}
	if granted == 0 {
		b.Fatal("nothing was granted")
	}
}

// BenchmarkStep5000 computes 5,000 IPs once, as is due each second for those with traffic. The
// share is that of one core when this is done once a second.
func BenchmarkStep5000(b *testing.B) {
	for _, kind := range []string{"memory", "bolt", "bolt-all-granted", "bolt-idle"} {
		b.Run(kind, func(b *testing.B) {
			now := time.Unix(1_700_000_000, 0)
			var st warmup.Store = memstore.New(func() warmup.Instant { return warmup.Instant(now.UnixMilli()) })
			if kind != "memory" {
				s, err := boltstore.Open(filepath.Join(b.TempDir(), "warmup.db"), func() time.Time { return now })
				if err != nil {
					b.Fatal(err)
				}
				defer s.Close()
				st = s
			}
			step5000(b, st, &now, kind)
		})
	}
}

func step5000(b *testing.B, st warmup.Store, now *time.Time, kind string) {
	const ips = 5000
	c := warmup.New(warmup.Config{Node: "a", Store: st, Now: func() time.Time { return *now }, Rand: rand.New(rand.NewPCG(1, 2))})
	p, err := warmup.Preset("standard")
	if err != nil {
		b.Fatal(err)
	}
	if kind == "bolt-all-granted" { // four a second for each IP, so each has a write each second
		p.StartStage = len(p.Stages)
	}
	plans, names := make(map[string]*warmup.Plan, ips), make([]string, ips)
	for i := range names {
		names[i] = fmt.Sprintf("10.1.%d.%d", i/250, i%250)
		plans[names[i]] = p
	}
	if err := c.Assign(plans); err != nil {
		b.Fatal(err)
	}
	providers := []string{"google", "microsoft", "yahoo", "other"}
	traffic := func(round int) {
		for i, name := range names {
			send1(c, name, providers[(i+round)%4])
		}
		*now = now.Add(time.Second)
		c.Step(context.Background())
	}
	for round := range 8 {
		traffic(round)
	}
	b.ReportAllocs()
	b.ResetTimer()
	var spent time.Duration
	for round := range b.N {
		b.StopTimer()
		if kind != "bolt-idle" {
			for i, name := range names {
				send1(c, name, providers[(i+round)%4])
			}
		}
		*now = now.Add(time.Second)
		before := cpu(b)
		b.StartTimer()
		c.Step(context.Background())
		spent += cpu(b) - before
	}
	b.ReportMetric(100*spent.Seconds()/float64(b.N), "%core")
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

func send1(c *warmup.Controller, ip, provider string) {
	if _, v := c.Look(ip, warmup.Ask{Provider: provider, Recipients: 1}); v == warmup.Granted {
		c.Begin(ip, provider, 1)
	}
}
