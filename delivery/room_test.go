package delivery

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mta/destdb"
	"mta/internal/reply"
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

// TestASuspendedSourceLeavesRoomForOthers: the mail of one source, suspended for an hour, takes no more
// than half of its site's share, before and after the suspension begins; what goes back was not
// attempted. Another source's mail leaves at once.
func TestASuspendedSourceLeavesRoomForOthers(t *testing.T) {
	for _, before := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Share = 16 })
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
			end := time.Now().Add(time.Hour)
			if before {
				w.s.Suspend("a", "out1", "blocked", end)
			}
			for range 40 {
				w.s.Submit(w.job(r, 1))
				if before {
					synctest.Wait()
				}
			}
			if !before {
				w.s.Suspend("a", "out1", "blocked", end) // while the first connection is being opened
			}
			synctest.Wait()
			if waiting := lanes(w, "a")[0].Waiting; waiting == 0 || waiting > 8 {
				t.Errorf("%d of the suspended source wait, of 16 that there is room for", waiting)
			}
			for _, res := range w.settled() {
				if res.Attempted || !res.RetryAfter.Equal(end) || !res.Reply.Temporary() {
					t.Errorf("given back: %+v", res)
				}
			}
			given := w.count()
			if given == 0 {
				t.Error("nothing was given back")
			}
			j := w.job(r, 1)
			j.Source = "out2"
			if !w.s.Submit(j) {
				t.Fatal("no room for another source")
			}
			for _, res := range w.awaitResults(given+1, time.Minute)[given:] {
				if !res.Reply.OK() || res.Source != "out2" {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// TestBacklogOfABrokenHostStaysWithItsOwner: while no host of a site may be tried, its backlog is not
// taken: it costs no attempt, no disk read and no memory. At each retry time one job finds out, and
// when a host works again there is room for all.
func TestBacklogOfABrokenHostStaysWithItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const share, all = 10, 500
		var w *world
		var r *route.Route
		var taken, failed, good atomic.Int64
		backlog := all
		handOver := func(site string) {
			for backlog > 0 && w.s.Room(site) > 0 {
				j := w.job(r, 1)
				j.Done = func(_ *Job, results []Result) {
					if results[0].Reply.OK() {
						good.Add(1)
					} else {
						failed.Add(1)
					}
				}
				if !w.s.Submit(j) {
					t.Error("refused where there was room")
				}
				taken.Add(1)
				backlog--
			}
		}
		w = newWorld(t, func(c *Config) {
			unhurried(Limits{HostRetry: time.Minute, MaxHostRetry: 4 * time.Minute})(c)
			c.Share, c.OnRoom = share, func(site string) { handOver(site) }
		})
		defer w.end()
		host := w.host("mx", sink.Config{})
		r = routeTo("a", tier(host))
		w.setDown(host, true)
		w.send(r, 1)
		w.awaitResults(1, time.Hour) // now the host is known to be broken
		handOver("a")
		if n := taken.Load(); n != 0 {
			t.Fatalf("%d jobs were taken while the host is left alone", n)
		}
		time.Sleep(time.Hour + time.Second) // tries after 1, 3, 7, 11 minutes, and every 4 from then on
		synctest.Wait()
		dials := int64(len(w.dialed()) - 1)
		if taken.Load() != dials || failed.Load() != dials || dials < 14 || dials > 17 {
			t.Errorf("in an hour %d jobs were taken, %d failed, %d connections were tried; want one each 4 minutes", taken.Load(), failed.Load(), dials)
		}
		w.setDown(host, false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if backlog > 0 || good.Load() != all-dials {
			t.Errorf("when the host is back: %d jobs were never taken, %d delivered", backlog, good.Load())
		}
	})
}

// A host that has turned away one source is tried by the others: their mail is not held back.
func TestOneSourceTurnedAwayHoldsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := destdb.New(destdb.Lifetimes{})
		w := newWorld(t, func(c *Config) { c.DB = db })
		defer w.end()
		h := w.host("mx", sink.Config{})
		w.s.Learn([]destdb.Record{{Key: destdb.Key{Addr: h.Addr, Source: "out1"}, Broken: destdb.Broken{Failures: 1,
			RetryAt: time.Now().Add(time.Hour), Why: reply.Reply{Code: 554, Text: "go away"}}}})
		r := routeTo("a", tier(h))
		if w.s.Submit(w.job(r, 1)) {
			t.Error("mail is taken that has no other way")
		}
		other := w.job(r, 1)
		other.Source = "out2"
		if !w.s.Submit(other) {
			t.Fatal("another source's mail is held back")
		}
		if res := w.awaitResults(1, time.Second)[0]; !res.Reply.OK() {
			t.Errorf("result %+v", res)
		}
		// From now on the site has room, so that the first source's mail is told why it can't go.
		w.send(r, 1)
		if res := w.awaitResults(2, time.Second)[1]; res.Reply.OK() || res.Attempted || res.RetryAfter.IsZero() {
			t.Errorf("result %+v", res)
		}
	})
}
