package delivery

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mta/internal/route"
	"mta/internal/sink"
)

// TestWhoFilledTheRoomIsToldOfRoom is of a caller with parked jobs that hands over just as many
// as there is room for, and so is refused none: he used not to hear of room again.
func TestWhoFilledTheRoomIsToldOfRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
		n := w.s.Room("a")
		for range n {
			w.send(r, 1)
		}
		if left := w.s.Room("a"); n != 10 || left != 0 {
			t.Fatalf("room for %d, and then for %d", n, left)
		}
		w.awaitResults(n, time.Hour)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.room) == 0 || w.room[0] != "a" {
			t.Errorf("told of room: %v, want a", w.room)
		}
	})
}

// TestBacklogOfABrokenHostStaysWithItsOwner: when a host is down every job comes back at once, and
// each used to make room for the next before its owner had heard of it: whoever has a backlog
// handed all of it over, and memory grew with it.
func TestBacklogOfABrokenHostStaysWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share = 10
		var w *world
		var r *route.Route
		var out, most atomic.Int64 // jobs handed over whose Done was not called
		backlog := 50 * share
		handOver := func(key string) {
			for backlog > 0 && w.s.Room(key) > 0 {
				j := w.job(r, 1)
				j.Done = func(*Job, []Result) { out.Add(-1) }
				most.Store(max(most.Load(), out.Add(1)))
				if !w.s.Submit(j) {
					t.Error("refused where there was room")
				}
				backlog--
			}
		}
		w = newWorld(t, func(c *Config) { c.Share, c.OnRoom = share, handOver })
		defer w.end()
		host := w.host("mx", sink.Config{})
		r = routeTo("a", tier(host))
		w.setDown(host, true)
		w.send(r, 1)
		w.awaitResults(1, time.Hour) // now the host is known to be broken
		handOver("a")
		for end := time.Now().Add(time.Hour); out.Load() > 0 && time.Now().Before(end); time.Sleep(time.Second) {
			synctest.Wait()
		}
		if most.Load() > share {
			t.Errorf("%d jobs were out at a time, the share is %d", most.Load(), share)
		}
		if backlog > 0 || out.Load() > 0 {
			t.Errorf("%d jobs were never taken, %d never came back", backlog, out.Load())
		}
	})
}
