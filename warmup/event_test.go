package warmup_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// told collects the kinds of events, a repetition once.
type told struct{ kinds []warmup.EventKind }

func (x *told) config(cfg *warmup.Config) {
	cfg.OnEvent = func(e warmup.Event) { x.kinds = append(x.kinds, e.Kind) }
}

func (x *told) want(t *testing.T, what string, kinds ...warmup.EventKind) {
	t.Helper()
	if !slices.Equal(x.kinds, kinds) {
		t.Errorf("%s: events %v, want %v", what, x.kinds, kinds)
	}
	x.kinds = nil
}

// TestEventsOfDays: each day's verdict is told, and the plan's end once.
func TestEventsOfDays(t *testing.T) {
	w := newWorld(t, 100, 200)
	w.plan.Stages = append(w.plan.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: 150, Daily: 300}})
	w.plan.Finish, w.plan.EaseOut = true, 1
	var got told
	c := w.node("a", got.config)
	c.Step(context.Background())
	got.want(t, "the first step", warmup.EventBegun)
	day := func(mail int64, x warmup.Outcome) {
		for range 24 {
			for range 60 {
				if n := send(c, "google", mail); n > 0 {
					c.ReportSome("ip", "google", x, n)
				}
				w.pass(time.Minute)
				c.Step(context.Background())
			}
		}
	}
	day(0, warmup.Delivered)
	got.want(t, "a day without mail", warmup.EventStayed)
	day(4, warmup.Delivered)
	got.want(t, "a good day", warmup.EventAdvanced)
	day(4, warmup.HardBounce)
	got.want(t, "a bad day", warmup.EventProviderHalved, warmup.EventProviderHalved, warmup.EventBack, warmup.EventProviderRecovered)
	day(4, warmup.Delivered)
	got.want(t, "a good day again", warmup.EventAdvanced)
	day(4, warmup.Delivered)
	got.want(t, "the last stage's day", warmup.EventAdvanced)
	day(4, warmup.Delivered)
	got.want(t, "the last day", warmup.EventFinished)
	day(4, warmup.Delivered)
	got.want(t, "a warm day")
}

// TestEventsOfABlock: a provider that refuses is paused, probed and released, in words that name it.
func TestEventsOfABlock(t *testing.T) {
	w := newWorld(t, 1000, 5000)
	var words []string
	c := w.node("a", func(cfg *warmup.Config) {
		cfg.OnEvent = func(e warmup.Event) { words = append(words, e.String()) }
	})
	c.Step(context.Background())
	c.ReportSome("ip", "google", warmup.PolicyRefusal, 20)
	for range 17 {
		w.pass(time.Minute)
		c.Step(context.Background()) // a probe may begin
		c.ReportSome("ip", "google", warmup.Delivered, 5)
		w.pass(10 * time.Second)
		c.Step(context.Background())
	}
	want := []string{"begins plan test on stage 1 of 1 (1000 an hour, 5000 a day)",
		"pauses mail to google until 1970-01-01T00:16:00Z: most of the last outcomes there are refusals by policy",
		"probes google", "sends to google again"}
	if !slices.Equal(words, want) {
		t.Errorf("got %q\nwant %q", words, want)
	}
}

// TestEventsOfAnOperator: what an operator does, and a changed plan.
func TestEventsOfAnOperator(t *testing.T) {
	w := newWorld(t, 1000, 5000)
	var got told
	c := w.node("a", got.config)
	c.Step(context.Background())
	got.kinds = nil
	for _, x := range []warmup.Action{warmup.Pause(), warmup.Resume(), warmup.SetStage(1), warmup.Start(1)} {
		done := make(chan error, 1)
		go func() { done <- c.Do(context.Background(), "ip", x) }()
		for len(done) == 0 {
			c.Step(context.Background())
		}
	}
	got.want(t, "actions", warmup.EventPaused, warmup.EventResumed, warmup.EventStageSet, warmup.EventRestarted)
	changed := *w.plan
	changed.Name = "other"
	if err := c.Assign(map[string]*warmup.Plan{"ip": &changed}); err != nil {
		t.Fatal(err)
	}
	w.pass(10 * time.Second)
	c.Step(context.Background())
	got.want(t, "another plan", warmup.EventPlanChanged)
	w.store.SetDown(true)
	for range 2 {
		w.pass(10 * time.Second)
		c.Step(context.Background())
	}
	w.store.SetDown(false)
	w.pass(10 * time.Second)
	c.Step(context.Background())
	got.want(t, "the store", warmup.EventLedgerLost, warmup.EventLedgerRestored)
}
