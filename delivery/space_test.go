package delivery

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// TestWhoFilledTheRoomIsToldOfRoom is of a caller with parked jobs that hands over just as many
// as there is room for, and so is refused none: he used not to hear of room again.
func TestWhoFilledTheRoomIsToldOfRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
		n := w.s.Space(toA)
		for range n {
			w.send(r, 1)
		}
		if left := w.s.Space(toA); n != 10 || left != 0 {
			t.Fatalf("room for %d, and then for %d", n, left)
		}
		w.awaitResults(n, time.Hour)
		synctest.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.space) == 0 || w.space[0] != toA {
			t.Errorf("told of room: %v, want a", w.space)
		}
	})
}

// Space that is reserved is taken, until it is released or its job is done.
func TestReservedRoomIsTaken(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 4 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		var jobs []*Job
		for range 4 {
			j := w.job(r, 1)
			if !w.s.Reserve(j) {
				t.Fatalf("no room after %d", len(jobs))
			}
			jobs = append(jobs, j)
		}
		if n := w.s.Space(toA); n != 0 || w.s.Reserve(w.job(r, 1)) {
			t.Errorf("room for %d more", n)
		}
		w.s.Release(jobs[0])
		synctest.Wait()
		if told := w.told(); len(told) != 0 {
			t.Errorf("told of room for one: %v", told)
		}
		w.s.Release(jobs[1])
		synctest.Wait()
		if told := w.told(); len(told) != 1 || w.s.Space(toA) != 2 {
			t.Errorf("told of room: %v, want once; room for %d, want 2", told, w.s.Space(toA))
		}
		w.s.Submit(jobs[2])
		w.s.Submit(jobs[3])
		if n := delivered(w.awaitResults(2, time.Minute)); n != 2 || w.s.Space(toA) != 4 {
			t.Errorf("%d delivered, room for %d", n, w.s.Space(toA))
		}
	})
}

// Mail that was called for has its room, although a flow that came meanwhile makes the parts smaller.
func TestCalledMailHasItsRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
		n := w.s.Space(toA)
		other := w.job(r, 1)
		if other.Source = "out2"; !w.submit(other) {
			t.Fatal("no room for another source")
		}
		for i := range n {
			j := w.job(r, 1)
			if j.Called = true; !w.submit(j) {
				t.Fatalf("no room after %d of %d", i, n)
			}
		}
		if w.submit(w.job(r, 1)) {
			t.Error("room for what was not called for")
		}
		w.awaitResults(n+1, time.Minute)
	})
}

// TestOneJobFindsOutWhetherAHostIsBack: mail that was called for has no room of its own then, when other mail of the
// flow was quicker. The failure would cost an attempt of each.
func TestOneJobFindsOutWhetherAHostIsBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{HostRetry: time.Minute}))
		defer w.end()
		host := w.host("mx", sink.Config{})
		r := routeTo("a", tier(host))
		w.setDown(host, true)
		w.send(r, 1)
		w.awaitResults(1, time.Hour)
		for w.s.Space(toA) == 0 { // until it may be tried again
			time.Sleep(time.Second)
		}
		first, called := w.job(r, 1), w.job(r, 1)
		called.Called = true
		if !w.s.Reserve(first) || w.s.Reserve(called) {
			t.Error("want room for the first job only")
		}
		w.s.Release(first)
	})
}

// A job for which room was reserved, and that comes while the scheduler is stopping, goes back unattempted.
func TestReservedJobComesBackFromAStop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		j := w.job(routeTo("a", tier(w.host("mx", sink.Config{}))), 1)
		w.s.Reserve(j)
		if err := w.s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.s.Submit(j)
		if res := w.settled(); len(res) != 1 || res[0].Attempted || !res[0].Reply.Temporary() || len(w.dialed()) > 0 {
			t.Errorf("%+v", res)
		}
	})
}

// TestASuspendedSourceLeavesRoomForOthers: one source, suspended for an hour, has filled its site's
// share, before or after the suspension began. Another source's mail leaves at once.
func TestASuspendedSourceLeavesRoomForOthers(t *testing.T) {
	for _, before := range []bool{true, false} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Share = 16 })
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
			end := time.Now().Add(time.Hour)
			if before {
				w.s.Suspend("a", "out1", "blocked", end)
			}
			for range 40 {
				w.submit(w.job(r, 1))
			}
			if !before {
				w.s.Suspend("a", "out1", "blocked", end) // while the first connection is being opened
			}
			synctest.Wait()
			if l := lanes(w, "a")[0]; l.Waiting != 16 {
				t.Errorf("%d of the suspended source wait, there is room for 16", l.Waiting)
			}
			j := w.job(r, 1)
			j.Source = "out2"
			if !w.submit(j) {
				t.Fatal("no room for another source")
			}
			if res := w.awaitResults(1, time.Minute); len(res) != 1 || !res[0].Reply.OK() || res[0].Source != "out2" {
				t.Errorf("%+v", res)
			}
			if len(w.awaitResults(17, 2*time.Hour)) != 17 {
				t.Error("the suspended source's mail has not left in two hours")
			}
		})
	}
}

