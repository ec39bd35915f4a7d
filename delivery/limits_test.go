package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
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

// arrivals gives when messages reached the sinks, from the first on.
func arrivals(w *world) (at []time.Duration) {
	all := w.recorder.Deliveries()
	for _, d := range all {
		at = append(at, d.At.Sub(all[0].At))
	}
	return at
}

func TestMessageRate(t *testing.T) {
	for name, limits := range map[string]Limits{
		"site":   {Site: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},
		"path":   {Path: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},
		"source": {Source: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},
		"tenant": {Tenant: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},
		"relay":  {Relay: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},

		"tenant from a source to a site": {TenantPath: Scope{MessageRate: gcra.Rate{Events: 10, Burst: 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, unhurried(limits))
				defer w.end()
				w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 51)
				w.awaitResults(51, time.Minute)
				at := arrivals(w)
				if last := at[50]; last < 5*time.Second || last > 5200*time.Millisecond {
					t.Errorf("51 messages at 10/s took %v, want 5 s", last)
				}
				for i := 11; i < len(at); i++ {
					if at[i]-at[i-11] < time.Second {
						t.Fatalf("12 messages within %v", at[i]-at[i-11])
					}
				}
			})
		})
	}
}

// The rates of the relay, of a tenant and of a provider hold over all sources and sites together, and the
// lanes have turns. That of a tenant from a source to a site is each lane's own.
func TestRatesOverSourcesAndSites(t *testing.T) {
	rate := Scope{MessageRate: gcra.Rate{Events: 12, Burst: 1}}
	for name, x := range map[string]struct {
		limits Limits
		want   int // messages a second
	}{
		"relay":                          {Limits{Relay: rate}, 12},
		"tenant":                         {Limits{Tenant: rate}, 12},
		"provider":                       {Limits{Provider: rate}, 12},
		"tenant from a source to a site": {Limits{TenantPath: rate}, 6 * 12},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, unhurried(x.limits))
				defer w.end()
				const seconds = 20
				lanes, left := 0, make(map[string]int)
				for _, site := range []string{"a", "b", "c"} {
					r := routeTo(site, tier(w.host("mx."+site, sink.Config{})))
					r.Provider = "big"
					for _, source := range []string{"out1", "out2"} {
						lanes++
						for range 300 {
							j, lane := w.job(r, 1), site+" "+source
							j.Message.Tenant, j.Source = "shop", source
							j.Done = func(_ *Job, results []Result) {
								w.mu.Lock()
								defer w.mu.Unlock()
								left[lane] += delivered(results)
							}
							w.submit(j)
						}
					}
				}
				time.Sleep(seconds * time.Second)
				synctest.Wait()
				sum, least := 0, seconds*x.want
				for _, n := range left {
					sum, least = sum+n, min(least, n)
				}
				if want := seconds * x.want; sum > want+lanes || sum < want*95/100 {
					t.Errorf("%d messages left in %d s, want %d: %v", sum, seconds, want, left)
				}
				if len(left) < lanes || least < seconds*x.want/lanes*8/10 {
					t.Errorf("the lanes have no turns: %v", left)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				w.s.Drain(ended)
			})
		})
	}
}

// A tenant at his limit holds nobody else.
func TestTenantRateIsHisOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, atOnce(func(c *Config) {
			c.Limits = func(_ *route.Route, _, tenant string) Limits {
				l := Limits{}
				if tenant == "slow" {
					l.Tenant.MessageRate = gcra.Rate{Events: 1, Burst: 1}
				}
				return l
			}
		}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for range 10 {
			j := w.job(r, 1)
			j.Message.Tenant = "slow"
			w.submit(j)
		}
		w.send(r, 100)
		time.Sleep(500 * time.Millisecond)
		if n := len(w.settled()); n != 101 {
			t.Errorf("%d delivered after half a second, want the other's 100 and one", n)
		}
		w.awaitResults(110, 10*time.Second)
	})
}

