package delivery

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

const unusualRate = "421 4.7.28 Gmail has detected an unusual rate of mail originating from your IP address"

// taking makes a host that takes so many messages a minute, 0 for as many as come, and refuses the rest as Gmail does.
func taking(perMinute func(time.Time) int) sink.Config {
	var mu sync.Mutex // guards began
	var began []time.Time
	return sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
		if c.Phase != sink.Mail {
			return a
		}
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		for len(began) > 0 && now.Sub(began[0]) >= time.Minute {
			began = began[1:]
		}
		if n := perMinute(now); n > 0 && len(began) >= n {
			a.Reply = unusualRate
			return a
		}
		began = append(began, now)
		return a
	}}
}

// acceptedBetween counts the messages that the sinks took in a part of the time since start.
func acceptedBetween(w *world, start time.Time, from, to time.Duration) (n int) {
	for _, d := range w.recorder.Deliveries() {
		if at := d.At.Sub(start); at >= from && at < to {
			n++
		}
	}
	return n
}

// A site that refuses because of the rate gets mail slowly, then ever faster; at a refusal the rate goes back by half,
// also if the refusal ends a connection that has had mail, of two or of a hundred: the next one may take the message.
func TestSlowedByReply(t *testing.T) {
	for _, connections := range []int{1, 2, 100} {
		t.Run(strconv.Itoa(connections), func(t *testing.T) { slowedByReply(t, connections) })
	}
}

func slowedByReply(t *testing.T, connections int) {
	bubble.Test(t, func(t *testing.T) {
		start := time.Now()
		var actions []destdb.Action
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{Site: Scope{Connections: connections}})(c)
			c.OnAction = func(_ string, a destdb.Action) { actions = append(actions, a) }
		})
		defer w.end()
		r := routeTo("g", tier(w.host("gmail-smtp-in.l.google.com", taking(func(now time.Time) int {
			if now.Sub(start) > 30*time.Minute {
				return 0
			}
			return 25
		}))))
		r.Provider = "google"
		w.send(r, 1500)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(actions) != 1 || actions[0].What != slowed || actions[0].Source != "out1" ||
			!strings.Contains(actions[0].Reason, "google-rate: gmail-smtp-in.l.google.com answered 421 4.7.28") {
			t.Fatalf("actions %+v", actions)
		}
		info := lanes(w, "g")[0]
		if !strings.HasPrefix(info.Why, "slowed to 10/min: google-rate: ") || info.Until.IsZero() {
			t.Errorf("it waits for %q until %v", info.Why, info.Until)
		}
		time.Sleep(39 * time.Minute)
		synctest.Wait()
		for _, x := range []struct {
			from, to    time.Duration
			least, most int // a minute
			why         string
		}{
			{2 * time.Minute, 10 * time.Minute, 9, 11, "slowed"},
			{11*time.Minute + 10*time.Second, 12*time.Minute + 30*time.Second, 18, 22, "twice as fast"},
			{14 * time.Minute, 22 * time.Minute, 19, 21, "back to that, since more is refused"},
			{25 * time.Minute, 30 * time.Minute, 19, 21, "once more"},
			{37 * time.Minute, 39 * time.Minute, 70, 400, "all is taken"},
		} {
			minutes := (x.to - x.from).Minutes()
			if n := acceptedBetween(w, start, x.from, x.to); float64(n) < float64(x.least)*minutes || float64(n) > float64(x.most)*minutes {
				t.Errorf("%s: %d messages from %v to %v, want from %d to %d a minute", x.why, n, x.from, x.to, x.least, x.most)
			}
		}
		if last := actions[len(actions)-1]; len(actions) != 3 || last.Slow.Doubled != 1 {
			t.Errorf("%d actions, the last %+v, want three: slowed, and back twice", len(actions), last.Slow)
		}
		w.awaitResults(1500, time.Hour)
		time.Sleep(time.Hour)
		w.send(r, 1000)
		w.awaitResults(2500, time.Minute) // nothing is left of it
	})
}

