package delivery

import (
	"context"
	"fmt"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/delivery/tlspolicy"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// When load falls, the newest connection carries what is left and the old ones run dry and close.
func TestS7OldConnectionsRunDry(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 3}, ActiveTimeout: time.Hour, MaxDeliveriesPerConnection: 1e6}))
		defer w.end()
		h := w.host("mx", sink.Config{Latency: 20 * time.Millisecond})
		r := routeTo("a", tier(h))
		w.send(r, 200)
		w.awaitResults(200, time.Minute)
		if n := len(w.dialed()); n != 3 {
			t.Fatalf("%d connections under load, want 3", n)
		}
		for i := range 60 { // one a second: less than one connection's worth
			w.send(r, 1)
			time.Sleep(time.Second)
			w.awaitResults(201+i, time.Second)
		}
		live := w.live()
		if live != 1 || len(w.dialed()) != 3 {
			t.Errorf("%d connections left of %d, want the one that is used", live, len(w.dialed()))
		}
	})
}

// A message at its allowance gets further connections only by riding on those that are busy.
func TestS8BigEnvelopeRides(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{Site: Scope{Connections: 4}, MaxRecipients: 1})(c)
			c.ScaleMaxConcurrency = 1
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 100 * time.Millisecond})))
		w.submit(w.job(r, 60))
		synctest.Wait()
		// 2 by max; 4 - 2 = 2 free are not more than those it has.
		if n := len(w.dialed()); n != 2 {
			t.Errorf("%d connections for one message, want 2", n)
		}
		w.send(r, 1) // a small one may have one: the big one rides along
		if n := delivered(w.awaitResults(61, time.Minute)); n != 61 {
			t.Errorf("%d delivered", n)
		}
	})
}

func TestS11NextTierWhenTheFirstIsDown(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		a, b, c := w.host("mx10a", sink.Config{}), w.host("mx10b", sink.Config{}), w.host("mx20", sink.Config{})
		a.down, b.down = true, true
		r := routeTo("a", tier(a, b), tier(c))
		w.send(r, 20)
		for _, res := range w.awaitResults(20, time.Minute) {
			if !res.Reply.OK() || res.Host.Name != "mx20" {
				t.Fatalf("result %+v", res)
			}
		}
		down := 0
		for _, d := range w.dialed() {
			if d != "out1>mx20" {
				down++
			}
		}
		if down != 2 {
			t.Errorf("hosts that are down were tried more than once each: %v", w.dialed())
		}
	})
}

func TestS11AllDownDefersWithTheFirstRetryTime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{HostRetry: time.Minute}))
		defer w.end()
		a, b := w.host("mx10", sink.Config{}), w.host("mx20", sink.Config{})
		a.down, b.down = true, true
		r := routeTo("a", tier(a), tier(b))
		began := time.Now()
		w.send(r, 3)
		for _, res := range w.awaitResults(3, time.Second) {
			if res.Reply.Code != 451 || res.Host.Name == "" || !res.Attempted || res.RetryAfter.Sub(began).Round(time.Second) != time.Minute {
				t.Errorf("result %+v, retry in %v", res, res.RetryAfter.Sub(began))
			}
			if got, want := res.Reply.Text, res.Host.String()+": connection refused"; got != want {
				t.Errorf("says %q, want %q", got, want)
			}
		}
		if n := len(w.dialed()); n != 2 {
			t.Errorf("dialed %v", w.dialed())
		}
		// What comes while all are left alone is not taken.
		time.Sleep(time.Second)
		if w.submit(w.job(r, 1)) || w.s.Space(toA) != 0 {
			t.Error("a job was taken that can go nowhere")
		}
		// When its time has come it is tried, by one connection and one job, and works.
		w.setDown(a, false)
		time.Sleep(time.Minute)
		before := len(w.told())
		if n := w.s.Space(toA); n != 1 || before == 0 {
			t.Errorf("room for %d, told of it %d times; want one to try with", n, before)
		}
		w.send(r, 1)
		w.awaitResults(4, time.Minute)
		w.send(r, 5)
		if n := delivered(w.awaitResults(9, time.Minute)); n != 6 || w.s.Space(toA) < 1000 {
			t.Errorf("%d delivered, room for %d", n, w.s.Space(toA))
		}
	})
}

