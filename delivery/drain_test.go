package delivery

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// Short outages amid a drain must not keep its backlog for ever, as
// they did when the time that a site was away was lost to the limit.
func TestDrainOfASiteThatComesAndGoes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{})(c)
			c.Share = 100_000
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		const perSecond = 4
		waiting := func(seconds int, away func(second int) time.Duration) int {
			for i := range seconds {
				if d := away(i); d > 0 {
					w.s.Suspend("a", "", "outage", time.Now().Add(d))
				}
				w.send(r, perSecond)
				time.Sleep(time.Second)
			}
			return lanes(w, "a")[0].Waiting
		}
		waiting(10*60, func(int) time.Duration { return 0 })
		before := waiting(5*60, func(i int) time.Duration {
			if i == 0 {
				return 5 * time.Minute
			}
			return 0
		})
		after := waiting(30*60, func(i int) time.Duration {
			if i%20 == 5 {
				return 12 * time.Second
			}
			return 0
		})
		if after > before/2 {
			t.Errorf("%d wait after half an hour of a drain with short outages, %d did at its begin", after, before)
		}
	})
}

// drainTrial sends a site so much mail each second, through an outage, and looks at how what has piled up
// leaves.
type drainTrial struct {
	*world
	route *route.Route

	came, old int             // delivered; of those, accepted before the outage ended
	waited    []time.Duration // of fresh mail
	handed    []time.Time     // each transaction that the host saw
}

const drainPerSecond = 4

// newDrainTrial makes one whose host takes at most so many messages in any second, and answers the rest
// with a deferral. 0 is any number.
func newDrainTrial(t *testing.T, limit int) *drainTrial {
	x := &drainTrial{world: newWorld(t, func(c *Config) {
		unhurried(Limits{HostRetry: 20 * time.Second, MaxHostRetry: 20 * time.Second})(c)
		c.Share = 100_000
	})}
	var mu sync.Mutex
	var taken []time.Time
	x.route = routeTo("a", tier(x.host("mx", sink.Config{Hook: func(c sink.Command) sink.Answer {
		if c.Phase != sink.Rcpt {
			return sink.Answer{}
		}
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		x.handed = append(x.handed, now)
		for len(taken) > 0 && now.Sub(taken[0]) >= time.Second {
			taken = taken[1:]
		}
		if limit > 0 && len(taken) >= limit {
			return sink.Answer{Reply: "451 4.3.2 slow down"}
		}
		taken = append(taken, now)
		return sink.Answer{}
	}})))
	return x
}

// second sends what comes in a second. What is deferred comes again at once.
func (x *drainTrial) second(fresh bool) {
	for range drainPerSecond {
		began := time.Now()
		j := x.job(x.route, 1)
		j.Done = func(j *Job, results []Result) {
			if !results[0].Reply.OK() {
				if results[0].Attempted {
					go x.again(j)
				}
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			if x.came++; fresh {
				x.waited = append(x.waited, time.Since(began))
			} else {
				x.old++
			}
		}
		if !submit(x.s, j) {
			x.t.Error("a job is refused")
		}
	}
	time.Sleep(time.Second)
}

// again submits what was deferred, as soon as there is room for it.
func (x *drainTrial) again(j *Job) {
	for x.t.Context().Err() == nil && !submit(x.s, j) {
		time.Sleep(100 * time.Millisecond)
	}
}

func (x *drainTrial) counts() (came, old int) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.came, x.old
}

// outage is ten minutes of mail and then so many seconds in which it piles up. It returns how many
// messages have.
func (x *drainTrial) outage(seconds int) (backlog int) {
	for range 10 * 60 {
		x.second(false)
	}
	_, before := x.counts()
	x.s.Suspend("a", "", "outage", time.Now().Add(time.Duration(seconds)*time.Second))
	for range seconds {
		x.second(false)
	}
	if _, n := x.counts(); n > before+2*drainPerSecond {
		x.t.Fatalf("%d were delivered during the outage", n-before)
	}
	if !x.s.Draining(toA) {
		x.t.Fatal("a backlog after an outage does not drain")
	}
	_, delivered := x.counts()
	return (10*60+seconds)*drainPerSecond - delivered
}

