package dispatch

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// BenchmarkChooseSource is what a message costs more when its pool has a warming source: one that takes
// it, one of 500, one whose hour is full, 500 such that hold it, and a pool without any, to compare.
func BenchmarkChooseSource(b *testing.B) {
	for name, c := range map[string]struct {
		tenant   string
		hourly   string
		more     int // sources
		overflow string
	}{
		"warming": {"acme", "100000000000", 0, "shared"}, "warming-500": {"acme", "100000000000", 499, "shared"},
		"diverted": {"acme", "1", 0, "shared"}, "held-500": {"acme", "1", 499, "hold"}, "shared": {"other", "1", 0, "shared"},
	} {
		b.Run(name, func(b *testing.B) {
			var sources, dedicated strings.Builder
			for i := range c.more {
				fmt.Fprintf(&sources, "source \"more-%d\" { address = \"198.51.%d.%d\" }\n", i, 100+i/250, 1+i%250)
				fmt.Fprintf(&dedicated, "dedicated \"more-%d\" { plan = \"p\" }\n", i)
			}
			cfg, err := config.Parse([]byte(`
				source "pool-1" { address = "192.0.2.10" }
				source "acme-1" { address = "192.0.2.20" }
				`+sources.String()+`
				plan "p" {
					stage {
						hourly = `+c.hourly+`
						daily  = `+c.hourly+`
					}
					health { min_sample = 0 }
				}
				pool "acme" {
					shared   = ["pool-1"]
					overflow = "`+c.overflow+`"
					dedicated "acme-1" { plan = "p" }
					`+dedicated.String()+`
				}
				pool "plain" { shared = ["pool-1"] }
				tenant "acme" { pool = "acme" }
				tenant "other" { pool = "plain" }
				provider "big" { mx = ["*.big.example"] }`), "test.conf", nil)
			if err != nil {
				b.Fatal(err)
			}
			now := start
			clock := func() time.Time { return now }
			pol := wiring.New(cfg)
			ctl := warmup.New(warmup.Config{Node: "a", Now: clock, Store: warmup.NewMemory(func() warmup.Instant { return warmup.Instant(now.UnixMilli()) })})
			if err := ctl.Assign(pol.Plans()); err != nil {
				b.Fatal(err)
			}
			s := &splitter{warm: ctl, missing: func(string) bool { return false }, now: clock, suspended: func(string, string) bool { return false }, waiting: func(parking.Key) int { return 0 }}
			rt := to("192.0.2.99")
			rt.Provider = "big"
			m := &envelope.Message{Tenant: c.tenant, Received: now}
			ctl.Step(context.Background())
			now = now.Add(10 * time.Minute)
			for i := range 1 + c.more {
				m.ID = envelope.ID(i)
				s.choose(pol, mail{m, rt, "", "", 50_000_000 / (1 + c.more), false, time.Hour})
			}
			for range 5 {
				ctl.Step(context.Background())
			}
			for c.overflow == "hold" && s.choose(pol, mail{m, rt, "", "", 1, false, time.Hour}).source != "" { // what was saved up
				m.ID++
			}
			b.ReportAllocs()
			for b.Loop() {
				m.ID++
				x := s.choose(pol, mail{m, rt, "", "", 1, false, time.Hour})
				if held := x.source == ""; held != (c.overflow == "hold") || !held && (x.key == "") == strings.HasPrefix(name, "warming") {
					b.Fatalf("chose %+v", x)
				}
			}
		})
	}
}