// Refused greetings and black holes are passed over within the attempt.
func TestOtherHostsWithinTheAttempt(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		hole, busy := w.host("hole", sink.Config{}), w.host("busy", sink.Config{Drop: map[sink.Phase]float64{sink.Connect: 1}})
		hole.hole = true
		r := routeTo("a", tier(hole, busy, w.host("good", sink.Config{})))
		w.send(r, 10)
		for _, res := range w.awaitResults(10, 2*time.Minute) {
			if !res.Reply.OK() || res.Host.Name != "good" {
				t.Fatalf("result %+v", res)
			}
		}
	})
}

// With a round trip of 200 ms several jobs are under way on each connection.
func TestS12JobsQueueOnConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 2}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 200 * time.Millisecond})))
		w.send(r, 1000)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		w.s.mu.Lock()
		for _, p := range w.s.db.Hosts(destdb.HostKey{}, 100)[0].Paths {
			if p.Backlog < 2*p.Connections {
				t.Errorf("%d connections have a backlog of %d, want at least 2 each", p.Connections, p.Backlog)
			}
		}
		w.s.mu.Unlock()
		w.awaitResults(1000, time.Minute)
	})
}

// The remote closes with jobs queued: all are delivered once, elsewhere, and count no attempt more.
func TestS13RemoteCloses(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{MaxMessages: 3, Latency: 10 * time.Millisecond})))
		w.send(r, 30)
		if n := delivered(w.awaitResults(30, time.Minute)); n != 30 {
			t.Errorf("%d of 30 delivered", n)
		}
		tally := w.recorder.Tally()
		if tally.Deliveries != 30 || tally.Unique != 30 {
			t.Errorf("the sink has %d, %d different", tally.Deliveries, tally.Unique)
		}
		if c := w.s.Counts(); c.Moved == 0 {
			t.Error("no job was moved: the test shows nothing")
		}
	})
}

func TestS13IdleConnectionMakesRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.MaxConnections = 2 })
		defer w.end()
		sites := make([]*route.Route, 5)
		for i := range sites {
			sites[i] = routeTo(fmt.Sprint("site", i), tier(w.host(fmt.Sprint("mx", i), sink.Config{})))
		}
		began := time.Now()
		for i, r := range sites {
			w.send(r, 1)
			w.awaitResults(i+1, time.Second)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("took %v: idle connections were waited for", d)
		}
	})
}

func TestS13Ages(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, IdleTimeout: 10 * time.Second, ActiveTimeout: time.Minute, MaxDeliveriesPerConnection: 50}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.send(r, 1)
		w.awaitResults(1, time.Second)
		time.Sleep(9 * time.Second)
		if s := hostState(w, "mx"); s != destdb.Idle {
			t.Errorf("after 9 s: %v, want idle", s)
		}
		time.Sleep(3 * time.Second)
		if s := hostState(w, "mx"); s != destdb.Closed {
			t.Errorf("after 12 s: %v, want closed", s)
		}
		for i := range 90 { // busy once a second for longer than the active age
			w.send(r, 1)
			time.Sleep(time.Second)
			w.awaitResults(i+2, time.Second)
		}
		// One at first; then one that lives for 50 messages, and another.
		if n := len(w.dialed()); n != 3 {
			t.Errorf("%d connections, want 3", n)
		}
	})
}

func TestS14ClosedPathIsUnusedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 1)
		w.awaitResults(1, time.Second)
		time.Sleep(time.Minute)
		if s := hostState(w, "mx"); s != destdb.Closed {
			t.Errorf("after a minute: %v", s)
		}
		time.Sleep(10 * time.Minute)
		if s := hostState(w, "mx"); s != destdb.Unused {
			t.Errorf("after ten more: %v", s)
		}
	})
}

