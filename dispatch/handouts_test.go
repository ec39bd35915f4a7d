package dispatch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
)

// Mail that finds no room is handed out twice: once to find the line in which it waits, and once when delivery
// calls for it, also over an outage.
func TestABacklogIsHandedOutTwice(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := newPipeline(t)
		p.pol = parsePolicy(t, `defaults { max_message_rate = "10/s" }`)
		p.start()
		defer p.end()
		const backlog = 10_000
		p.accept(backlog)
		time.Sleep(time.Minute)
		p.setDown(true)
		p.become(p.host) // cuts the connections
		time.Sleep(10 * time.Minute)
		p.setDown(false)
		time.Sleep(40 * time.Minute)
		arrived, attempts, _ := p.counts()
		out := p.turnstile.out.Load()
		t.Logf("%d arrived, %d attempts failed, %d handed out", arrived, attempts, out)
		// What was in delivery at the outage was attempted in vain, and came again. A few are handed out while
		// delivery gives the room that they were called for to mail that comes back from the host.
		if arrived != backlog || out > 2*(backlog+int64(attempts))*11/10 {
			t.Errorf("%d of %d have arrived; handed out %d times, want twice each", arrived, backlog, out)
		}
	})
}

// Mail for which the plan of a warming source has no room takes a shared one. If that has no room either, the mail
// waits for it in order, and is not held for the plan anew when it is called for.
func TestDivertedMailKeepsItsPlaceInLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const backlog, first, rate = 20_000, 5_000, 20
		w := newFillWorld(t, strings.NewReplacer(`hourly = 120`, `hourly = 10000`, `daily  = 2880`, `daily  = 240000`, `overflow = "hold"`, "shared = [\"old-1\"]\npatience = \"0s\"", `pool "default"`, fmt.Sprintf(`source "old-1" {
			address          = "192.0.2.21"
			max_message_rate = "%d/s"
		}
		pool "default"`, rate)).Replace(fillPlan))
		defer w.end()
		w.accept(backlog, "a.example")
		time.Sleep(backlog / rate * time.Second)
		if n := len(w.seen("")); n != backlog {
			t.Errorf("%d of %d have arrived", n, backlog)
		}
		var last time.Duration
		for _, d := range w.recorder.Deliveries() {
			var i int
			if _, err := fmt.Sscan(d.ID, &i); err != nil {
				t.Fatal(err)
			}
			if i < first {
				last = max(last, d.At.Sub(w.begin))
			}
		}
		out := w.turnstile.out.Load()
		t.Logf("the last of the first %d arrived after %v; %d were handed out %d times", first, last, backlog, out)
		if last > (first/rate+60)*time.Second {
			t.Errorf("the last of the first %d arrived after %v, at %d/s", first, last, rate)
		}
		if out > 2*backlog*11/10 { // the order in which goroutines run moves a few
			t.Errorf("%d messages were handed out %d times, want twice each", backlog, out)
		}
	})
}
