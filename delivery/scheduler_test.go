package delivery

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

func TestDelivers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx1.a.example", sink.Config{})))
		w.send(r, 100)
		results := w.awaitResults(100, 10*time.Second)
		if n := delivered(results); n != 100 {
			t.Fatalf("%d of 100 delivered: %+v", n, results[0])
		}
		tally := w.recorder.Tally()
		if tally.Unique != 100 || tally.Deliveries != 100 {
			t.Errorf("the sink has %d messages, %d different", tally.Deliveries, tally.Unique)
		}
		res := results[0]
		if !res.Attempted || res.Host.Name != "mx1.a.example" || res.Source != "out1" || res.Session == "" {
			t.Errorf("result %+v", res)
		}
	})
}

func TestRefusedIndividually(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Refusals: []sink.Refusal{
			{Phase: sink.Rcpt, Prefix: "r1@", Reply: "550 5.1.1 no such user"},
			{Phase: sink.Rcpt, Prefix: "r2@", Reply: "450 4.2.1 later"}}})))
		w.submit(w.job(r, 4))
		want := map[int]int{0: 250, 1: 550, 2: 450, 3: 250}
		for _, res := range w.awaitResults(4, 10*time.Second) {
			if res.Reply.Code != want[res.Recipient] || !res.Attempted {
				t.Errorf("recipient %d: %v", res.Recipient, res.Reply)
			}
		}
	})
}

func TestBigEnvelopeGoesInBatches(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.submit(w.job(r, 1050))
		if n := delivered(w.awaitResults(1050, 10*time.Second)); n != 1050 {
			t.Errorf("%d delivered", n)
		}
		if tally := w.recorder.Tally(); tally.Messages != 11 {
			t.Errorf("%d transactions, want 11 of at most 100 recipients", tally.Messages)
		}
		if w.jobs != 1 {
			t.Errorf("Done was called %d times", w.jobs)
		}
	})
}

func TestHostTakesFewerRecipientsThanItMust(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{MaxRecipients: 7})))
		w.submit(w.job(r, 50))
		results := w.awaitResults(50, 10*time.Second)
		if n := delivered(results); n != 50 {
			t.Errorf("%d delivered; first %v", n, results[0].Reply)
		}
	})
}

// A 452 teaches how many recipients a host takes: the next message is cut to fit, and none is refused.
func TestTheRecipientLimitIsLearned(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		asked := 0
		h := sink.Config{MaxRecipients: 7, Hook: func(c sink.Command) sink.Answer {
			if c.Phase == sink.Rcpt {
				asked++
			}
			return sink.Answer{}
		}}
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", h)))
		w.submit(w.job(r, 10))
		w.awaitResults(10, 10*time.Second)
		before := asked
		w.submit(w.job(r, 28))
		if n := delivered(w.awaitResults(38, 10*time.Second)); n != 38 {
			t.Errorf("%d of 38 delivered", n)
		}
		if before != 13 {
			t.Errorf("%d RCPT for the first ten recipients, want 13: three of them twice", before)
		}
		if n := asked - before; n != 28 {
			t.Errorf("%d RCPT for 28 recipients, want each once", n)
		}
		if n := w.recorder.Tally().Messages; n != 2+4 {
			t.Errorf("%d transactions, want 6", n)
		}
	})
}

func TestUnknownSource(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		j := w.job(routeTo("a", tier(w.host("mx", sink.Config{}))), 2)
		j.Source = "nobody"
		w.submit(j)
		for _, res := range w.awaitResults(2, time.Second) {
			if res.Attempted || !res.Reply.Temporary() {
				t.Errorf("result %+v", res)
			}
		}
	})
}

