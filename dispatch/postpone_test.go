package dispatch

import (
	"log/slog"
	"testing"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
)

func TestMailWithoutASource(t *testing.T) {
	s := newStage(t)
	s.split.missing = func(string) bool { return true }
	s.handle(s.lease(1, 0, "a@x.example"))
	s.want(t, "event TransientFailure 0",
		`defer 1 [0] +7m30s untried route: 451 4.3.5 this machine has the address of no source of pool "default": default mx.x.example`)
	s.handle(s.lease(2, 6*24*time.Hour, "b@x.example"))
	s.want(t, "event Expiration 0", "settle 2 [0] expired")
	s.stopping.Store(true)
	s.handle(s.lease(3, 0, "c@x.example"))
	s.want(t, "return 3 [0]")
	if len(s.jobs) > 0 {
		t.Errorf("delivery got %d jobs", len(s.jobs))
	}
}

// A pause that ends while mail is parked for it is not missed.
func TestTheEndOfAPauseIsNotMissed(t *testing.T) {
	s := newStage(t)
	s.Rules = noRules(t)
	l := s.lease(1, 0, "a@x.example")
	key := rules.Key(api.Selection{All: true})
	s.parkSuspended(l.Message, l.Recipients, key, start.Add(time.Hour))
	if got, ok := s.ended.next(); !ok || got != key {
		t.Errorf("taken up after parking: %q", got)
	}
}

func noRules(t *testing.T) *rules.Rules {
	policy := func() *wiring.Policy { return new(wiring.Policy) }
	p, err := rules.Read(t.TempDir(), func() time.Time { return start }, func() int { return rules.Format.Writes }, policy, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