// TestASlowDownIsEnded by an operator: mail does not wait for what left at its rate.
func TestASlowDownIsEnded(t *testing.T) {
	for _, bySource := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) {
				unhurried(Limits{Site: Scope{MessageRate: gcra.Rate{Events: 1000}}, Path: Scope{MessageRate: gcra.Rate{Events: 1000}}})(c)
				c.Backoff = []Rule{{Name: "slow", Codes: []int{421}, Slow: 24 * time.Hour, BySource: bySource,
					Rate: gcra.Rate{Events: 1, Per: time.Hour}}}
			})
			defer w.end()
			n := 0
			r := routeTo("a", tier(w.host("mx", sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
				if c.Phase == sink.Mail {
					if n++; n == 1 {
						a.Reply = unusualRate
					}
				}
				return a
			}})))
			w.send(r, 1)
			w.awaitResults(1, time.Minute)
			w.send(r, 20)
			time.Sleep(10 * time.Minute)
			if got := len(w.settled()); got != 2 {
				t.Errorf("%d results at one an hour", got)
			}
			w.s.Resume("a")
			w.awaitResults(21, 2*time.Second)
		})
	}
}

// A rule with a threshold leaves single refusals to those behind it.
func TestRuleAfterSeveralRefusals(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var actions []destdb.Action
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{})(c)
			c.OnAction = func(_ string, a destdb.Action) { actions = append(actions, a) }
			c.Backoff = []Rule{{Name: "often", Codes: []int{450}, After: gcra.Rate{Events: 3, Per: time.Hour}, Suspend: time.Minute}, {Name: "other", Codes: []int{451}, Suspend: time.Minute}}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Refusals: []sink.Refusal{{Phase: sink.Rcpt, Prefix: "r0@", Reply: "450 4.7.0 slow down"}}})))
		for i, x := range []struct {
			wait time.Duration
			want int
		}{{0, 0}, {50 * time.Minute, 0}, {20 * time.Minute, 0}, {30 * time.Minute, 1}, {10 * time.Minute, 1}, {10 * time.Minute, 1}, {10 * time.Minute, 2}} {
			time.Sleep(x.wait)
			w.send(r, 1)
			w.awaitResults(i+1, time.Minute)
			if len(actions) != x.want {
				t.Errorf("after %d refusals: %d actions, want %d", i+1, len(actions), x.want)
			}
		}
	})
}

// What was on its way when a slow-down began is refused with the first, and reaches no threshold; later refusals do.
func TestABurstIsOneRefusal(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var actions []string
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{})(c)
			c.OnAction = func(_ string, a destdb.Action) { actions = append(actions, a.What) }
			c.Backoff = []Rule{
				{Name: "block", Codes: []int{450}, After: gcra.Rate{Events: 3, Per: time.Hour}, Suspend: time.Hour},
				{Name: "rate", Codes: []int{450}, Slow: 10 * time.Minute, Rate: gcra.Rate{Events: 60, Per: time.Minute}},
			}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 100 * time.Millisecond,
			Refusals: []sink.Refusal{{Phase: sink.Rcpt, Prefix: "r0@", Reply: "450 4.7.0 slow down"}}})))
		w.send(r, 9)
		time.Sleep(slowOnce - time.Second)
		synctest.Wait()
		if len(actions) != 1 || actions[0] != slowed {
			t.Errorf("after a burst: %q", actions)
		}
		w.awaitResults(9, time.Minute)
		for range 2 {
			time.Sleep(slowOnce + time.Second)
			w.send(r, 1)
		}
		w.awaitResults(11, time.Minute)
		if actions[len(actions)-1] != suspended {
			t.Errorf("after two more: %q", actions)
		}
	})
}

