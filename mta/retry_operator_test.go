package mta

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// TestRetryNamesWhatStandsInTheWay: a suspension and a hold keep mail that was made due, the answer says
// so, and Now lifts both.
func TestRetryNamesWhatStandsInTheWay(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	o, ctx := w.api.Queue, t.Context()
	w.delivery.Suspend("mx.box.example", "", "for the test", time.Now().Add(time.Hour))
	w.send("ann@client.example", letter, "bob@box.example")
	w.send("ann@client.example", letter, "held@box.example")
	if _, err := o.Change(ctx, api.Change{Action: api.Hold, Filter: api.Filter{Recipient: "held@box.example"}}); err != nil {
		t.Fatal(err)
	}
	w.until("one is held, the other waits for its site", func() bool {
		l, err := o.List(ctx, api.ListQuery{Filter: api.Filter{Recipient: "held@box.example"}})
		return err == nil && len(l.Messages) == 1 && l.Messages[0].Recipients[0].State == api.StateHeld
	})
	all := api.Change{Action: api.Retry, All: true}
	var done api.Changed
	w.until("the suspension is named", func() bool {
		var err error
		if done, err = o.Change(ctx, all); err != nil {
			t.Fatal(err)
		}
		return len(done.Obstacles) == 2
	})
	why := done.Obstacles[0].Why + done.Obstacles[1].Why
	if !strings.Contains(why, "for the test") || !strings.Contains(why, "held by an operator") {
		t.Errorf("obstacles %+v", done.Obstacles)
	}
	all.Now = true
	if done, err := o.Change(ctx, all); err != nil || done.Ended != 2 || len(done.Obstacles) != 0 {
		t.Errorf("with now: %+v, %v", done, err)
	}
	w.arrived(2)
}

// TestRetryNamesAWarmUp: a retry doesn't hasten what waits for a warm-up, and says so.
func TestRetryNamesAWarmUp(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "new" { address = "127.0.0.1" }
		plan "slow" {
			stage {
				hourly = 1
				daily  = 1
			}
		}
		pool "default" {
			dedicated "new" { plan = "slow" }
		}`)
	o, ctx := w.api.Queue, t.Context()
	w.send("ann@client.example", letter, "one@box.example")
	w.arrived(1)
	w.send("ann@client.example", letter, "two@box.example")
	all := api.Change{Action: api.Retry, All: true, Now: true}
	var done api.Changed
	w.until("the warm-up is named", func() bool {
		var err error
		if done, err = o.Change(ctx, all); err != nil {
			t.Fatal(err)
		}
		return len(done.Obstacles) == 1
	})
	if x := done.Obstacles[0]; x.Recipients != 1 || !strings.HasPrefix(x.Why, "the warm-up of new: ") || x.Until.IsZero() || x.Remedy != "" || !x.Stays {
		t.Errorf("obstacle %+v", x)
	}
	if _, err := w.api.Warmups.ChangeWarmup(ctx, "new", api.WarmupPause, api.StageChoice{}); err != nil {
		t.Fatal(err)
	}
	if done, err := o.Change(ctx, all); err != nil || len(done.Obstacles) != 1 || done.Obstacles[0].Remedy != "mta warmup resume new" {
		t.Errorf("with a paused warm-up: %+v, %v", done, err)
	}
	// A pause of the source itself is no state of the warm-up, which goes on counting its days, and is shown with it.
	if _, err := w.api.Rules.AddRule(ctx, api.AddRule{Action: api.RuleSuspend, Selection: api.Selection{Source: "new"}, By: "ann", Reason: "for the test"}); err != nil {
		t.Fatal(err)
	}
	shown, err := w.api.Warmups.Warmups(ctx, api.Paging{})
	if err != nil || len(shown.Warmups) != 1 || shown.Warmups[0].Paused != "source new is paused by ann: for the test" {
		t.Errorf("with a paused source: %+v, %v", shown, err)
	}
}

// TestRetryNowForgetsThatAHostIsBroken: without it a host that doesn't answer is left alone.
func TestRetryNowForgetsThatAHostIsBroken(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults {
		smtp_port = 1
		host_retry_interval = "1h"
	}`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	o, ctx := w.api.Queue, t.Context()
	all := api.Change{Action: api.Retry, All: true}
	if done, err := o.Change(ctx, all); err != nil || len(done.Obstacles) != 1 || done.Obstacles[0].Until.IsZero() {
		t.Fatalf("retry: %+v, %v", done, err)
	}
	all.Now = true
	if done, err := o.Change(ctx, all); err != nil || done.Ended == 0 {
		t.Fatalf("with now: %+v, %v", done, err)
	}
	w.until("it was tried again", func() bool {
		l, err := o.List(ctx, api.ListQuery{})
		return err == nil && len(l.Messages) == 1 && l.Messages[0].Recipients[0].Attempts == 2
	})
}

