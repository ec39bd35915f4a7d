package api

import (
	"testing"
	"time"
)

func TestReasonOfScheduledMail(t *testing.T) {
	next := time.Date(2026, 11, 21, 13, 0, 0, 0, time.UTC)
	r := RecipientStatus{State: StateDeferred, Scheduled: true, Next: next}
	want := "scheduled for " + next.Format(time.DateTime)
	if got := r.Why(time.UTC); got != want {
		t.Errorf("reason %q, want %q", got, want)
	}
	r.Scheduled, r.Reply = false, &Reply{Code: 450, Text: "later"}
	if got := r.Why(time.UTC); got != "450 later" {
		t.Errorf("reason after an attempt %q", got)
	}
}

func TestReasonOfWhatIsActive(t *testing.T) {
	r := RecipientStatus{State: StateActive, Doing: "in transit to mx", Reply: &Reply{Code: 450, Text: "before"}}
	if got := r.Why(time.UTC); got != r.Doing {
		t.Errorf("reason %q, want what is going on", got)
	}
}
