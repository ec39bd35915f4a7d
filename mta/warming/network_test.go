package warming

import (
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/mta/accounting"
	"example.org/mta/warmup"
)

// TestABlockPausesTheNetwork: where a provider blocks one source, the others of its pool in the /24 pause, too,
// and say why; those of other networks and other pools go on.
func TestABlockPausesTheNetwork(t *testing.T) {
	w := newWarmupAlone(t, `
		source "a" { address = "192.0.2.20" }
		source "b" { address = "192.0.2.30" }
		source "c" { address = "198.51.100.20" }
		source "d" { address = "192.0.2.40" }
		tenant "acme" { pool = "acme" }
		pool "acme" {
			dedicated "a" { plan = "standard" }
			dedicated "b" { plan = "standard" }
			dedicated "c" { plan = "standard" }
		}
		pool "default" {
			dedicated "d" { plan = "standard" }
		}`)
	var events []string
	w.c.Records = func(r *accounting.Record) { events = append(events, r.EgressSource+" "+r.Response.Text) }
	w.pass(time.Minute)
	for range 20 {
		w.ctl.Report("192.0.2.20", "big", warmup.PolicyRefusal)
	}
	w.pass(10 * time.Second)
	state := func(ip string) string {
		s, _ := w.ctl.Status(ip)
		if p := s.Of("big"); p != nil {
			return p.State + p.Network
		}
		return "normal"
	}
	for ip, want := range map[string]string{"192.0.2.20": "paused", "192.0.2.30": "paused192.0.2.0/24", "198.51.100.20": "normal", "192.0.2.40": "normal"} {
		if got := state(ip); got != want {
			t.Errorf("%s is %q, want %q", ip, got, want)
		}
	}
	said := func(source, words string) bool {
		return slices.ContainsFunc(events, func(e string) bool {
			return strings.HasPrefix(e, source+" pauses mail to big until ") && strings.HasSuffix(e, words)
		})
	}
	if !said("a", "; so do the other sources of its pool in 192.0.2.0/24") || !said("b", "it blocks another source of the pool in 192.0.2.0/24") {
		t.Errorf("events:\n%s", strings.Join(events, "\n"))
	}
	if alarm := w.Health(); !strings.Contains(alarm, "in 192.0.2.0/24") {
		t.Errorf("alarm: %s", alarm)
	}
	w.pass(20 * time.Minute)
	if got := state("192.0.2.30"); got != "probing" {
		t.Errorf("after the pause 192.0.2.30 is %q", got)
	}
}
