package delivery

import (
	"context"
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// A message that was scheduled before an outage and is released while the backlog drains is fresh
// mail: its age counts from its release. One that waited through the outage is backlog.
func TestScheduledMailIsFreshInADrain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{HostRetry: 20 * time.Second, MaxHostRetry: 20 * time.Second})(c)
			c.Share = 100_000
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		steady := func(seconds int) {
			for range seconds {
				w.send(r, 4)
				time.Sleep(time.Second)
			}
		}
		steady(10 * 60)
		scheduled, old := w.job(r, 1), w.job(r, 1) // accepted now
		w.s.Suspend("a", "", "outage", time.Now().Add(5*time.Minute))
		steady(5*60 + 30)
		if !w.s.Draining(toA) {
			t.Fatal("a backlog after an outage does not drain")
		}
		soon := func(j *Job) bool {
			ended := make(chan bool, 1)
			j.Done = func(*Job, []Result) { ended <- true }
			w.submit(j) // a backlog that has its share of the memory already is refused
			select {
			case <-ended:
				return true
			case <-time.After(5 * time.Second):
				return false
			}
		}
		scheduled.Message.Release = time.Now().Truncate(time.Second)
		if soon(old) || !soon(scheduled) {
			t.Error("want scheduled mail before the backlog, and mail from before the outage within it")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.s.Drain(ended)
	})
}