// A provider's limits hold for all its sites together.
func TestProviderIsOneBudget(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Provider: Scope{Connections: 3, MessageRate: gcra.Rate{Events: 20, Burst: 1}}}))
		defer w.end()
		h := w.host("mx1", sink.Config{Latency: 300 * time.Millisecond})
		g := w.host("mx2", sink.Config{Latency: 300 * time.Millisecond})
		a, b := routeTo("a", tier(h)), routeTo("b", tier(g))
		a.Provider, b.Provider = "p", "p"
		w.send(a, 30)
		w.send(b, 31)
		most := 0
		for range 50 {
			time.Sleep(50 * time.Millisecond)
			most = max(most, w.s.Counts().Live)
		}
		if most != 3 {
			t.Errorf("at most %d connections at a time, want 3", most)
		}
		w.awaitResults(61, time.Minute)
		at := arrivals(w)
		if last := at[60]; last < 2500*time.Millisecond {
			t.Errorf("61 messages at 20/s took %v", last)
		}
		seen := map[string]int{}
		for _, d := range w.recorder.Deliveries()[:40] {
			seen[d.Server]++
		}
		if seen["mx2"] < 5 {
			t.Errorf("of the first 40 messages: %v: the second site starves", seen)
		}
	})
}

// A shared scope holds for all lanes that have it, and for no other.
func TestSharedScope(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{}))
		defer w.end()
		w.s.cfg.Limits = func(r *route.Route, source, _ string) (l Limits) {
			if source != "free" {
				l.Share("pool p", Scope{Connections: 2, MessageRate: gcra.Rate{Events: 10, Burst: 1}})
			}
			return l.FillIn()
		}
		var mu sync.Mutex // guards left
		left := make(map[string]int)
		for _, source := range []string{"ip1", "ip2", "free"} {
			r := routeTo(source, tier(w.host("mx."+source, sink.Config{Latency: 300 * time.Millisecond})))
			for range 20 {
				j := w.job(r, 1)
				j.Source = source
				j.Done = func(j *Job, results []Result) {
					mu.Lock()
					left[source]++
					mu.Unlock()
					w.done(j, results)
				}
				w.submit(j)
			}
		}
		time.Sleep(1990 * time.Millisecond)
		synctest.Wait()
		live := w.s.LiveOf(PartySource, []string{"ip1", "ip2"})
		if live[0]+live[1] != 2 {
			t.Errorf("connections: %v, want two together", live)
		}
		mu.Lock()
		if n := left["ip1"] + left["ip2"]; n < 10 || n > 20 || left["free"] <= n {
			t.Errorf("delivered in 2 s at 10/s: %v", left)
		}
		mu.Unlock()
		w.awaitResults(60, time.Minute)
		if last := arrivals(w)[59]; last < 3900*time.Millisecond {
			t.Errorf("40 messages at 10/s took %v", last)
		}
	})
}

func TestConnectionRate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{ConnectionRate: gcra.Rate{Events: 1, Burst: 1}}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: 4 * time.Second}})))
		w.send(r, 30)
		time.Sleep(3500 * time.Millisecond)
		synctest.Wait()
		if n := len(w.dialed()); n != 4 {
			t.Errorf("%d connections in 3.5 s at 1/s, want 4", n)
		}
		w.awaitResults(30, 5*time.Minute)
	})
}

func TestSlowStart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			c.Limits = func(*route.Route, string, string) Limits {
				return Limits{Site: Scope{Connections: 6}, MaxDeliveriesPerConnection: 1e6}
			}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 100 * time.Millisecond, Without: sink.Pipelining})))
		w.send(r, 400)
		time.Sleep(450 * time.Millisecond) // EHLO, MAIL, RCPT, DATA: the content is not answered yet
		if n := len(w.dialed()); n != 1 {
			t.Errorf("%d connections before the first message was taken, want 1", n)
		}
		w.awaitResults(400, 10*time.Minute)
		if n := len(w.dialed()); n != 6 {
			t.Errorf("%d connections in the end, want the limit of 6", n)
		}
		if s := w.s.Sites("", 10)[0]; s.Allowed != 6 {
			t.Errorf("destdb remembers %v connections", s.Allowed)
		}
	})
}