// fullest gives the most transactions in any second from one time to another.
func (x *drainTrial) fullest(from, to time.Time) (most int) {
	var in []time.Time
	for _, at := range x.handed {
		if at.Before(from) || !at.Before(to) {
			continue
		}
		for in = append(in, at); at.Sub(in[0]) >= time.Second; {
			in = in[1:]
		}
		most = max(most, len(in))
	}
	return most
}

// T9: a drain begins at the usual rate, and a site that defers what is above that gets 1 to 1.5 times
// as much from then on, fresh mail first; the backlog has its fifth of the rate all the same. The whole
// way, from the queue, is tested in package mta.
func TestT9_DrainsSmoothly(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newDrainTrial(t, drainPerSecond*3/2)
		defer x.end()
		backlog := x.outage(5 * 60)
		back := time.Now()
		_, before := x.counts()
		least, minutes, gone, last := drainPerSecond*60, 0, 0, before
		for i := 0; i < 3600 && gone < backlog; i++ {
			x.second(true)
			_, old := x.counts()
			gone = old - before
			if i%60 == 59 && gone < backlog {
				least, minutes, last = min(least, old-last), minutes+1, old
			}
		}
		if most := x.fullest(back, time.Now()); most > drainPerSecond*16/10+1 {
			t.Errorf("a second had %d transactions, want at most 1.6 times %d", most, drainPerSecond)
		}
		if gone < backlog || minutes > 25 {
			t.Errorf("after %d minutes %d of the backlog are left", minutes, backlog-gone)
		}
		if least < drainPerSecond*60/5-1 {
			t.Errorf("a minute had %d of the backlog, want a fifth of the rate at least", least)
		}
		late := 0
		for _, d := range x.waited {
			if d > time.Second {
				late++
			}
		}
		// As long as f is below 1.25, four fifths of the budget are less than what comes: a tenth of five
		// minutes' mail. What is deferred comes a little later.
		if bound := drainPerSecond * 300 / 10 * 12 / 10; late > bound {
			t.Errorf("%d of %d fresh messages waited, want at most %d", late, len(x.waited), bound)
		}
		if len(x.waited) < 1000 {
			t.Errorf("%d fresh messages came meanwhile, want 1,000 at least", len(x.waited))
		}
		t.Logf("%d transactions in the fullest second, the backlog of %d gone in %d minutes, the least of a minute %d, %d of %d fresh messages late",
			x.fullest(back, time.Now()), backlog, minutes, least, late, len(x.waited))
	})
}

// A site that takes everything gets twice as much each half minute, from the usual rate on.
func TestDrainDoublesWithoutTrouble(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newDrainTrial(t, 0)
		defer x.end()
		const outage = 20 * 60
		backlog := x.outage(outage)
		back := time.Now()
		_, before := x.counts()
		took, gone := 0, 0
		for ; took < 3600 && gone < backlog; took++ {
			x.second(true)
			_, old := x.counts()
			gone = old - before
		}
		if most := x.fullest(back, back.Add(10*time.Second)); most > drainPerSecond*16/10 {
			t.Errorf("of the first ten seconds one had %d transactions, want at most 1.6 times %d", most, drainPerSecond)
		}
		if took > 5*60 {
			t.Errorf("the backlog of %d took %d s, want five minutes at most", backlog, took)
		}
		for half := 30 * time.Second; half < time.Duration(took)*time.Second; half += 30 * time.Second {
			most, limit := x.fullest(back.Add(half-time.Second), back.Add(half)), 1.15*drainPerSecond*float64(int(2)<<(half/(30*time.Second)-1))
			if float64(most) > limit+1 {
				t.Errorf("%d transactions in the second before %v, want at most %.0f", most, half, limit)
			}
		}
		slices.Sort(x.waited)
		p99 := x.waited[len(x.waited)*99/100]
		if p99 > 5*time.Second {
			t.Errorf("the p99 of fresh mail waited %v, want 5 s at most", p99)
		}
		t.Logf("the backlog of %d was gone in %d s, fresh mail waited %v (p99)", backlog, took, p99)
	})
}

