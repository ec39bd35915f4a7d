package delivery

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/lab/sink"
)

// T8: whatever the demand, no 60 s hold more than 1.05 times max_message_rate (one message more
// where that is less than one), and when there is demand the rate is used. A limiter that is cleared
// every minute lets twice its rate through around the clearing; here nothing is cleared, so there is
// nothing that could die: after a day of silence the pace is the same.
func TestT8_NoMinuteHoldsMoreThanTheRate(t *testing.T) {
	demands := map[string]func(second int) bool{ // whether mail comes then, as much as is taken
		"a backlog":              func(s int) bool { return true },
		"a burst at each minute": func(s int) bool { return s%60 == 59 },
		"silence, then a flood":  func(s int) bool { return s >= 119 },
		"on and off":             func(s int) bool { return s%45 < 10 },
	}
	for _, rate := range []gcra.Rate{{Events: 30, Per: time.Minute}, {Events: 10}} {
		for name, demand := range demands {
			for scope, limits := range map[string]Limits{
				"site":   {Site: Scope{MessageRate: rate}},
				"source": {Source: Scope{MessageRate: rate}},
			} {
				t.Run(fmt.Sprintf("%v/%s/%s", rate, scope, name), func(t *testing.T) {
					bubble.Test(t, func(t *testing.T) { paced(t, rate, limits, demand) })
				})
			}
		}
	}
}

// paced offers mail for four minutes, and looks at every 60 s of what arrives.
func paced(t *testing.T, rate gcra.Rate, limits Limits, demand func(int) bool) {
	const seconds = 240
	perMinute := int(time.Minute / rate.Interval())
	limits.MaxDeliveriesPerConnection = 1e6
	w := newWorld(t, unhurried(limits))
	defer w.end()
	r := routeTo("a", tier(w.host("mx", sink.Config{})))
	time.Sleep(2 * time.Hour) // a limiter that needs clearing has had the time to die
	began, demanded := time.Now(), 0
	for s := range seconds {
		if demand(s) {
			demanded++
			w.send(r, min(2*perMinute, w.s.Space(toA)))
		}
		time.Sleep(time.Second)
		synctest.Wait()
	}
	var at []time.Duration
	for _, d := range w.recorder.Deliveries() {
		at = append(at, d.At.Sub(began))
	}
	limit, most, from := max(int(1.05*float64(perMinute)), perMinute+1), 0, 0
	for i := range at {
		for at[i]-at[from] >= time.Minute {
			from++
		}
		most = max(most, i-from+1)
	}
	if most > limit {
		t.Errorf("60 s hold %d messages, want at most %d at %v", most, limit, rate)
	}
	// All the while that mail came, the rate was used.
	if want := demanded * perMinute / 60 * 95 / 100; len(at) < want {
		t.Errorf("%d messages were sent in %d s of demand, want at least %d", len(at), demanded, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	w.s.Drain(ended)
}
