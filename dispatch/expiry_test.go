package dispatch

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
	"example.org/mta/warmup/simulate"
)

// soonAge is the max_age of soon.example, and silentAge that of a domain whose name servers are silent: far below
// the longest of all.
const (
	soonAge  = 10 * time.Minute
	soonConf = `
		defaults { retry_interval = "2h" }
		domain "soon.example" { max_age = "10m" }
		domain "silent.example" { max_age = "10m" }`
	sharedConf = soonConf + `
		source "new-1" { address = "192.0.2.20" }
		pool "default" { shared = ["new-1"] }`
)

// waitsSomewhere is mail that waits, the first message of which is given up soon.
type waitsSomewhere struct {
	conf      string
	providers sink.Config
	put       func(*fillWorld)
	domain    string // of the mail that expires
	state     queue.State
	others    int // that stay, or arrive
}

func waitsEverywhere() map[string]waitsSomewhere {
	paused := func(mail api.Selection) waitsSomewhere {
		return waitsSomewhere{sharedConf, sink.Config{}, func(w *fillWorld) {
			if _, err := w.rules.Begin(api.Rule{Action: api.RuleSuspend, Selection: mail}, false); err != nil {
				w.t.Fatal(err)
			}
			w.accept(1, "soon.example", "late.example")
		}, "soon.example", queue.StateParked, 1}
	}
	suspended := func(n int, state queue.State) waitsSomewhere {
		return waitsSomewhere{sharedConf, sink.Config{}, func(w *fillWorld) {
			w.delivery.Suspend("mx.soon.example", "new-1", "a test", w.begin.Add(time.Hour))
			w.accept(n, "soon.example")
			w.accept(1, "late.example")
		}, "soon.example", state, 1}
	}
	return map[string]waitsSomewhere{
		"throttled": {fillPlan + soonConf, sink.Config{}, func(w *fillWorld) {
			w.accept(300, "late.example")
			time.Sleep(time.Second)
			w.accept(1, "soon.example")
		}, "soon.example", queue.StateParked, 300},
		"paused":           paused(api.Selection{All: true}),
		"paused by pool":   paused(api.Selection{Pool: "default"}),
		"paused by source": paused(api.Selection{Source: "new-1"}),
		"paused by domain": paused(api.Selection{Domain: "soon.example"}),
		"without a route": {sharedConf, sink.Config{}, func(w *fillWorld) {
			w.accept(1, "silent.example", "late.example")
		}, "silent.example", queue.StateParked, 1},
		"deferred": {sharedConf, sink.Config{Greylist: 30 * time.Minute}, func(w *fillWorld) {
			w.accept(1, "soon.example", "late.example")
		}, "soon.example", queue.StateDeferred, 1},
		"without a connection": suspended(1, queue.StateLeased),
		"parked for a site":    suspended(5000, queue.StateParked),
	}
}

// queued gives how many messages of a domain are queued, and the state of the newest.
func (w *fillWorld) queued(domain string) (n int, newest queue.State) {
	w.t.Helper()
	synctest.Wait()
	l, err := w.queue.List(queue.Filter{Domain: domain}, queue.Page{Order: queue.NewestFirst, Limit: 10_000})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(l.Items) > 0 {
		newest = l.Items[0].Recipients[0].State
	}
	return len(l.Items), newest
}

// resume ends all pauses.
func (w *fillWorld) resume() {
	for _, p := range w.rules.List() {
		if _, err := w.rules.End(p.ID); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestExpiryIsEachRecipientsOwn: mail is given up at the max_age of its own domain, whatever it waits for, and does
// not leave after that; other mail stays.
func TestExpiryIsEachRecipientsOwn(t *testing.T) {
	for name, x := range waitsEverywhere() {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newFillWorldOf(t, x.conf, x.providers)
				defer w.end()
				w.events.mayFail = true
				x.put(w)
				time.Sleep(soonAge - time.Minute)
				if n, state := w.queued(x.domain); n == 0 || state != x.state {
					t.Fatalf("%d queued, the newest is %v, want %v", n, state, x.state)
				}
				time.Sleep(time.Minute + 2*time.Second)
				if n, state := w.queued(x.domain); n > 0 {
					t.Errorf("%d are still queued at their time, the newest is %v", n, state)
				}
				if reports := len(w.events.failures); reports == 0 {
					t.Error("no sender was notified")
				}
				time.Sleep(time.Hour)
				w.resume()
				time.Sleep(5 * time.Hour)
				if at := w.seen(x.domain); len(at) > 0 {
					t.Errorf("%d arrived, the last at the age of %v", len(at), at[len(at)-1])
				}
				if n := len(w.seen("late.example")); n != x.others {
					t.Errorf("%d of %d others arrived", n, x.others)
				}
			})
		})
	}
}

