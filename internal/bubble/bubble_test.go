package bubble

import (
	"runtime"
	"testing"
	"time"
)

// Goroutines that receive from timers which are due, side by side: without Test's care, the race detector
// ends the test binary here, sooner or later.
func TestDueTimersSideBySide(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	for range 1000 {
		Test(t, func(t *testing.T) {
			if n := runtime.GOMAXPROCS(0); RaceEnabled && n != 1 {
				t.Fatalf("%d processors under the race detector", n)
			}
			for range 16 {
				go func() { <-time.NewTimer(0).C }()
			}
		})
	}
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d processors afterwards, %d before", now, before)
	}
}
