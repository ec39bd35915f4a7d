package warmup_test

import (
	"context"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// TestAnAmplePlanKeepsNobodyWaiting: under a plan that is far above the demand a rush finds tokens once the store has
// answered the first, and from the third second on nobody waits for the store.
func TestAnAmplePlanKeepsNobodyWaiting(t *testing.T) {
	w := newWorld(t, 100_000_000, 1_000_000_000)
	c := w.node("a")
	next := time.Duration(0) // until Run steps
	for tick := range 1000 { // 10 s of 10,000 a second
		waited := 0
		for range 100 {
			if n, _ := c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1}); n == 0 || !c.Begin("ip", "google", 1) {
				waited++
			}
		}
		if tick > 200 && waited > 0 {
			t.Fatalf("after %d ms %d of 100 messages had to wait", 10*tick, waited)
		}
		w.pass(10 * time.Millisecond)
		if next -= 10 * time.Millisecond; next <= 0 || c.Asking() {
			next = c.Step(context.Background())
		}
	}
}

// TestGoodNewsWaitsWhereTokensAreAmple: an address that has tokens for its mail is written when it needs more, or
// once in some seconds; one bad outcome is told at once.
func TestGoodNewsWaitsWhereTokensAreAmple(t *testing.T) {
	w := newWorld(t, 14_400, 144_000) // four a second
	c := w.node("a")
	written := func(seconds int, outcome warmup.Outcome) (n uint64) {
		_, before := c.Copy("ip", 0)
		for range seconds {
			if send(c, "google", 1) != 1 {
				t.Fatal("there were no tokens")
			}
			c.Report("ip", "google", outcome)
			w.pass(time.Second)
			c.Step(context.Background())
		}
		_, after := c.Copy("ip", 0)
		return after - before
	}
	written(60, warmup.Delivered)
	if n := written(60, warmup.Delivered); n > 24 {
		t.Errorf("written %d times a minute", n)
	}
	if n := written(10, warmup.Deferred); n < 10 {
		t.Errorf("of 10 deferrals %d were told at once", n)
	}
}

// TestWhoComesLaterLeavesTokensToTheLine: fresh mail passes what waits if there are tokens for both.
func TestWhoComesLaterLeavesTokensToTheLine(t *testing.T) {
	w := newWorld(t, 100_000, 1_000_000)
	c := w.node("a")
	c.Step(context.Background())
	w.pass(time.Minute)
	take(c, "ip", "google", 40, false)
	c.Step(context.Background())
	for behind, want := range map[int64]int64{10: 1, 1000: 0} {
		n, v := c.Allowance("ip", warmup.Ask{Provider: "google", Recipients: 1, Behind: behind})
		if n != want || (v == warmup.Granted) != (want > 0) {
			t.Errorf("behind %d: %d are let out, %v", behind, n, v)
		}
	}
}