// "Too many connections" halves what is in use, for a time and visibly.
func TestFewerConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var actions []destdb.Action
		w := newWorld(t, func(c *Config) {
			c.Limits = func(*route.Route, string, string) Limits { return Limits{Site: Scope{Connections: 8}} }
			c.OnAction = func(_ string, a destdb.Action) { actions = append(actions, a) }
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, MaxConnections: 4, Without: sink.Pipelining})))
		w.send(r, 300)
		if n := delivered(w.awaitResults(300, 10*time.Minute)); n != 300 {
			t.Errorf("%d delivered: a connection too many must cost no message", n)
		}
		if len(actions) == 0 {
			t.Fatal("no action")
		}
		a := actions[0]
		if a.What != fewerConnections || a.Reason == "" || !a.End.After(a.Begin) {
			t.Errorf("action %+v", a)
		}
	})
}

// A provider's throttling suspends the site for the source, is shown, and ends by itself.
func TestSuspendedByReply(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{}))
		defer w.end()
		h := w.host("mta5.am0.yahoodns.net", sink.Config{Refusals: []sink.Refusal{{Phase: sink.Mail, Prefix: "from@",
			Reply: "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred due to user complaints"}}})
		r := routeTo("g", tier(h))
		r.Provider = "yahoo"
		w.send(r, 1)
		if res := w.awaitResults(1, time.Minute)[0]; !res.Attempted || res.Reply.OK() {
			t.Errorf("result %+v", res)
		}
		dials := len(w.dialed())
		w.send(r, 3)
		other := w.job(r, 1)
		other.Source = "out2"
		w.submit(other)
		w.awaitResults(2, time.Minute) // the other source's, refused for itself
		time.Sleep(5 * time.Minute)
		if n := len(w.settled()); n != 2 {
			t.Errorf("%d results while suspended, want 2", n)
		}
		if n := len(w.dialed()); n != dials+1 {
			t.Errorf("%d connections while suspended, want only the other source's", n-dials)
		}
		lanes := lanes(w, "g")
		if len(lanes) != 2 || lanes[0].Why == "" || lanes[0].Until.IsZero() {
			t.Errorf("lanes %+v", lanes)
		}
		time.Sleep(11 * time.Minute)
		if n := len(w.settled()); n < 3 {
			t.Error("the suspension did not end by itself")
		}
	})
}

func TestSuspendAndResume(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.s.Suspend("a", "", "maintenance over there", time.Now().Add(time.Hour))
		w.send(r, 5)
		time.Sleep(time.Minute)
		if n := len(w.settled()) + len(w.dialed()); n != 0 {
			t.Fatalf("%d results and connections while suspended", n)
		}
		if n := w.s.Resume("a"); n != 1 {
			t.Errorf("resumed %d", n)
		}
		w.awaitResults(5, time.Second)
	})
}