// What is said about the end of a drain comes true.
func TestDrainSaysWhenItEnds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		x := newDrainTrial(t, 0)
		defer x.end()
		x.outage(30 * 60)
		l := lanes(x.world, "a")[0]
		if l.Draining == nil {
			t.Fatal("the lane does not drain")
		}
		said, began := l.Draining.Takes(l.Waiting), time.Now()
		_, before := x.counts()
		for old := before; old < before+l.Waiting; _, old = x.counts() {
			x.second(true)
		}
		if took := time.Since(began); took < said*9/10 || took > said*11/10+time.Second {
			t.Errorf("%d messages took %v, and %v was said", l.Waiting, took, said)
		}
	})
}

// What is about one address is no sign of trouble.
func TestSignsOfTrouble(t *testing.T) {
	for text, failure := range map[string]bool{
		"451 4.3.2 slow down":                  true,
		"421 4.7.0 too much mail":              true,
		"450 too busy":                         true,
		"452 4.2.2 mailbox full":               false,
		"450 4.1.1 no such user yet":           false,
		"450 4.7.1 greylisted, come back soon": false,
		"550 5.1.1 no such user":               false,
	} {
		bubble.Test(t, func(t *testing.T) {
			now := time.Now()
			d := drain{began: now, grows: now, level: 8, least: 1}
			now = now.Add(30 * time.Second)
			before := d.perSecond(now)
			r := replyOf(t, text)
			d.refused(&r, bounce.Of(r), now)
			if after := d.perSecond(now); (after < before) != failure {
				t.Errorf("%s: from %v/s to %v/s", text, before, after)
			}
		})
	}
}

// The relay's own absence is no outage of a site: what it had, and what comes, leaves as it would have.
func TestAStopOfTheRelayIsNoOutage(t *testing.T) {
	for _, x := range []struct {
		name  string
		drain bool // amid one the relay stopped
		least time.Duration
		most  time.Duration
	}{
		{"no drain", false, 0, time.Second},
		{"amid a drain", true, 4 * time.Second, 10 * time.Second},
	} {
		t.Run(x.name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, unhurried(Limits{}))
				w.end() // the ids of before are what is needed of it
				old := make([]*Job, 100)
				h := route.Host{Name: "mx", Addr: netip.MustParseAddrPort("192.0.2.1:25")}
				r := &route.Route{Domain: "a.example", Site: "a", Tiers: []route.Tier{{h}}}
				for i := range old {
					old[i] = w.job(r, 1)
				}
				good := time.Now()
				record := destdb.Record{Key: destdb.Key{Site: "a"}, Used: good, Good: good, Usual: 10}
				if x.drain {
					record.DrainBegan, record.DrainRate = good, 10
				}
				time.Sleep(time.Hour)
				again := newWorld(t, func(c *Config) {
					unhurried(Limits{})(c)
					c.DB = destdb.New(destdb.Lifetimes{})
					c.DB.Learn([]destdb.Record{record})
				})
				defer again.end()
				again.host("mx", sink.Config{})
				began := time.Now()
				for len(old) > 0 {
					if old[0].Done = again.done; submit(again.s, old[0]) {
						old = old[1:]
						continue
					}
					time.Sleep(10 * time.Millisecond)
				}
				again.awaitResults(100, 10*time.Minute)
				if took := time.Since(began); took < x.least || took > x.most {
					t.Errorf("took %v, want from %v to %v", took, x.least, x.most)
				}
			})
		})
	}
}

// The usual rate is that of the time with mail: neither pauses nor restarts make it lower.
func TestUsualRateIsOfTheTimeWithMail(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{MessageRate: gcra.Rate{Events: 20, Burst: 1}}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for range 5 {
			w.send(r, 1200) // for a minute
			time.Sleep(time.Hour)
		}
		site, _ := w.s.Site("a")
		if site.Usual < 16 || site.Usual > 22 {
			t.Errorf("the usual rate is %.2f/s, want 20", site.Usual)
		}
	})
}

func replyOf(t *testing.T, text string) (r reply.Reply) {
	t.Helper()
	e := &r.Enhanced
	if _, err := fmt.Sscanf(text, "%d %d.%d.%d", &r.Code, &e[0], &e[1], &e[2]); err != nil {
		r.Enhanced = reply.Enhanced{}
		fmt.Sscanf(text, "%d", &r.Code)
	}
	r.Text = text
	return r
}
