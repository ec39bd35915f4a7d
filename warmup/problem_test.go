package warmup_test

import (
	"context"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// act carries out what is refused, or not, in one step.
func act(c *warmup.Controller, a warmup.Action) {
	done, stop := context.WithCancel(context.Background())
	stop()
	c.Do(done, "ip", a) // its answer is not waited for
	c.Step(context.Background())
}

// TestARefusedActionBeginsNoWarmUp: where a plan has not begun, a pause, a report and a block of the network
// change nothing. They left an empty record, by which mail left at once.
func TestARefusedActionBeginsNoWarmUp(t *testing.T) {
	w := newWorld(t, 100, 1000)
	w.ms = 1_000_000_000
	w.plan.Begin = w.now().Add(time.Hour)
	c := w.node("a")
	for _, a := range []warmup.Action{warmup.Pause(), warmup.Reported("google", warmup.Report{Day: w.now(), Complaints: 1})} {
		act(c, a)
		for range 30 {
			w.pass(time.Minute)
			if n := send(c, "google", 5); w.now().Before(w.plan.Begin) && n > 0 {
				t.Fatalf("%d left at %v, before %v", n, w.now(), w.plan.Begin)
			}
		}
	}
	w.pass(time.Minute)
	send(c, "google", 1)
	if s := status(t, c); s.Started.Before(w.plan.Begin) {
		t.Errorf("it began at %v, before %v", s.Started, w.plan.Begin)
	}
}

// TestAShorterPlanGoesOnFromItsLastStage: a stage that it doesn't have is no stage of its easing out.
func TestAShorterPlanGoesOnFromItsLastStage(t *testing.T) {
	w := newWorld(t, 100, 800)
	for range 9 {
		w.plan.Stages = append(w.plan.Stages, w.plan.Stages[0])
	}
	w.plan.StartStage, w.plan.Finish = 10, true
	c := w.node("a")
	send(c, "google", 1)
	short := *w.plan
	short.Stages, short.StartStage = w.plan.Stages[:3], 1
	short.Stages[2].Caps = warmup.Caps{Hourly: 110, Daily: 880}
	if err := c.Assign(map[string]*warmup.Plan{"ip": &short}); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		w.pass(time.Hour)
		c.Step(context.Background())
	}
	if s := status(t, c); s.HourlyLimit > 220 || s.StageLimit > 1760 {
		t.Errorf("caps are %d an hour, %d a day", s.HourlyLimit, s.StageLimit)
	}
}
