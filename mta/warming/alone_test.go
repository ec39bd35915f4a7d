package warming

import (
	"log/slog"
	"testing"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
)

// warmupAlone is the warm-up without mail, on a clock of its own, for a source 192.0.2.20.
type warmupAlone struct {
	*Warming
	t     *testing.T
	clock time.Time
}

const acmeWarms = `
	source "pool-1" { address = "192.0.2.10" }
	source "acme-1" { address = "192.0.2.20" }
	plan "small" {
		stage {
			hourly = 10
			daily = 15
		}
		health { min_sample = 0 }
	}
	provider "big" { mx = ["*.big.example"] }
	tenant "acme" { pool = "acme" }
	pool "acme" {
		shared = ["pool-1"]
		dedicated "acme-1" { plan = "small" }
	}`

func newWarmupAlone(t *testing.T, text string) *warmupAlone {
	w := &warmupAlone{t: t, clock: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
	now := func() time.Time { return w.clock }
	w.Warming = &Warming{copies: &secondCopy{}, mail: none{}, c: Config{
		Records: func(*accounting.Record) {}, Count: func(string, string) {}, Now: now, Log: slog.New(slog.DiscardHandler),
	}}
	w.use(text)
	w.ctl = warmup.New(warmup.Config{
		Node: "test", Now: now, Beside: w.beside, OnEvent: func(e warmup.Event) { w.report(e) },
		Store: warmup.NewMemory(func() warmup.Instant { return warmup.Instant(w.clock.UnixMilli()) }),
	})
	if err := w.Assign(w.c.Policy()); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *warmupAlone) use(text string) {
	pol := policyOf(w.t, text)
	w.c.Policy = func() *wiring.Policy { return pol }
}

func policyOf(t *testing.T, text string) *wiring.Policy {
	t.Helper()
	cfg, err := config.Parse([]byte(text), "test.conf", nil)
	if err != nil {
		t.Fatal(err)
	}
	return wiring.New(cfg)
}

// pass lets time pass, a second at a time.
func (w *warmupAlone) pass(d time.Duration) {
	for end := w.clock.Add(d); w.clock.Before(end); {
		w.clock = w.clock.Add(time.Second)
		for range 20 {
			w.ctl.Step(w.t.Context())
			if !w.ctl.Asking() {
				break
			}
		}
	}
}