// S15 in destdb is about records; this is a node that acts on them.
func TestS15LearnedElsewhere(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		db := destdb.New(destdb.Lifetimes{})
		w := newWorld(t, func(c *Config) { c.DB = db })
		defer w.end()
		h := w.host("mx", sink.Config{})
		w.learn(destdb.Record{Key: destdb.Key{Addr: h.Addr}, Broken: destdb.Broken{Failures: 1, RetryAt: time.Now().Add(time.Minute),
			Why: reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "connection refused")}})
		r := routeTo("a", tier(h))
		if w.submit(w.job(r, 1)) || len(w.dialed()) != 0 {
			t.Errorf("mail is taken for a host that another node knows to be down, dialed %v", w.dialed())
		}
		time.Sleep(time.Minute)
		w.send(r, 1)
		if res := w.awaitResults(1, time.Second)[0]; !res.Reply.OK() {
			t.Errorf("after the retry time: %v", res.Reply)
		}
	})
}

func TestS17ThousandsAtATime(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const n = 2000
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{})(c)
			c.MaxConnections = 2 * n
		})
		defer w.end()
		hold := sink.Config{Latency: time.Second, Without: sink.Chunking | sink.Pipelining} // one job each
		for i := range 20 {
			r := routeTo(fmt.Sprint("site", i), tier(w.host(fmt.Sprint("mx", i), hold)))
			w.send(r, n/20)
		}
		time.Sleep(4500 * time.Millisecond) // two handshakes, and no message is taken yet
		if c := w.s.Counts(); c.Live < n || c.Running < n {
			t.Errorf("%d connections, %d deliveries at a time, want %d", c.Live, c.Running, n)
		}
		if d := delivered(w.awaitResults(n, time.Minute)); d != n {
			t.Errorf("%d delivered", d)
		}
	})
}

// Two sites that share a host share its connections.
func TestSitesShareConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		h := w.host("mx", sink.Config{})
		w.send(routeTo("a", tier(h)), 1)
		w.awaitResults(1, time.Second)
		w.send(routeTo("b", tier(h)), 1)
		w.awaitResults(2, time.Second)
		if n := len(w.dialed()); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
		secure := w.job(routeTo("a", tier(h)), 1)
		secure.Demand.Level = tlspolicy.Required
		w.submit(secure)
		w.awaitResults(3, time.Minute)
		if n := len(w.dialed()); n != 2 {
			t.Errorf("%d connections: mail that demands TLS must not go where its certificate wasn't checked", n)
		}
	})
}

func TestBrokenTLSIsRetriedInClear(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var tried []bool
		w := newWorld(t, func(c *Config) {
			c.handshake = func(ctx context.Context, nc net.Conn, cfg smtpclient.Config) (session, error) {
				tried = append(tried, cfg.TLS != nil)
				if cfg.TLS != nil {
					nc.Close()
					return nil, &smtpclient.Error{Reply: reply.Local(451, reply.Enhanced{4, 7, 0}, "STARTTLS", "handshake failed"), TLS: true}
				}
				return handshake(ctx, nc, cfg)
			}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.send(r, 1)
		if res := w.awaitResults(1, time.Minute)[0]; !res.Reply.OK() || res.Link.TLS != (tlspolicy.Facts{}) {
			t.Errorf("result %+v", res)
		}
		time.Sleep(time.Minute) // the connection is gone, the lesson is not
		w.send(r, 1)
		w.awaitResults(2, time.Minute)
		if len(tried) != 3 || tried[2] {
			t.Errorf("tried with TLS %v, want true, false, false", tried)
		}
		required := w.job(r, 1)
		required.Demand.Level = tlspolicy.Required
		w.submit(required)
		if res := w.awaitResults(3, time.Minute)[2]; res.Reply.OK() || !res.Reply.Temporary() {
			t.Errorf("mail that needs TLS: %+v", res)
		}
	})
}

// One of ten sites answers nothing: the others don't notice.
func TestBlackHoleHarmsNobody(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		var sites []*route.Route
		for i := range 10 {
			h := w.host(fmt.Sprint("mx", i), sink.Config{Latency: 10 * time.Millisecond})
			h.hole = i == 0
			sites = append(sites, routeTo(fmt.Sprint("site", i), tier(h)))
		}
		began := time.Now()
		for range 100 {
			for _, r := range sites {
				w.send(r, 1)
			}
		}
		if n := delivered(w.awaitResults(900, time.Minute)); n != 900 {
			t.Errorf("%d delivered, want the other sites' 900", n)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("took %v", d)
		}
		w.awaitResults(1000, time.Minute)
		if n := w.s.Counts().ConnectFailed; n != 1 {
			t.Errorf("%d connections were tried to the black hole, want 1", n)
		}
	})
}

