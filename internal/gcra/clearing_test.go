package gcra

import (
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// T8: nothing clears a limiter. It is one time stamp, so a thousand of them start no goroutine and
// no timer, and one that nobody has asked for a day gives its burst and goes on at its pace.
func TestT8_NothingIsCleared(t *testing.T) {
	if size := unsafe.Sizeof(Limiter{}); size != unsafe.Sizeof(time.Time{}) {
		t.Errorf("a limiter has %d octets, want a time stamp's", size)
	}
	before := runtime.NumGoroutine()
	now, rate := time.Unix(1e9, 0), Rate{Events: 60, Per: time.Minute, Burst: 1}
	limiters := make([]Limiter, 1000)
	for i := range limiters {
		l := &limiters[i]
		for range 3 {
			l.allow(now, rate, 1)
		}
		if ok, _ := l.allow(now.Add(24*time.Hour), rate, 1); !ok {
			t.Fatal("nothing goes a day later")
		}
		if ok, at := l.allow(now.Add(24*time.Hour), rate, 1); ok || at.Sub(now) != 24*time.Hour+time.Second {
			t.Fatalf("the second goes at %v", at)
		}
	}
	if after := runtime.NumGoroutine(); after > before {
		t.Errorf("%d goroutines, %d before there were limiters", after, before)
	}
}
