package warming

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/wiring"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
	"example.org/mta/warmup"
)

const complaintsWarm = `
	source "shared" { address = "192.0.2.10" }
	source "new" { address = "192.0.2.20" }
	plan "p" {
		start_stage = 2
		stage {
			hourly = 500
			daily = 2000
		}
		stage {
			hourly = 1000
			daily = 5000
		}
		stage {
			hourly = 2000
			daily = 10000
		}
	}
	provider "big" { mx = ["*.big.example"] }
	tenant "acme" { pool = "acme" }
	pool "acme" {
		shared = ["shared"]
		dedicated "new" { plan = "p" }
	}`

// Complaints about the mail of a warming source, from a feedback loop, act on its warm-up: the provider gets half as
// much within the hour, and the stage goes back at the end of the day. Repetitions, and complaints about other sources'
// mail, count for nothing; each address is suppressed for its tenant.
func TestComplaintsActOnAWarmUp(t *testing.T) {
	for name, c := range map[string]struct {
		messages int // complained about
		source   string
		pace     float64
		stage    int
	}{
		"many":                 {30, "new", .5, 1},
		"one, again and again": {1, "new", 1, 2},
		"of another source":    {30, "shared", 1, 2},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				pol := policyOf(t, complaintsWarm)
				w := &Warming{copies: &secondCopy{}, mail: none{}, c: Config{
					Policy: func() *wiring.Policy { return pol }, Records: func(*accounting.Record) {},
					Count: func(string, string) {}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
				}}
				w.ctl = warmup.New(warmup.Config{Node: "test", OnEvent: w.report, Store: warmup.NewMemory(func() warmup.Instant { return warmup.Instant(time.Now().UnixMilli()) })})
				if err := w.Assign(pol); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				go w.ctl.Run(ctx)
				defer stop()
				key, _ := pol.WarmupKeyOf("new")
				feeder, list := newFeeder(t, pol, w)
				time.Sleep(time.Minute)
				for range 1500 {
					w.ctl.Report(key, "big", warmup.Delivered)
				}
				time.Sleep(time.Minute)
				for i := range 30 {
					e := suppression.Event{Kind: suppression.Complaint, Tenant: "acme", Address: envelope.Address(fmt.Sprintf("r%d@x.example", i%c.messages)), Provider: "big",
						Message: envelope.ID(1 + i%c.messages), Source: c.source, Sent: time.Now()}
					feeder.Report(e)
					feeder.Report(e)
					if kept, found := list.Match("acme", e.Address); !found || kept.Source != suppression.Complaint {
						t.Fatalf("%s: %+v", e.Address, kept)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				s, _ := w.ctl.Status(key)
				if p := s.Of("big"); p.Pace != c.pace {
					t.Errorf("the pace is %v after %d complaints, want %v", p.Pace, p.Complaints, c.pace)
				}
				time.Sleep(25 * time.Hour)
				synctest.Wait()
				if s, _ := w.ctl.Status(key); s.Stage != c.stage {
					t.Errorf("stage %d on the next day, want %d", s.Stage, c.stage)
				}
			})
		})
	}
}

// newFeeder makes a feeder of a list of its own.
func newFeeder(t *testing.T, pol *wiring.Policy, w *Warming) (*suppression.Feeder, *suppression.List) {
	store, err := boltstore.Open(t.TempDir()+"/s.db", nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var lists [2]*suppression.List
	for i, s := range []suppression.Store{store, store.Pending()} {
		if lists[i], err = suppression.Open(t.Context(), suppression.Config{Store: s}); err != nil {
			t.Fatal(err)
		}
	}
	f, err := suppression.NewFeeder(t.Context(), suppression.FeederConfig{List: lists[0], Pending: lists[1], Counters: store.Counters(), Providers: store.Providers(),
		Complained: w.Complained, Settings: func() *suppression.FeedSettings { return pol.Feed }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.Close()
		lists[0].Close()
	})
	return f, lists[0]
}