// A job that doesn't fit the share stays the caller's, who hears of room when half the share is free.
func TestShareOfMemory(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		h := w.host("mx", sink.Config{Latency: time.Second})
		r := routeTo("a", tier(h))
		taken := 0
		for range 15 {
			if w.submit(w.job(r, 1)) {
				taken++
			}
		}
		if taken != 10 || w.s.Space(toA) != 0 {
			t.Fatalf("%d jobs taken, room for %d more", taken, w.s.Space(toA))
		}
		w.awaitResults(10, time.Minute)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(w.space) != 1 || w.space[0] != toA || w.s.Space(toA) != 10 {
			t.Errorf("told of room: %v, want once; room now %d", w.space, w.s.Space(toA))
		}
		time.Sleep(tick)
		synctest.Wait()
		w.s.mu.Lock()
		defer w.s.mu.Unlock()
		if len(w.s.shares) != 0 {
			t.Error("a share without jobs is remembered")
		}
	})
}

func TestExpiresWhileItWaits(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		h := w.host("hole", sink.Config{})
		h.hole = true
		j := w.job(routeTo("a", tier(h)), 1)
		j.Expires = time.Now().Add(5 * time.Second)
		w.submit(j)
		res := w.awaitResults(1, 7*time.Second)[0]
		if res.Attempted || res.Reply.Enhanced != [3]uint16{4, 4, 7} {
			t.Errorf("result %+v", res)
		}
	})
}

func TestCancel(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		h := w.host("hole", sink.Config{})
		h.hole = true
		r := routeTo("a", tier(h))
		j := w.job(r, 250)
		w.submit(j)
		w.send(r, 1)
		if n := w.s.Cancel(j.Message.ID); n != 250 {
			t.Errorf("%d recipients taken back, want 250", n)
		}
		if res := w.awaitResults(250, time.Second); len(res) != 250 || res[0].Attempted {
			t.Errorf("%d results, %+v", len(res), res[0])
		}
	})
}

// TestMayBegin: a job can be taken back until its first command goes out, when it is on a connection
// already; what is behind it goes on.
func TestMayBegin(t *testing.T) {
	for _, mode := range []sink.Config{{Latency: time.Second}, {Latency: time.Second, Without: sink.Chunking}, {Latency: time.Second, Without: sink.Chunking | sink.Pipelining}} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.MaxConnections = 1 })
			defer w.end()
			r := routeTo("a", tier(w.host("mx", mode)))
			begin := time.Now()
			var asked []time.Duration
			for i := range 3 {
				j := w.job(r, 1)
				if i == 1 {
					j.MayBegin = func(n int) bool { asked = append(asked, time.Since(begin)); return n != 1 }
				} else {
					j.MayBegin = func(n int) bool { return n == 1 }
				}
				w.submit(j)
			}
			results := w.awaitResults(3, time.Minute)
			withdrawn := 0
			for _, res := range results {
				if res.Withdrawn {
					withdrawn++
				}
				if res.Withdrawn == res.Reply.OK() || res.Attempted == res.Withdrawn {
					t.Errorf("result %+v", res)
				}
			}
			if withdrawn != 1 || len(asked) != 1 || asked[0] == 0 {
				t.Errorf("%d withdrawn, asked %v after the hand-over; want once, when the connection stands", withdrawn, asked)
			}
		})
	}
}

// TestWhatMayNotBeginCostsNoTurn: jobs whose time is over when it is their turn hold up no other by the
// rate at which they would have left.
func TestWhatMayNotBeginCostsNoTurn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Path: Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Second}}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		ends := time.Now().Add(10*time.Second + time.Millisecond)
		for range 100 {
			j := w.job(r, 1)
			j.MayBegin = func(int) bool { return time.Now().Before(ends) }
			w.submit(j)
		}
		time.Sleep(time.Until(ends))
		before := delivered(w.settled())
		w.send(r, 5)
		time.Sleep(6 * time.Second)
		results := w.settled()
		if n := delivered(results) - before; len(results) != 105 || n != 5 {
			t.Errorf("%d of 5 have left by their turns, %d of 105 are done", n, len(results))
		}
	})
}