// A host that an operator suspends gets nothing more, though it has connections; its mail goes to the
// others, and when there are none it stays with its owner and counts no attempt. A source can be
// suspended alone.
func TestSuspendAndResumeHosts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{}))
		defer w.end()
		mx1, mx2 := w.host("mx1", sink.Config{}), w.host("mx2", sink.Config{})
		r := routeTo("a", tier(mx1, mx2))
		for range 10 {
			w.send(r, 10)
			time.Sleep(time.Second)
		}
		w.awaitResults(100, time.Minute)
		until := time.Now().Add(time.Hour)
		if n := w.s.SuspendHosts(addrs(mx1), "", "it loses mail", until); n != 1 {
			t.Fatalf("%d hosts suspended", n)
		}
		w.send(r, 20)
		for _, res := range w.awaitResults(120, time.Minute)[100:] {
			if res.Host.Name != "mx2" || !res.Reply.OK() {
				t.Fatalf("result %+v", res)
			}
		}
		if n := w.s.SuspendHosts(addrs(mx2), "out1", "it, too", until.Add(time.Hour)); n != 1 {
			t.Fatalf("%d hosts suspended", n)
		}
		synctest.Wait()
		if c := w.s.Counts(); c.Live != 0 {
			t.Errorf("%d connections to suspended hosts are left", c.Live)
		}
		if w.submit(w.job(r, 1)) {
			t.Error("mail is taken that can go nowhere")
		}
		if why, ok := w.s.Blocked("a"); !ok || !strings.HasSuffix(why.Text, ": suspended: it loses mail") {
			t.Errorf("trouble %v %v", why, ok)
		}
		if l := lanes(w, "a")[0]; !l.Until.Equal(until) || !strings.Contains(l.Why, "suspended: it loses mail") {
			t.Errorf("lane %+v", l)
		}
		other := w.job(r, 1)
		other.Source = "out2"
		w.submit(other)
		if res := w.awaitResults(121, time.Minute)[120]; res.Host.Name != "mx2" || !res.Reply.OK() {
			t.Errorf("the other source's mail: %+v", res)
		}
		before := len(w.told())
		if hosts, ended := w.s.ResumeHosts(addrs(mx1, mx2)); hosts != 2 || ended != 2 {
			t.Errorf("resumed %d hosts, %d suspensions", hosts, ended)
		}
		synctest.Wait()
		if len(w.told()) == before {
			t.Error("who was refused was not told of room")
		}
		w.send(r, 10)
		if n := delivered(w.awaitResults(131, time.Minute)); n != 131 {
			t.Errorf("%d delivered", n)
		}
		// One that nobody ends ends by itself.
		w.s.SuspendHosts(addrs(mx1, mx2), "", "for a while", time.Now().Add(time.Minute))
		time.Sleep(61 * time.Second)
		w.send(r, 1)
		if n := delivered(w.awaitResults(132, time.Minute)); n != 132 {
			t.Errorf("%d delivered after the suspension's end", n)
		}
	})
}

// What waits for a host when it is suspended comes back withdrawn: that is no attempt.
func TestSuspendedWhileWaiting(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}}))
		defer w.end()
		mx := w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: time.Minute}})
		r := routeTo("a", tier(mx))
		w.send(r, 50)
		time.Sleep(time.Second)
		w.s.SuspendHosts(addrs(mx), "", "a test", time.Now().Add(time.Hour))
		results := w.awaitResults(50, 20*time.Minute)
		withdrawn := 0
		for _, res := range results {
			if res.Withdrawn {
				withdrawn++
			}
			if res.Withdrawn == res.Reply.OK() || res.Attempted == res.Withdrawn {
				t.Fatalf("result %+v", res)
			}
		}
		if withdrawn < 30 {
			t.Errorf("%d of 50 were withdrawn", withdrawn)
		}
	})
}

// TestARefusedConnectionIsToldOnce: what a host says of a connection is told once, and not for each of
// the recipients who waited for it and come back with those words. What it says of a message is not.
func TestARefusedConnectionIsToldOnce(t *testing.T) {
	for phase, told := range map[sink.Phase]bool{sink.Connect: true, sink.Hello: true, sink.Mail: false} {
		bubble.Test(t, func(t *testing.T) {
			var refused []string
			w := newWorld(t, func(c *Config) {
				c.OnRefused = func(r *route.Route, source string, words reply.Reply) {
					refused = append(refused, fmt.Sprint(r.Provider, " ", source, " ", words.Code, " ", words.Command))
				}
			})
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second, Hook: func(c sink.Command) (a sink.Answer) {
				if c.Phase == phase {
					a.Reply = "421 4.3.2 not now"
				}
				return a
			}})))
			r.Provider = "big"
			w.send(r, 500)
			for _, res := range w.awaitResults(500, time.Hour) {
				if res.Reply.OK() || told && (!res.Attempted || res.Reply.Code != 421) || res.Attempted && (res.Session == "") != told {
					t.Fatalf("%v: %+v", phase, res)
				}
			}
			counts := w.s.BySource()["out1"]
			w.s.mu.Lock()
			defer w.s.mu.Unlock()
			want := 0
			if told {
				want = len(w.dialed())
			}
			if n := counts.Failed[FailedByReply]; n != uint64(want) || (counts.Connected == 0) != told {
				t.Errorf("%v: %d connections made, %d refused by a reply, of %d", phase, counts.Connected, n, len(w.dialed()))
			}
			if len(refused) != want || told && !slices.Contains([]string{"big out1 421 greeting", "big out1 421 EHLO"}, refused[0]) {
				t.Errorf("%v: told %d times: %q, of %d connections", phase, len(refused), refused, len(w.dialed()))
			}
		})
	}
}