// A slow-down can be a part of the usual rate, and of the connections. An operator ends it.
func TestSlowedToAPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{Site: Scope{MessageRate: gcra.Rate{Events: 2, Burst: 1}}})(c)
			c.Backoff = []Rule{{Name: "slow", Pattern: regexp.MustCompile("slow down"), RateFactor: .25, Connections: 1, Slow: time.Hour}}
		})
		defer w.end()
		start, refuse := time.Now(), true
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 500 * time.Millisecond, Hook: func(c sink.Command) (a sink.Answer) {
			if c.Phase == sink.Mail && refuse && time.Since(start) > 5*time.Minute {
				a.Reply, refuse = "450 4.7.0 slow down", false
			}
			return a
		}})))
		w.send(r, 1500)
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		if n := acceptedBetween(w, start, 6*time.Minute, 20*time.Minute); n < 13*30 || n > 15*30 {
			t.Errorf("%d messages in 14 minutes at a quarter of 120 a minute", n)
		}
		site, _ := w.s.Site("a")
		if site.Live != 1 || len(site.Actions) != 1 || site.Actions[0].Source != "" {
			t.Errorf("%d connections, actions %+v", site.Live, site.Actions)
		}
		if n := w.s.Resume("a"); n != 1 {
			t.Errorf("ended %d", n)
		}
		w.awaitResults(1500, 10*time.Minute)
	})
}

// A slow-down that was in force when the relay stopped goes on.
func TestSlowDownOutlivesARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		now := time.Now()
		db := destdb.New(destdb.Lifetimes{})
		slow := &destdb.Slow{Rate: 1, Hold: 10 * time.Minute, Last: now}
		db.Site("a").Actions = []destdb.Action{{What: slowed, Source: "out1", Reason: "rule: mx answered", Begin: now, End: slow.End(), Slow: slow}}
		w := newWorld(t, func(c *Config) {
			c.DB = db
			c.Limits = func(*route.Route, string, string) Limits { return Limits{MaxDeliveriesPerConnection: 1e6} }
		})
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 120)
		time.Sleep(time.Minute)
		if n := w.count(); n < 59 || n > 61 {
			t.Errorf("%d messages in a minute at 60/min", n)
		}
		w.awaitResults(120, 2*time.Minute)
	})
}

// TestRepliesThatEndAConnection: a 421 at MAIL counts for the rules if it is about the rate and not about the session,
// and once, whether it ends a connection that has had mail or is the answer to a message.
func TestRepliesThatEndAConnection(t *testing.T) {
	const rate = "421 4.7.0 too many messages, slow down"
	for what, c := range map[string]struct {
		reply          string
		first          bool // a connection's first message gets it, not its third
		needs, actions int
	}{
		"the rate":                    {rate, false, 1, 1},
		"the session":                 {"421 4.7.0 too many messages in this session", false, 1, 0},
		"the channel":                 {"421 4.7.0 too many messages, closing transmission channel", false, 1, 0},
		"no reason":                   {"421 4.3.2 shutting down", false, 1, 0},
		"the rate, to a message":      {rate, true, 1, 1},
		"the rate, to a message once": {rate, true, 2, 0},
	} {
		bubble.Test(t, func(t *testing.T) {
			var actions []destdb.Action
			w := newWorld(t, func(cfg *Config) {
				unhurried(Limits{Site: Scope{Connections: 1}})(cfg)
				cfg.OnAction = func(_ string, a destdb.Action) { actions = append(actions, a) }
				cfg.Backoff = []Rule{{Name: "421", Codes: []int{421}, Suspend: time.Hour,
					After: gcra.Rate{Events: c.needs, Per: time.Hour}}}
			})
			defer w.end()
			var mu sync.Mutex // guards mails
			mails := 0
			r := routeTo("a", tier(w.host("mx", sink.Config{Hook: func(x sink.Command) (a sink.Answer) {
				if x.Phase == sink.Mail {
					mu.Lock()
					defer mu.Unlock()
					if mails++; mails == 3 || c.first && mails == 1 {
						a.Reply = c.reply
					}
				}
				return a
			}})))
			n := 3
			if c.first {
				n = 1
			}
			w.send(r, n)
			time.Sleep(time.Minute)
			synctest.Wait()
			if len(actions) != c.actions {
				t.Errorf("%s: %d actions, want %d: %+v", what, len(actions), c.actions, actions)
			}
		})
	}
}
