package main

import (
	"testing"
	"time"

	"example.org/mta/mta/control"
)

func TestReasonOfScheduledMail(t *testing.T) {
	r := control.RecipientStatus{State: control.StateDeferred, Scheduled: true, Next: scriptNow.Add(time.Hour)}
	want := "scheduled for " + scriptNow.Add(time.Hour).Local().Format(time.DateTime)
	if got := reason(r); got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	r.Scheduled, r.Reply = false, &control.Reply{Code: 450, Text: "later"}
	if got := reason(r); got != "450 later" {
		t.Errorf("reason after an attempt %q", got)
	}
}

func TestReasonOfWhatIsActive(t *testing.T) {
	r := control.RecipientStatus{State: control.StateActive, Doing: "in transit to mx", Reply: &control.Reply{Code: 450, Text: "before"}}
	if got := reason(r); got != r.Doing {
		t.Errorf("reason %q, want what is going on", got)
	}
}
