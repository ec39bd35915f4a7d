package mta

import (
	"strings"
	"testing"
	"time"

	"mta/internal/sink"
	"mta/mta/control"
)

// TestRetryNamesWhatStandsInTheWay: a suspension and a hold keep mail that was made due, the answer says
// so, and Now lifts both.
func TestRetryNamesWhatStandsInTheWay(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults { smtp_port = PORT }`)
	o, ctx := operator{w.Relay}, t.Context()
	w.delivery.Suspend("mx.box.example", "", "for the test", time.Now().Add(time.Hour))
	w.send("ann@client.example", letter, "bob@box.example")
	w.send("ann@client.example", letter, "held@box.example")
	if _, err := o.Change(ctx, control.Change{Action: control.Hold, Filter: control.Filter{Recipient: "held@box.example"}}); err != nil {
		t.Fatal(err)
	}
	w.until("one is held, the other waits for its site", func() bool {
		l, err := o.List(ctx, control.Filter{Recipient: "held@box.example"}, control.Page{})
		return err == nil && len(l.Messages) == 1 && l.Messages[0].Recipients[0].State == control.StateHeld
	})
	all := control.Change{Action: control.Retry, All: true}
	var done control.Changed
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
	if done, err := o.Change(ctx, all); err != nil || done.Lifted != 2 || len(done.Obstacles) != 0 {
		t.Errorf("with now: %+v, %v", done, err)
	}
	w.arrived(2)
}

// TestRetryNowForgetsThatAHostIsBroken: without it a host that doesn't answer is left alone.
func TestRetryNowForgetsThatAHostIsBroken(t *testing.T) {
	w := newWorld(t, sink.Config{}, `defaults {
		smtp_port = 1
		host_retry_interval = "1h"
	}`)
	w.send("ann@client.example", letter, "bob@box.example")
	w.await("bob@box.example", "TransientFailure")
	o, ctx := operator{w.Relay}, t.Context()
	all := control.Change{Action: control.Retry, All: true}
	if done, err := o.Change(ctx, all); err != nil || len(done.Obstacles) != 1 || done.Obstacles[0].Until.IsZero() {
		t.Fatalf("retry: %+v, %v", done, err)
	}
	all.Now = true
	if done, err := o.Change(ctx, all); err != nil || done.Lifted == 0 {
		t.Fatalf("with now: %+v, %v", done, err)
	}
	w.until("it was tried again", func() bool {
		l, err := o.List(ctx, control.Filter{}, control.Page{})
		return err == nil && len(l.Messages) == 1 && l.Messages[0].Recipients[0].Attempts == 2
	})
}
