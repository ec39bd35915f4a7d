package delivery

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// steadily sends single messages to a site at a mean rate, some of them several at once, and gives the
// delays and how many connections were made.
func steadily(t *testing.T, without sink.Extension, work time.Duration) (d delays, connections int) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{MaxDeliveriesPerConnection: 1e6, ActiveTimeout: time.Hour}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Without: without,
			Work: map[sink.Phase]time.Duration{sink.End: work}})))
		rnd := rand.New(rand.NewPCG(1, 2))
		starting := delays{w: w}
		d.w = w
		for i := range 2000 {
			if i < 200 { // slow start
				starting.send(r, "out1")
			} else {
				d.send(r, "out1")
			}
			time.Sleep(time.Duration(rnd.ExpFloat64() * float64(50*time.Millisecond)))
		}
		w.awaitResults(2000, time.Minute)
		synctest.Wait()
		connections = len(w.dialed())
	})
	return d, connections
}

// A job waits for a round trip at most on a busy connection when there may be more connections. A host
// that takes many messages in a round trip gets no more of them for that.
func TestWaitOnAConnectionIsARoundTripAtMost(t *testing.T) {
	for _, x := range []struct {
		name        string
		without     sink.Extension
		work        time.Duration
		alone       time.Duration // that a message takes on an idle connection
		connections int           // at most
	}{
		{"chunking", 0, 0, 50 * time.Millisecond, 3},
		{"pipelining", sink.Chunking, 0, 100 * time.Millisecond, 10},
		{"lock-step", sink.Chunking | sink.Pipelining, 0, 200 * time.Millisecond, 12},
		{"slow work", sink.Chunking, 150 * time.Millisecond, 250 * time.Millisecond, 12},
	} {
		t.Run(x.name, func(t *testing.T) {
			d, connections := steadily(t, x.without, x.work)
			t.Logf("p50 %v, p99 %v, %d connections; a message alone takes %v", d.quantile(.5), d.quantile(.99), connections, x.alone)
			if p50 := d.quantile(.5); p50 > x.alone+25*time.Millisecond {
				t.Errorf("p50 %v, want %v", p50, x.alone)
			}
			if p99 := d.quantile(.99); p99 > x.alone+100*time.Millisecond {
				t.Errorf("p99 %v, want %v and a round trip or two", p99, x.alone)
			}
			if connections > x.connections {
				t.Errorf("%d connections, want %d at most", connections, x.connections)
			}
		})
	}
}

// A busy host nearby gets messages together on few connections. Each on a connection by itself costs both
// sides a fifth of their processor time more.
func TestBusyHostNearbyGetsFewConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{MaxDeliveriesPerConnection: 1e6, ActiveTimeout: time.Hour}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 200 * time.Microsecond, Work: map[sink.Phase]time.Duration{sink.End: 2 * time.Millisecond}})))
		for range 200 {
			w.send(r, 12)
			time.Sleep(30 * time.Millisecond)
		}
		w.awaitResults(2400, time.Minute)
		if n := len(w.dialed()); n > 3 {
			t.Errorf("%d connections, want 3 at most", n)
		}
	})
}

// The backlog that a connection takes follows the host's manner and what its jobs have shown.
func TestBacklogByManner(t *testing.T) {
	for _, x := range []struct {
		name            string
		without         sink.Extension
		latency, work   time.Duration
		threshold, most int // of the backlog, under load
	}{
		{"lock-step, far", sink.Chunking | sink.Pipelining, 50 * time.Millisecond, 0, 1, 1},
		{"pipelining, far", sink.Chunking, 50 * time.Millisecond, 0, 2, 3},
		{"pipelining, slow", sink.Chunking, 0, time.Second, 1, 1},
		{"chunking, slow", 0, 0, time.Second, 1, 1},
		{"chunking, far", 0, 50 * time.Millisecond, 0, 65, 65},
		{"lock-step, near", sink.Chunking | sink.Pipelining, 0, 0, fewJobs, 2 * fewJobs},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1e6, ActiveTimeout: time.Hour}))
				defer w.end()
				r := routeTo("a", tier(w.host("mx", sink.Config{Latency: x.latency, Without: x.without,
					Work: map[sink.Phase]time.Duration{sink.End: x.work}})))
				n := 60
				if x.threshold > 10 {
					n = 1500 // until the window has grown
				}
				w.send(r, n)
				w.awaitResults(n-2, time.Hour)
				w.s.mu.Lock()
				for c := range w.s.conns {
					if got, want := fmt.Sprint(c.rec.Threshold, c.rec.Limit), fmt.Sprint(x.threshold, x.most); got != want {
						t.Errorf("threshold and limit %s, want %s; learned %+v", got, want, c.learned)
					}
				}
				w.s.mu.Unlock()
				w.awaitResults(n, time.Hour)
			})
		})
	}
}