func TestDrain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 500 * time.Millisecond})))
		w.send(r, 200)
		time.Sleep(5 * time.Second)
		if err := w.s.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		results := w.settled()
		if len(results) != 200 {
			t.Fatalf("%d of 200 came back", len(results))
		}
		for _, res := range results {
			if !res.Reply.OK() && res.Attempted {
				t.Errorf("attempted, and not delivered: %v", res.Reply)
			}
		}
		if n := delivered(results); n == 0 || int64(n) != w.recorder.Tally().Deliveries {
			t.Errorf("%d delivered, the sink has %d", n, w.recorder.Tally().Deliveries)
		}
		if w.submit(w.job(r, 1)) {
			t.Error("took a job after Drain")
		}
	})
}

// What waits for a source that is taken out of the configuration is given back at once, to leave by
// another: nothing has failed.
func TestReloadWithoutASourceGivesItsMailBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		gone := false
		w := newWorld(t, atOnce(func(c *Config) {
			c.Source = func(name string) (Source, bool) { return Source{Name: name, EHLO: "relay.example"}, !gone }
			c.Limits = func(*route.Route, string, string) Limits {
				return Limits{Site: Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}}}
			}
		}))
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 5)
		w.awaitResults(1, time.Minute)
		gone = true
		w.s.Reload(nil)
		for _, r := range w.awaitResults(5, time.Second)[1:] {
			if !r.Withdrawn || r.Attempted {
				t.Errorf("result %+v, want it withdrawn", r)
			}
		}
	})
}

// So is what may not take its source any longer; the rest waits as before.
func TestReloadGivesBackWhatMayNotStay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, atOnce(func(c *Config) {
			c.Limits = func(*route.Route, string, string) Limits {
				return Limits{Site: Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}}}
			}
		}))
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 5)
		w.awaitResults(1, time.Minute)
		left := 2
		w.s.Reload(func(*Job) bool { left--; return left >= 0 })
		for _, r := range w.awaitResults(3, time.Second)[1:] {
			if !r.Withdrawn || r.Attempted {
				t.Errorf("result %+v, want it withdrawn", r)
			}
		}
		for _, r := range w.awaitResults(5, 3*time.Hour)[3:] {
			if !r.Reply.OK() {
				t.Errorf("result %+v of what stays", r)
			}
		}
	})
}

// TestLanesAndTheirBudgetsAreForgotten: within an hour a lane's limits are remembered, after that
// nothing is.
func TestLanesAndTheirBudgetsAreForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 1)
		time.Sleep(laneLife / 2)
		left := func() (lanes, budgets int) {
			synctest.Wait()
			w.s.mu.Lock()
			defer w.s.mu.Unlock()
			return len(w.s.lanes), len(w.s.budgets)
		}
		if lanes, budgets := left(); lanes != 1 || budgets != 7 {
			t.Errorf("after half an hour there are %d lanes and %d budgets, want the relay's four, the site's, the source's, the path's", lanes, budgets)
		}
		time.Sleep(laneLife)
		if lanes, budgets := left(); lanes != 0 || budgets != 4 {
			t.Errorf("after another hour there are %d lanes and %d budgets, want the relay's four budgets", lanes, budgets)
		}
	})
}

// An address with several names has each where mail goes by it: certificates are for names.
func TestAnAddressKeepsItsNamesApart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		a := w.host("mx.a", sink.Config{})
		b := &worldHost{Host: route.Host{Name: "mx.b", Addr: a.Addr}}
		for i, r := range []*route.Route{routeTo("a", tier(a)), routeTo("b", tier(b)), routeTo("a", tier(a))} {
			w.send(r, 1)
			w.awaitResults(i+1, time.Second)
			time.Sleep(time.Minute) // it is idle, and closed
		}
		if got, want := w.dialed(), []string{"out1>mx.a", "out1>mx.b", "out1>mx.a"}; !slices.Equal(got, want) {
			t.Errorf("dialed %q, want %q", got, want)
		}
	})
}
