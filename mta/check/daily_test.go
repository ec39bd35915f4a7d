package check

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/dnscheck"
)

// A day in which a record is gone, not answered for, and back: the relay checks daily, hourly while
// something fails, and the alarm's reason begins and ends with it.
func TestDailyChecks(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		var asked atomic.Int64
		var enabled atomic.Bool
		var result atomic.Value
		enabled.Store(true)
		result.Store(dnscheck.OK)
		d := &Daily{
			enabled: enabled.Load,
			check: func(context.Context) ([]dnscheck.Finding, error) {
				asked.Add(1)
				result := result.Load().(dnscheck.Result)
				return []dnscheck.Finding{{Check: dnscheck.CheckSPF, Domain: "acme.example", Source: "out1", Result: result, Text: "SPF is " + string(result)},
					{Check: dnscheck.CheckMX, Domain: "acme.example", Result: dnscheck.Unknown}}, nil
			},
			log: slog.New(slog.DiscardHandler),
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go d.Run(ctx)
		after := func(wait time.Duration, checks int64, alarm string) {
			t.Helper()
			time.Sleep(wait)
			synctest.Wait()
			if got := d.Trouble(); asked.Load() != checks || !strings.HasPrefix(got, alarm) || (alarm == "") != (got == "") {
				t.Fatalf("after %s: %d checks, %q, want %d, %q", time.Since(start), asked.Load(), got, checks, alarm)
			}
		}
		after(9*time.Minute, 0, "")
		after(2*time.Minute, 1, "")
		after(23*time.Hour, 1, "")
		result.Store(dnscheck.Failed)
		after(time.Hour, 2, "SPF is failed; 'mta check --dns'")
		result.Store(dnscheck.Unknown) // the name servers are silent: nothing is mended
		after(time.Hour, 3, "SPF is failed")
		if found, at := d.Last(); len(found) != 2 || at.IsZero() {
			t.Errorf("%v of %v", found, at)
		}
		result.Store(dnscheck.OK)
		after(time.Hour, 4, "")
		after(23*time.Hour, 4, "")
		after(time.Hour, 5, "")
		result.Store(dnscheck.Failed)
		after(24*time.Hour, 6, "SPF is failed")
		enabled.Store(false) // by a reload
		after(time.Hour, 6, "")
		if found, at := d.Last(); len(found) != 0 || !at.IsZero() {
			t.Errorf("findings of checks that are off: %v of %v", found, at)
		}
	})
}