// TestReloadActsAtOnce: what was sent at a slower rate of whatever scope keeps nothing waiting.
func TestReloadActsAtOnce(t *testing.T) {
	slow := gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}
	for what, limits := range map[string]func(gcra.Rate) Limits{
		"relay":       func(r gcra.Rate) Limits { return Limits{Relay: Scope{MessageRate: r}} },
		"site":        func(r gcra.Rate) Limits { return Limits{Site: Scope{MessageRate: r}} },
		"source":      func(r gcra.Rate) Limits { return Limits{Source: Scope{MessageRate: r}} },
		"tenant":      func(r gcra.Rate) Limits { return Limits{Tenant: Scope{MessageRate: r}} },
		"tenant path": func(r gcra.Rate) Limits { return Limits{TenantPath: Scope{MessageRate: r}} },
		"rule":        func(r gcra.Rate) Limits { return Limits{Rules: []RuleRate{{Rule: 1, Rate: r, Why: "slow"}}} },
		"connections": func(r gcra.Rate) Limits {
			return Limits{Site: Scope{ConnectionRate: r}, MaxDeliveriesPerConnection: 1}
		},
	} {
		for _, fast := range []gcra.Rate{{}, {Events: 100}, {Events: 10, Burst: 1}} {
			t.Run(fmt.Sprint(what, " ", fast), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					rate := slow
					w := newWorld(t, atOnce(func(c *Config) {
						c.Limits = func(*route.Route, string, string) Limits { return limits(rate) }
					}))
					defer w.end()
					w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 20)
					w.awaitResults(1, time.Minute)
					if n := len(w.settled()); n != 1 {
						t.Fatalf("%d results at one an hour", n)
					}
					rate = fast
					w.s.Reload(nil)
					w.awaitResults(20, 3*time.Second)
				})
			})
		}
	}
}

// A rate counts the transactions that begin. What a lost connection had not begun is not charged twice.
func TestWhatDidNotBeginIsNotCharged(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1, MessageRate: gcra.Rate{Events: 4, Per: time.Hour, Burst: 4}}}))
		defer w.end()
		ends := 0
		cfg := sink.Config{Without: sink.Chunking, Latency: 50 * time.Millisecond, Hook: func(c sink.Command) sink.Answer {
			if c.Phase == sink.End {
				ends++
			}
			return sink.Answer{Drop: c.Phase == sink.End && ends == 1}
		}}
		r := routeTo("a", tier(w.host("mx1", cfg), w.host("mx2", cfg)))
		w.send(r, 3) // the first loses the connection. The second is under way with it and begins twice, the third waits
		if n := delivered(w.awaitResults(3, time.Minute)); n != 2 {
			t.Errorf("%d of 3 delivered", n)
		}
		if n := w.s.Counts().Moved; n != 2 {
			t.Errorf("%d messages changed their connection, want 2", n)
		}
	})
}