// TestFlowsHaveEqualParts: what one source has filled before the others came it may keep, and gets no
// more until it has less than its part, which is all of it again when the others have nothing.
func TestFlowsHaveEqualParts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const share = 60
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{Path: Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Second}}})(c)
			c.Share = share
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.s.Suspend("a", "", "until all have filled their parts", time.Now().Add(time.Minute))
		fill := func(source string) (n int) {
			for {
				j := w.job(r, 1)
				j.Source = source
				if !w.submit(j) {
					return n
				}
				n++
			}
		}
		for i, source := range []string{"out1", "out2", "out3", "out4"} {
			if n := fill(source); n != share/(i+1) {
				t.Errorf("%s has room for %d jobs, want %d", source, n, share/(i+1))
			}
		}
		told := func(source string) bool { return slices.Contains(w.told(), Flow{Site: "a", Source: source}) }
		for range share + share {
			time.Sleep(time.Second)
			synctest.Wait()
			for _, l := range lanes(w, "a") {
				if l.Waiting > share/2 && told(l.Source) {
					t.Fatalf("%s was told of room with %d jobs", l.Source, l.Waiting)
				}
			}
		}
		for _, l := range lanes(w, "a") {
			if !told(l.Source) {
				t.Errorf("%s was not told of room", l.Source)
			}
			if n := w.s.Space(Flow{Site: "a", Source: l.Source}); n != share {
				t.Errorf("%s has room for %d when nobody has jobs, want %d", l.Source, n, share)
			}
		}
	})
}

// Bulk that fills a site's share leaves room for what matters more, which goes first.
func TestBulkLeavesRoomForWhatMattersMore(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1, MessageRate: gcra.Rate{Events: 10, Burst: 1}}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		bulk := 0
		for ; ; bulk++ {
			j := w.job(r, 1)
			if j.Message.Tier = 4; !w.submit(j) {
				break
			}
		}
		synctest.Wait()
		reset, began := w.job(r, 1), time.Now()
		reset.Message.Tier = 1
		var took time.Duration
		reset.Done = func(*Job, []Result) { took = time.Since(began) }
		if !w.submit(reset) {
			t.Fatalf("refused, with %d of bulk before it", bulk)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if took == 0 || bulk < 1000 {
			t.Errorf("%d of bulk at 10/s: a message of tier 1 took %v", bulk, took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		w.s.Drain(ended)
	})
}

// TestOneSourceDrainsAlone: the backlog of a source that was suspended leaves at a limited rate, and has
// little room; other sources of the site send as they like.
func TestOneSourceDrainsAlone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for range 5 * 60 {
			w.send(r, 2)
			time.Sleep(time.Second)
		}
		w.s.Suspend("a", "out1", "outage", time.Now().Add(10*time.Minute))
		w.send(r, 500)
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		other := Flow{Site: "a", Source: "out2"}
		if !w.s.Draining(toA) || w.s.Draining(other) {
			t.Errorf("out1 drains: %v, out2: %v", w.s.Draining(toA), w.s.Draining(other))
		}
		if n := w.s.Space(toA); n != 0 {
			t.Errorf("room for %d of the backlog, of which there is more than leaves in two seconds", n)
		}
		if n := w.s.Space(other); n != 1000 {
			t.Errorf("out2 has room for %d, want half of 2,000", n)
		}
		before := w.count()
		for range 1000 {
			j := w.job(r, 1)
			j.Source = "out2"
			if !w.submit(j) {
				t.Fatal("refused where there was room")
			}
		}
		time.Sleep(time.Second)
		if n := w.count() - before; n < 1000 || n > 1005 {
			t.Errorf("%d have left, want out2's 1,000 and a few of out1's", n)
		}
	})
}

// TestBacklogOfABrokenHostStaysWithItsOwner: while no host of a site may be tried, its backlog is not
// taken: it costs no attempt, no disk read and no memory. At each retry time one job finds out, and
// when a host works again there is room for all.
func TestBacklogOfABrokenHostStaysWithItsOwner(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const share, all = 10, 500
		var w *world
		var r *route.Route
		var taken, failed, good atomic.Int64
		backlog := all
		handOver := func(f Flow) {
			for backlog > 0 && w.s.Space(f) > 0 {
				j := w.job(r, 1)
				j.Done = func(_ *Job, results []Result) {
					if results[0].Reply.OK() {
						good.Add(1)
					} else {
						failed.Add(1)
					}
				}
				if !w.submit(j) {
					t.Error("refused where there was room")
				}
				taken.Add(1)
				backlog--
			}
		}
		w = newWorld(t, func(c *Config) {
			unhurried(Limits{HostRetry: time.Minute, MaxHostRetry: 4 * time.Minute})(c)
			c.Share, c.OnSpace = share, func(f Flow) { handOver(f) }
		})
		defer w.end()
		host := w.host("mx", sink.Config{})
		r = routeTo("a", tier(host))
		w.setDown(host, true)
		w.send(r, 1)
		w.awaitResults(1, time.Hour) // now the host is known to be broken
		handOver(toA)
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
	bubble.Test(t, func(t *testing.T) {
		db := destdb.New(destdb.Lifetimes{})
		w := newWorld(t, func(c *Config) { c.DB = db })
		defer w.end()
		h := w.host("mx", sink.Config{})
		w.learn(destdb.Record{Key: destdb.Key{Addr: h.Addr, Source: "out1"}, Broken: destdb.Broken{Failures: 1,
			RetryAt: time.Now().Add(time.Hour), Why: reply.Reply{Code: 554, Text: "go away"}}})
		r := routeTo("a", tier(h))
		if w.submit(w.job(r, 1)) {
			t.Error("mail is taken that has no other way")
		}
		other := w.job(r, 1)
		other.Source = "out2"
		if !w.submit(other) {
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