// TestRetryNamesSuspensionsOfAllSources: a rule suspends what comes from one source. Mail is in the way of
// nothing else when that is the only one.
func TestRetryNamesSuspensionsOfAllSources(t *testing.T) {
	w := newWorld(t, sink.Config{}, `
		defaults { smtp_port = PORT }
		source "only" { ehlo = "only.example" }`)
	w.delivery.Suspend("mx.box.example", "only", "for the test", time.Now().Add(time.Hour))
	w.send("ann@client.example", letter, "bob@box.example")
	w.until("it waits for its site", func() bool {
		info, _ := w.delivery.Site("mx.box.example")
		return len(info.Lanes) == 1
	})
	done, err := w.api.Queue.Change(t.Context(), api.Change{Action: api.Retry, All: true})
	if err != nil || len(done.Obstacles) != 1 || done.Obstacles[0].Why != "suspended: for the test" || done.Obstacles[0].Until.IsZero() {
		t.Fatalf("%+v, %v", done, err)
	}
}

// TestRetryCountsScheduledMailAlone: what it makes due is not counted as left to its time, however soon it
// waits again.
func TestRetryCountsScheduledMailAlone(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	o := w.api.Queue
	w.delivery.Suspend("mx.box.example", "", "for the test", time.Now().Add(time.Hour))
	w.send("ann@client.example", letter, "bob@box.example")
	w.send("ann@client.example", "X-Hold-For: 3600\r\n"+letter, "later@box.example")
	w.until("one waits in delivery", func() bool {
		l, err := o.List(t.Context(), api.ListQuery{Filter: api.Filter{Recipient: "bob@box.example"}})
		return err == nil && len(l.Messages) == 1 && l.Messages[0].Recipients[0].State == api.StateWaiting
	})
	for _, dry := range []bool{true, false, false} {
		done, err := o.Change(t.Context(), api.Change{Action: api.Retry, All: true, Intent: api.Intent{DryRun: dry}})
		if err != nil || done.Scheduled != 1 {
			t.Fatalf("dry run %v: %+v, %v", dry, done, err)
		}
	}
	// What is taken up between the count and the answer is no scheduled mail either.
	n, err := w.queue.Scheduled(queue.Selector{All: true})
	if err != nil || n != 1 {
		t.Fatalf("%d recipients are scheduled, %v", n, err)
	}
}

// TestRetryNowTriesWhatWasHeldOnce: it is not released first, sent, and sent again.
func TestRetryNowTriesWhatWasHeldOnce(t *testing.T) {
	w := newWorld(t, sink.Config{Greylist: time.Hour}, `defaults { smtp_port = PORT }`)
	o, ctx := w.api.Queue, t.Context()
	w.delivery.Suspend("mx.box.example", "", "for the test", time.Now().Add(time.Hour))
	w.send("ann@client.example", letter, "bob@box.example")
	all := func(a api.Action, now bool) api.Changed {
		t.Helper()
		done, err := o.Change(ctx, api.Change{Action: a, All: true, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		return done
	}
	recipient := func() api.RecipientStatus {
		l, err := o.List(ctx, api.ListQuery{})
		if err != nil || len(l.Messages) != 1 {
			t.Fatalf("%+v, %v", l, err)
		}
		return l.Messages[0].Recipients[0]
	}
	all(api.Hold, false)
	w.until("it is held", func() bool { return recipient().State == api.StateHeld })
	w.delivery.Resume("mx.box.example")
	if done := all(api.Retry, true); done.Recipients != 1 || done.Ended != 1 {
		t.Errorf("%+v", done)
	}
	w.until("it was tried", func() bool { return recipient().State == api.StateDeferred })
	if n := recipient().Attempts; n != 1 {
		t.Errorf("it was tried %d times", n)
	}
}

// TestRetryNamesTheRemedyForAPause: --now lifts no pause.
func TestRetryNamesTheRemedyForAPause(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: api.Selection{Domain: "box.example"}, By: "ann", Reason: "for the test", Since: time.Now()}, false); err != nil {
		t.Fatal(err)
	}
	w.send("ann@client.example", letter, "bob@box.example")
	w.saysPaused("bob@box.example")
	done, err := w.api.Queue.Change(t.Context(), api.Change{Action: api.Retry, All: true, Now: true})
	if err != nil || len(done.Obstacles) != 1 || done.Obstacles[0].Site != "" || done.Obstacles[0].Remedy != "mta rule end 1" {
		t.Errorf("%+v, %v", done, err)
	}
}