// A job under which five connections have died before it had its turn comes back untried at the sixth.
func TestJobThatConnectionsDieUnderComesBack(t *testing.T) {
	for _, moves := range []int{4, 5} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, HostRetry: 7 * time.Minute}))
			defer w.end()
			ends := 0
			cfg := sink.Config{Without: sink.Chunking, Latency: 50 * time.Millisecond, Hook: func(c sink.Command) sink.Answer {
				if c.Phase == sink.End {
					ends++
				}
				return sink.Answer{Drop: c.Phase == sink.End && ends == 1}
			}}
			r := routeTo("a", tier(w.host("mx1", cfg), w.host("mx2", cfg)))
			w.send(r, 2)
			w.s.mu.Lock()
			w.s.bySite["a"][0].waiting.newest.moves = moves
			w.s.mu.Unlock()
			results := w.awaitResults(2, time.Minute) // the first loses the connection
			last := results[1]
			if moves == 4 && !last.Reply.OK() {
				t.Errorf("after 5 connections %+v", last)
			}
			if moves == 5 && (last.Attempted || !last.Reply.Temporary() || time.Until(last.RetryAfter) < 6*time.Minute) {
				t.Errorf("after 6 connections %+v", last)
			}
		})
	}
}

// What is given back of a rate that lanes share is for the next in line, at once.
func TestWhatIsGivenBackIsForTheNextInLine(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Relay: Scope{MessageRate: gcra.Rate{Events: 3, Per: time.Hour, Burst: 3}},
			Site: Scope{Connections: 1}}))
		defer w.end()
		cfg := sink.Config{Without: sink.Chunking, Latency: 50 * time.Millisecond, Hook: func(c sink.Command) sink.Answer {
			return sink.Answer{Drop: c.Phase == sink.End}
		}}
		w.send(routeTo("a", tier(w.host("mx1", cfg))), 3) // the first loses the connection, the third had not begun
		w.s.mu.Lock()
		for p := w.s.bySite["a"][0].waiting.oldest; p != nil; p = p.newer {
			p.moves = maxMoves
		}
		w.s.mu.Unlock()
		time.Sleep(190 * time.Millisecond)
		w.send(routeTo("b", tier(w.host("mx2", sink.Config{}))), 1)
		if n := delivered(w.awaitResults(4, time.Minute)); n != 1 {
			t.Errorf("%d delivered, want the one of the other site", n)
		}
	})
}

// A host never has more connections than its connection_limit, and has as many when there is mail for them.
func TestConnectionLimitOfAHost(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Host: Scope{Connections: 3}}))
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Without: sink.Pipelining}))), 100)
		most := 0
		for w.count() < 100 {
			most = max(most, w.live())
			time.Sleep(10 * time.Millisecond)
		}
		if most != 3 {
			t.Errorf("%d connections at most, want 3", most)
		}
	})
}