// Small mail is not held up by big envelopes: with the connections full of these, a single one waits for
// the next free place and not for all of them (S2).
func TestS2SmallMailPassesBigEnvelopes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 4}, MaxRecipients: 10, MaxDeliveriesPerConnection: 1e6}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: 50 * time.Millisecond}})))
		for range 20 {
			w.submit(w.job(r, 1000)) // 2,000 transactions of 50 ms on 4 connections: 25 s
		}
		time.Sleep(2 * time.Second)
		var slowest time.Duration
		for range 100 {
			j, began := w.job(r, 1), time.Now()
			j.Done = func(*Job, []Result) {
				w.mu.Lock()
				defer w.mu.Unlock()
				slowest = max(slowest, time.Since(began))
			}
			w.submit(j)
			time.Sleep(100 * time.Millisecond)
		}
		w.awaitResults(20_000, 5*time.Minute)
		if slowest > time.Second {
			t.Errorf("the slowest small message took %v", slowest)
		}
	})
}

// Torture: every phase fails now and then. Each message is delivered once, or counted as ambiguous, or
// its failure is told; nothing is left behind.
func TestTorture(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var moved, failed uint64
		doubtful := 0
		for seed := range uint64(4) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 5}, HostRetry: time.Second, MaxHostRetry: 2 * time.Second}))
			drop := map[sink.Phase]float64{}
			for _, p := range []sink.Phase{sink.Connect, sink.Greeting, sink.Hello, sink.Mail, sink.Rcpt, sink.Data, sink.Content, sink.End, sink.Kept} {
				drop[p] = .02
			}
			cfg := sink.Config{Drop: drop, Latency: 20 * time.Millisecond, MaxMessages: 20, MaxConnections: 4, Seed: seed,
				Refusals: []sink.Refusal{{Phase: sink.Rcpt, Share: .05, Reply: "450 4.2.1 later"}, {Phase: sink.End, Share: .05, Reply: "451 4.3.0 later"}}}
			r := routeTo("a", tier(w.host("mx1", cfg), w.host("mx2", cfg)))
			const n = 500
			accepted := map[int]int{}
			ambiguous := 0
			again := make(chan *Job, n)
			open := n
			var jobs []*Job
			for i := range n {
				j := w.job(r, 1)
				j.Done = func(j *Job, results []Result) {
					w.mu.Lock()
					defer w.mu.Unlock()
					if results[0].Ambiguous {
						ambiguous++
					}
					if results[0].Reply.OK() {
						accepted[i]++
						open--
						return
					}
					again <- j
				}
				jobs = append(jobs, j)
			}
			submit := func(j *Job) {
				if !w.submit(j) {
					again <- j // all hosts are down just now
				}
			}
			for _, j := range jobs {
				submit(j)
			}
			for end := time.Now().Add(time.Hour); ; {
				synctest.Wait()
				w.mu.Lock()
				left := open
				w.mu.Unlock()
				if left == 0 {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("seed %d: %d not delivered after an hour; %s", seed, left, w.picture())
				}
				time.Sleep(time.Second)
				for range len(again) {
					submit(<-again)
				}
			}
			w.end()
			tally := w.recorder.Tally()
			if tally.Unique != n || len(accepted) != n {
				t.Errorf("seed %d: %d of %d at the sink, %d told as delivered", seed, tally.Unique, n, len(accepted))
			}
			if twice := tally.Deliveries - tally.Unique; twice > int64(ambiguous) {
				t.Errorf("seed %d: %d came twice, only %d were ambiguous", seed, twice, ambiguous)
			}
			c := w.s.Counts()
			moved, doubtful, failed = moved+c.Moved, doubtful+ambiguous, failed+c.ConnectFailed
		}
		if moved == 0 || doubtful == 0 || failed == 0 {
			t.Errorf("too gentle: %d moved, %d ambiguous, %d connections failed", moved, doubtful, failed)
		}
	})
}
