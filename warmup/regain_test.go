package warmup_test

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// replaced is a store that can be replaced by an empty one.
type replaced struct{ *warmup.Memory }

func (s *replaced) lose(w *world) {
	s.Memory = warmup.NewMemory(func() warmup.Instant { return warmup.Instant(w.read()) })
}

// TestARecordThatIsLost: where the store has an earlier state than a node knows, or none, each node goes on, and nothing
// more is sent on that day.
func TestARecordThatIsLost(t *testing.T) {
	w := newWorld(t, 100, 1000)
	w.plan.Stages = append(w.plan.Stages, w.plan.Stages[0])
	store := &replaced{w.store}
	var events []string
	with := func(cfg *warmup.Config) {
		cfg.Store = store
		cfg.OnEvent = func(e warmup.Event) { events = append(events, e.String()) }
	}
	a, b := w.node("a", with), w.node("b", with)
	nodes := []*warmup.Controller{a, b}
	day := func() (sent int64) {
		for range 24 * 60 {
			for _, c := range nodes {
				sent += send(c, "google", 1)
			}
			w.pass(time.Minute)
		}
		return sent
	}
	set := make(chan error, 1)
	go func() { set <- a.Do(t.Context(), "ip", warmup.SetStage(2)) }()
	for len(set) == 0 {
		a.Step(t.Context())
	}
	if day() == 0 {
		t.Fatal("nothing was sent")
	}
	sent := send(a, "google", 1) + send(b, "google", 1)
	w.pass(2 * time.Hour)
	a.Step(t.Context())
	b.Step(t.Context())
	events = nil
	store.lose(w)
	for _, c := range []*warmup.Controller{b, a, b} {
		w.pass(6 * time.Second)
		c.Step(t.Context())
	}
	for i, c := range nodes {
		if s := status(t, c); s.Stage != 2 || s.SentDay != 1000 || s.LedgerFailure() != "" {
			t.Errorf("node %d is on stage %d, with %d sent (%s)", i, s.Stage, s.SentDay, s.LedgerFailure())
		}
	}
	if n := strings.Count(strings.Join(events, "\n"), "lost the newest state of ip: it goes on at stage 2"); n != 2 {
		t.Errorf("events: %q", events)
	}
	s := status(t, a)
	for w.now().Before(s.DayEnds.Add(-time.Minute)) {
		sent += send(a, "google", 1) + send(b, "google", 1)
		w.pass(time.Minute)
	}
	if sent > 2 {
		t.Errorf("%d were sent on that day", sent)
	}
	w.pass(time.Hour)
	if day() == 0 {
		t.Error("nothing is sent a day later")
	}

	// A write that fails, or of which nobody knows, changes nothing of this.
	w.pass(6 * time.Second)
	a.Step(t.Context())
	store.lose(w)
	events = nil
	store.Unsure(func() (apply, answer bool) { return false, false })
	w.pass(6 * time.Second)
	a.Step(t.Context())
	store.Unsure(nil)
	if _, _, err := store.Claim(t.Context(), "b", time.Second, []warmup.Key{{Name: "ip"}}, nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.pass(6 * time.Second)
		a.Step(t.Context())
	}
	if s := status(t, a); s.Stage != 2 || s.SentDay != 1000 || len(events) != 1 {
		t.Errorf("on stage %d, with %d sent: %q", s.Stage, s.SentDay, events)
	}
}

// TestAnAddressThatIsLockedForLong is a failure of that address alone.
func TestAnAddressThatIsLockedForLong(t *testing.T) {
	w := newWorld(t, 100, 1000)
	c := w.node("a")
	c.Step(t.Context())
	for range 40 {
		if _, _, err := w.store.Claim(t.Context(), "b", time.Minute, []warmup.Key{{Name: "ip"}}, nil); err != nil {
			t.Fatal(err)
		}
		s := status(t, c)
		if s.LedgerFailure() != "" {
			break
		}
		w.pass(time.Second)
		c.Step(t.Context())
	}
	s := status(t, c)
	if got := s.LedgerFailure(); got != "other nodes have had it locked for more than 30s" {
		t.Errorf("the failure is %q", got)
	}
	w.pass(2 * time.Minute)
	c.Step(t.Context())
	if s = status(t, c); s.LedgerFailure() != "" {
		t.Errorf("the failure stays: %q", s.LedgerFailure())
	}
}