// However many lanes wait for a rate, one of them has a timer, and they take turns.
func TestAnEventWakesOneLane(t *testing.T) {
	const sites, perSecond, seconds = 75, 10, 25
	rate := gcra.Rate{Events: perSecond, Burst: 1}
	jobs := func(site int) int { return 2 + site%5 } // some leave the line before others
	divided := func(name string, s Scope) Limits {
		return Limits{Divided: []NamedScope{{name, s}}, MaxDeliveriesPerConnection: 1}
	}
	for name, x := range map[string]struct {
		limits Limits
		tenant string
		none   bool
	}{
		"messages of a source":        {limits: Limits{Source: Scope{MessageRate: rate}}},
		"connections of a source":     {limits: Limits{Source: Scope{ConnectionRate: rate}, MaxDeliveriesPerConnection: 1}},
		"messages of a tenant":        {limits: Limits{Tenant: Scope{MessageRate: rate}}, tenant: "shop"},
		"messages that a rule slows":  {limits: Limits{Rules: []RuleRate{{Rule: 1, Rate: rate, Why: "slow"}}}},
		"messages of all relays":      {limits: divided("provider big", Scope{MessageRate: rate})},
		"connections of all relays":   {limits: divided("provider big", Scope{ConnectionRate: rate})},
		"a tenant's, of all relays":   {limits: divided("tenant shop", Scope{MessageRate: rate}), tenant: "shop"},
		"none, as others have it all": {limits: divided("provider other", Scope{MessageRate: rate}), none: true},
		"no places, others have them": {limits: divided("provider other", Scope{Connections: 1}), none: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				d := newDealer()
				w := newWorld(t, atOnce(func(c *Config) {
					c.Divider = d
					c.Limits = func(_ *route.Route, _, tenant string) Limits {
						if tenant == x.tenant {
							return x.limits
						}
						return Limits{}
					}
				}))
				defer w.end()
				d.give(w, map[string]float64{"provider big: messages": perSecond, "tenant shop: messages": perSecond,
					"provider big: new connections": perSecond})
				for i := range sites {
					r := routeTo(fmt.Sprint("s", i), tier(w.host(fmt.Sprint("mx", i), sink.Config{})))
					for range jobs(i) {
						j := w.job(r, 1)
						j.Message.Tenant = x.tenant
						w.submit(j)
					}
				}
				most := 0
				for range seconds {
					time.Sleep(time.Second)
					synctest.Wait()
					w.s.mu.Lock()
					most = max(most, w.s.timers.Len())
					w.s.mu.Unlock()
				}
				if most > 2 {
					t.Errorf("%d of %d lanes had a timer", most, sites)
				}
				all, ahead := w.recorder.Deliveries(), 0
				turns := make(map[string]int)
				for _, d := range all {
					turns[d.Recipient]++
					for i := range sites {
						if n := turns[fmt.Sprintf("r0@s%d.example", i)]; n < jobs(i) {
							ahead = max(ahead, turns[d.Recipient]-n)
						}
					}
				}
				switch want := seconds * perSecond; {
				case x.none && len(all) > 0:
					t.Errorf("%d messages left", len(all))
				case x.none:
				case len(all) < want-5 || len(all) > want+5:
					t.Errorf("%d messages in %d s at %d/s", len(all), seconds, perSecond)
				case ahead > 3: // in the first second, who has a connection first has two or three
					t.Errorf("a site had its turn %d times more often than another", ahead)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				w.s.Drain(ended)
			})
		})
	}
}

// TestTheNextInLineFollows when the mail of the first is cancelled, expires, or has no source any more.
func TestTheNextInLineFollows(t *testing.T) {
	for _, how := range []string{"cancelled", "expired", "reloaded"} {
		t.Run(how, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var gone atomic.Bool
				w := newWorld(t, func(c *Config) {
					source := c.Source
					unhurried(Limits{Relay: Scope{MessageRate: gcra.Rate{Events: 1, Per: 2 * time.Minute, Burst: 1}}})(c)
					c.Source = func(name string) (Source, bool) {
						s, ok := source(name)
						return s, ok && (name != "out2" || !gone.Load())
					}
				})
				defer w.end()
				var jobs []*Job
				for i := range 4 {
					j := w.job(routeTo(fmt.Sprint("s", i), tier(w.host(fmt.Sprint("mx", i), sink.Config{}))), 1)
					if i == 1 {
						j.Source = "out2"
						if how == "expired" {
							j.Expires = time.Now().Add(time.Minute)
						}
					}
					jobs = append(jobs, j)
					w.submit(j)
					time.Sleep(time.Second)
				}
				w.s.mu.Lock()
				first := w.s.budgets[budgetKey{kind: scopeTotal}].lines[dividedMessages].timed
				is := first != nil && first.waiting.oldest.work.Job == jobs[1]
				w.s.mu.Unlock()
				if !is {
					t.Fatal("the second job is not the first in line")
				}
				time.Sleep(time.Minute)
				switch how {
				case "cancelled":
					w.s.Cancel(jobs[1].Message.ID)
				case "reloaded":
					gone.Store(true)
					w.s.Reload(func(*Job) bool { return true })
				}
				time.Sleep(10 * time.Minute)
				if n := len(w.recorder.Deliveries()); n != 3 {
					t.Errorf("%d of 3 messages arrived", n)
				}
			})
		})
	}
}
