package dispatch

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestRetryDoublesToItsMaximum(t *testing.T) {
	s := retrySchedule{interval: 10 * time.Minute, max: 4 * time.Hour}
	want := []time.Duration{10, 20, 40, 80, 160, 240, 240}
	for i, w := range want {
		if got := s.after(i+1, 0.5); got != w*time.Minute {
			t.Errorf("after attempt %d: %v, want %v", i+1, got, w*time.Minute)
		}
	}
	if got := (retrySchedule{interval: time.Hour}).after(1000, 0.5); got != maxWait {
		t.Errorf("without a maximum the wait grew to %v", got)
	}
}

func TestRetryListIsFollowedToItsLast(t *testing.T) {
	s := retrySchedule{list: []time.Duration{time.Minute, 5 * time.Minute, time.Hour}, interval: time.Second}
	for i, w := range []time.Duration{time.Minute, 5 * time.Minute, time.Hour, time.Hour} {
		if got := s.after(i+1, 0.5); got != w {
			t.Errorf("after attempt %d: %v, want %v", i+1, got, w)
		}
	}
}

func TestRetryJitterIsATenthEitherWay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := retrySchedule{interval: time.Duration(rapid.IntRange(1, 1e6).Draw(t, "s")) * time.Second, max: 24 * time.Hour}
		n := rapid.IntRange(1, 200).Draw(t, "attempts")
		got, plain := s.after(n, rapid.Float64Range(0, 0.999).Draw(t, "chance")), s.after(n, 0.5)
		if got < plain-plain/10-1 || got > plain+plain/10+1 {
			t.Fatalf("%v is more than a tenth off %v", got, plain)
		}
	})
}