// TestReloadAsksForTheAgeAgain: a max_age that a reload makes shorter, or longer, counts for what waits already.
func TestReloadAsksForTheAgeAgain(t *testing.T) {
	for to, want := range map[string]time.Duration{"5m": 5 * time.Minute, "20m": 20 * time.Minute} {
		t.Run(to, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newFillWorld(t, sharedConf)
				defer w.end()
				w.events.mayFail = true
				waitsEverywhere()["paused"].put(w)
				time.Sleep(2 * time.Minute)
				before, after := w.policy.Load(), parsePolicy(t, strings.Replace(sharedConf, "10m", to, 1))
				same := parsePolicy(t, sharedConf+`
					domain "other.example" { dane = false }`)
				if before.SameAges(after) || !before.SameAges(same) {
					t.Fatal("a change of max_age is none, or one of other settings is one")
				}
				w.policy.Store(after)
				w.queue.Unpark()
				time.Sleep(time.Until(w.begin.Add(want - time.Second)))
				if n, _ := w.queued("soon.example"); n != 1 {
					t.Fatalf("%d queued before their time", n)
				}
				time.Sleep(3 * time.Second)
				if n, _ := w.queued("soon.example"); n > 0 {
					t.Errorf("%d queued at their time", n)
				}
				if n, state := w.queued("late.example"); n != 1 || state != queue.StateParked {
					t.Errorf("%d others queued, %v", n, state)
				}
			})
		})
	}
}

// TestHeldMailExpiresAsSimulated: of mail that a plan holds for longer than its max_age, which is that of its provider,
// as much leaves and as much expires as the simulator has it.
func TestHeldMailExpiresAsSimulated(t *testing.T) {
	const offered, hours = 600, 5
	conf := fillPlan + `
		defaults { max_age = "90m" }
		provider "big" {
			mx      = ["*.big.example"]
			max_age = "3h"
		}`
	cfg := parsePolicy(t, conf).Config
	plan := *cfg.WarmupPlan("live")
	plan.Overflow = cfg.OverflowOf("live")
	opt := wiring.Simulation(cfg, "live", config.DefaultTier)
	opt.Interval = 3600
	var simulated simulate.Counts
	if _, err := simulate.Run(&plan, []simulate.Event{{Kind: simulate.Offer, Provider: "big", Value: offered}, {T: hours * 3600, Kind: simulate.End}}, opt, func(r *simulate.Row) {
		simulated.Sent, simulated.Expired, simulated.Waiting = simulated.Sent+r.Sent, simulated.Expired+r.Expired, r.Waiting
	}); err != nil {
		t.Fatal(err)
	}
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, conf)
		defer w.end()
		w.events.mayFail = true
		w.accept(offered, "a.example")
		time.Sleep(hours * time.Hour)
		left, _ := w.queued("a.example")
		sent := int64(len(w.seen("a.example")))
		t.Logf("%d sent, %d wait; simulated: %d sent, %d expired, %d wait", sent, left, simulated.Sent, simulated.Expired, simulated.Waiting)
		if diff := sent - simulated.Sent; diff < -4 || diff > 4 || left > 0 || simulated.Waiting > 0 || simulated.Sent+simulated.Expired != offered {
			t.Errorf("%d sent and %d wait, simulated: %+v", sent, left, simulated)
		}
	})
}
