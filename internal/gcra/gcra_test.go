package gcra

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var t0 = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func TestBurstThenEvenPace(t *testing.T) {
	var l Limiter
	r := Rate{Events: 10, Per: time.Second, Burst: 3}
	for i := range 3 {
		if ok, _ := l.allow(t0, r, 1); !ok {
			t.Fatalf("event %d of the burst refused", i)
		}
	}
	ok, at := l.allow(t0, r, 1)
	if want := t0.Add(100 * time.Millisecond); ok || !at.Equal(want) {
		t.Fatalf("after the burst: %v at %v, want false at %v", ok, at, want)
	}
	if ok, _ := l.allow(at, r, 1); !ok {
		t.Fatal("refused at the very time that it named")
	}
}

func TestUnlimited(t *testing.T) {
	var l Limiter
	for range 1000 {
		if ok, _ := l.allow(t0, Rate{}, 1); !ok {
			t.Fatal("no limit, yet refused")
		}
	}
}

func TestMoreThanABurstPassesOnce(t *testing.T) {
	var l Limiter
	r := Rate{Events: 1, Per: time.Second, Burst: 2}
	if ok, _ := l.allow(t0, r, 5); !ok {
		t.Fatal("five at once can never pass if not with a full burst")
	}
	if ok, at := l.allow(t0, r, 1); ok || at.Before(t0.Add(4*time.Second)) {
		t.Fatalf("the excess was not charged: %v, %v", ok, at.Sub(t0))
	}
}

// Any span holds at most rate·span + burst, whatever the pattern of arrival: what fixed windows
// can't promise (they let twice the limit through in a minute).
func TestNoSpanHoldsMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rate{Events: rapid.IntRange(1, 200).Draw(t, "events"), Per: time.Minute, Burst: rapid.IntRange(1, 20).Draw(t, "burst")}
		var l Limiter
		now := t0
		var passed []time.Time
		for range 300 {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "gap")) * time.Millisecond)
			if ok, at := l.allow(now, r, 1); ok {
				passed = append(passed, now)
			} else if !at.After(now) {
				t.Fatalf("refused, and told to ask at %v, which is not after %v", at, now)
			}
		}
		for i := range passed {
			for j := i; j < len(passed); j++ {
				span := passed[j].Sub(passed[i])
				if most := int(span/r.Interval()) + r.Burst; j-i+1 > most {
					t.Fatalf("%d events in %v, at most %d allowed", j-i+1, span, most)
				}
			}
		}
	})
}

// allow takes n events if they may happen now; otherwise it tells when to ask again.
func (l *Limiter) allow(now time.Time, r Rate, n int) (ok bool, at time.Time) {
	if at = l.Next(now, r, n); at.After(now) {
		return false, at
	}
	l.Take(now, r, n)
	return true, now
}

func BenchmarkNextAndTake(b *testing.B) {
	var l Limiter
	r := Rate{Events: 1000}
	now := t0
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(time.Microsecond)
		l.allow(now, r, 1)
	}
}

func TestLeftIsWhatNextAllows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Limiter
		r := Rate{Events: rapid.IntRange(1, 50).Draw(t, "events"), Per: time.Second, Burst: rapid.IntRange(1, 20).Draw(t, "burst")}
		now := t0
		for range rapid.IntRange(0, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 200).Draw(t, "ms")) * time.Millisecond)
			left := l.Left(now, r)
			if left > 0 && l.Next(now, r, left).After(now) {
				t.Fatalf("%d left, and they may not happen", left)
			}
			if left < r.Depth() && !l.Next(now, r, left+1).After(now) {
				t.Fatalf("%d left, and one more may happen", left)
			}
			if l.allowed(now, r) {
				l.Take(now, r, 1)
			}
		}
	})
}

func (l *Limiter) allowed(now time.Time, r Rate) bool { return !l.Next(now, r, 1).After(now) }

func TestOf(t *testing.T) {
	for perSecond, want := range map[float64]string{0: "unlimited", 10. / 60: "10/min", 100. / 3600: "100/h", 2: "120/min",
		1e-9: "1/h", 1.7333: "104/min"} {
		if got := Of(perSecond).String(); got != want {
			t.Errorf("%v a second are %s, want %s", perSecond, got, want)
		}
	}
	if got := (Rate{Events: 3, Per: time.Minute}).PerSecond(); got != .05 {
		t.Errorf("3/min are %v a second", got)
	}
}
