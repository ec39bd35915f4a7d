package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/queue/vfs/vfstest"
	"example.org/mta/router"
	"example.org/mta/warmup"
)

// fillWorld is the relay from its queue to the providers, with a source that warms up and holds its
// overflow, and two sites of one provider, in virtual time. It belongs in a synctest bubble.
type fillWorld struct {
	t          *testing.T
	queue      *queue.Queue
	turnstile  *turnstile // before it
	delivery   *delivery.Scheduler
	dispatcher *Dispatcher
	ctl        *warmup.Controller
	policy     atomic.Pointer[wiring.Policy]
	recorder   *sink.Recorder
	events     *pipeline // and reports
	rules      *rules.Rules
	begin      time.Time
	end        func()
}

const (
	fillCap  = 120 // an hour
	fillPlan = `
		source "new-1" { address = "192.0.2.20" }
		plan "live" {
			stage {
				hourly = 120
				daily  = 2880
			}
			health {
				min_sample = 0
				pause { sample = 0 }
			}
		}
		pool "default" {
			overflow = "hold"
			dedicated "new-1" { plan = "live" }
		}
	`
)

func newFillWorld(t *testing.T, conf string) *fillWorld {
	return newFillWorldOf(t, conf, sink.Config{})
}

// newFillWorldOf is newFillWorld with providers that behave in a certain way.
func newFillWorldOf(t *testing.T, conf string, providers sink.Config) *fillWorld {
	log := slog.New(slog.DiscardHandler)
	pol := parsePolicy(t, conf)
	w := &fillWorld{t: t, recorder: sink.NewRecorder(sink.Deliveries, 0), begin: time.Now()}
	w.policy.Store(pol)
	var err error
	w.queue, err = queue.Open(queue.Config{Dir: "/q", FS: vfstest.Memory(), SegmentSize: 1 << 20, MinFree: 1, Log: log,
		MaxAge: func() time.Duration { return w.policy.Load().LongestAge }})
	if err != nil {
		t.Fatal(err)
	}
	w.turnstile = &turnstile{Queue: w.queue}
	providers.Recorder = w.recorder
	listen, server := sink.NewPipeListener(), sink.New(providers)
	go server.Serve(listen)
	w.delivery = delivery.New(delivery.Config{
		Log:  log,
		Dial: func(ctx context.Context, _ delivery.Source, _ route.Host) (net.Conn, error) { return listen.Dial(ctx) },
		Source: func(name string) (delivery.Source, bool) {
			return delivery.Source{Name: name, EHLO: "relay.example"}, true
		},
		Limits: func(rt *route.Route, source, tenant string) delivery.Limits {
			return w.policy.Load().Limits(rt, source, "")
		},
		OnSpace: func(f delivery.Flow) { w.dispatcher.refill(f) },
	})
	p := &pipeline{t: t, arrived: make(map[envelope.ID]time.Time)}
	w.events = p
	if w.rules, err = rules.Read(bubble.Folder(t), time.Now, func() int { return rules.Format.Writes }, w.policy.Load, log); err != nil {
		t.Fatal(err)
	}
	w.rules.Resumed = func(key parking.Key) { w.dispatcher.Resume(key) }
	w.ctl = warmup.New(warmup.Config{
		Node:     "test",
		OnTokens: func(key, provider string) { w.dispatcher.Unthrottle(key, provider) },
		Waiting:  func(key, provider string) int64 { return w.dispatcher.Throttled(key, provider) },
		Store:    warmup.NewMemory(func() warmup.Instant { return warmup.Instant(time.Now().UnixMilli()) }),
	})
	if err := w.ctl.Assign(pol.Plans()); err != nil {
		t.Fatal(err)
	}
	w.dispatcher = atOnce(New(Config{
		Queue: w.turnstile, Router: w, Delivery: w.delivery, Notifier: p, Events: p, Sites: new(Sites), Warmup: w.ctl,
		Rules: w.rules, Missing: w.rules.Source,
		Policy: w.policy.Load, Now: time.Now, Log: log,
	}))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.ctl.Run(ctx) })
	running.Go(func() {
		if err := w.dispatcher.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	w.end = func() {
		w.dispatcher.stopping.Store(true)
		cancel()
		running.Wait()
		w.delivery.Close()
		if err := w.queue.Close(); err != nil {
			t.Error(err)
		}
		listen.Close()
		server.Close()
	}
	return w
}

// Known is the router's: each domain is a site of its own, all of one provider.
func (w *fillWorld) Known(d string) (*route.Route, *reply.Reply, bool) {
	if strings.HasPrefix(d, silent) {
		return nil, nil, false
	}
	host := route.Host{Name: "mx." + d, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, d[0]}), 25)}
	return &route.Route{Domain: d, Site: "mx." + d, Provider: "big", Tiers: []route.Tier{{host}}}, nil, true
}

// silent is what the names of domains begin with for which there is no answer.
const silent = "silent"

// Submit is the router's, which knows all other routes.
func (w *fillWorld) Submit(r router.Request) {
	if !strings.HasPrefix(r.Domains[0], silent) {
		panic("nobody is to be asked")
	}
}

// accept puts n messages for each domain into the queue, in turns. A few are handed out before more come, so that all
// wait in this order whichever goroutine runs first.
func (w *fillWorld) accept(n int, domains ...string) {
	w.t.Helper()
	for i := range n * len(domains) {
		m := &envelope.Message{Received: time.Now(), Sender: "app@client.example",
			Recipients: []envelope.Recipient{{Address: envelope.Address("someone@" + domains[i%len(domains)])}}}
		d := w.queue.Begin()
		if _, err := fmt.Fprintf(d, "X-Mta-Test-Id: %d\r\n\r\nHello.\r\n", i); err != nil {
			w.t.Fatal(err)
		}
		if err := d.Commit(m); err != nil {
			w.t.Fatal(err)
		}
		if i%16 == 15 {
			synctest.Wait()
		}
	}
}

// seen gives when recipients of a domain arrived, from the begin; "" is any domain.
func (w *fillWorld) seen(domain string) (at []time.Duration) {
	synctest.Wait()
	for _, d := range w.recorder.Deliveries() {
		if domain == "" || d.Recipient == "someone@"+domain {
			at = append(at, d.At.Sub(w.begin))
		}
	}
	slices.Sort(at)
	return at
}

func within(at []time.Duration, from, to time.Duration) (n int) {
	for _, t := range at {
		if from <= t && t < to {
			n++
		}
	}
	return n
}

// judge demands that hours are full and no cap is passed.
func (w *fillWorld) judge(hours int) {
	w.t.Helper()
	all := w.seen("")
	for h := range hours {
		n := within(all, time.Duration(h)*time.Hour, time.Duration(h+1)*time.Hour)
		w.t.Logf("hour %d: %d of %d", h, n, fillCap)
		if n > fillCap || n < fillCap*98/100 {
			w.t.Errorf("hour %d: %d, want %d", h, n, fillCap)
		}
	}
	w.judgeSpans()
}

// judgeSpans demands that no 60 minutes and no 5 have more than their share.
func (w *fillWorld) judgeSpans() {
	w.t.Helper()
	all := w.seen("")
	for _, x := range []struct {
		span time.Duration
		most float64
	}{{time.Hour, 1.10}, {5 * time.Minute, .22}} {
		most := 0
		for _, t := range all {
			most = max(most, within(all, t-x.span+1, t+1))
		}
		if float64(most) > x.most*fillCap {
			w.t.Errorf("%d in %v, more than %.2f caps", most, x.span, x.most)
		}
	}
}

// TestW12_ASuspendedSiteLeavesItsTokensToOthers: the hours of a warming source are full although one of
// two sites is suspended, from the begin or from the middle of an hour.
func TestW12_ASuspendedSiteLeavesItsTokensToOthers(t *testing.T) {
	for _, from := range []time.Duration{0, 25 * time.Minute} {
		for _, until := range []time.Duration{50 * time.Minute, 80 * time.Minute} {
			t.Run(fmt.Sprint(from, " to ", until), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					w := newFillWorld(t, fillPlan)
					defer w.end()
					if from > 0 {
						w.accept(310, "a.example", "b.example")
						time.Sleep(from)
					}
					w.delivery.Suspend("mx.a.example", "new-1", "a test", w.begin.Add(until))
					if from == 0 {
						w.accept(310, "a.example", "b.example")
					}
					time.Sleep(time.Until(w.begin.Add(6 * time.Hour)))
					a := w.seen("a.example")
					if n := within(a, from+time.Second, until); n > 0 {
						t.Errorf("%d left while suspended", n)
					}
					if len(a) != 310 || len(w.seen("b.example")) != 310 {
						t.Errorf("%d of 310 have left, %d of the other site's", len(a), len(w.seen("b.example")))
					}
					w.judge(5)
				})
			})
		}
	}
}

// TestW13_ALiftedSuspensionIsNoBurst: what could not leave in an hour's first half leaves as soon as it may,
// spread as the plan says; not all at once, as if tokens had been taken for it.
func TestW13_ALiftedSuspensionIsNoBurst(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, fillPlan)
		defer w.end()
		w.delivery.Suspend("mx.a.example", "new-1", "a test", w.begin.Add(10*time.Hour))
		w.accept(400, "a.example")
		time.Sleep(35 * time.Minute)
		w.delivery.Resume("mx.a.example")
		time.Sleep(2*time.Hour + 25*time.Minute)
		if n := within(w.seen(""), 0, 35*time.Minute+5*time.Second); n < 3 {
			t.Errorf("%d left in the first 5 s", n)
		}
		if n := within(w.seen(""), 0, time.Hour); n < 100 { // at twice the plan's pace
			t.Errorf("%d left in what remained of the hour", n)
		}
		w.judgeSpans()
	})
}

// TestW12_ABurstWaitsForRoomAndNotForASuspension: while a warming source is suspended at a site, what another
// source of its pool has no room for just then waits for that room, a matter of minutes.
func TestW12_ABurstWaitsForRoomAndNotForASuspension(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, strings.NewReplacer(`overflow = "hold"`, `shared = ["old-1"]`, `pool "default"`, `source "old-1" {
			address          = "192.0.2.21"
			max_message_rate = "20/s"
		}
		pool "default"`).Replace(fillPlan))
		defer w.end()
		w.delivery.Suspend("mx.a.example", "new-1", "a test", w.begin.Add(10*time.Hour))
		const burst = 5000
		w.accept(burst, "a.example")
		time.Sleep(6 * time.Minute) // it takes 4.2
		if n := len(w.seen("")); n != burst {
			t.Errorf("%d of %d have left", n, burst)
		}
	})
}

// unequal is a pool that holds, of sources with plans of 600 and 20 an hour.
var unequal = strings.NewReplacer(`hourly = 120`, `hourly = 600`, `daily  = 2880`, `daily  = 14400`, `pool "default" {`, `plan "small" {
	stage {
		hourly = 20
		daily  = 480
	}
	health {
		min_sample = 0
		pause { sample = 0 }
	}
}
source "new-2" { address = "192.0.2.22" }
pool "default" {
	dedicated "new-2" { plan = "small" }`).Replace(fillPlan)

// TestW18_ABacklogWaitsByThePlans: a backlog of two warming sources leaves at what both plans allow
// together, to its end: no part waits long for the smaller one.
func TestW18_ABacklogWaitsByThePlans(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, unequal)
		defer w.end()
		w.accept(2400, "a.example")
		time.Sleep(4 * time.Hour)
		if n := len(w.seen("")); n < 2350 {
			t.Errorf("%d of 2400 have left in four hours of 620", n)
		}
	})
}

// TestW18_ThrottledMailKeepsItsOrder: what was there first leaves first, though throttled mail is looked at meanwhile.
func TestW18_ThrottledMailKeepsItsOrder(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, fillPlan)
		defer w.end()
		w.accept(100, "a.example")
		time.Sleep(10 * time.Second)
		w.accept(1000, "b.example")
		time.Sleep(55 * time.Minute)
		if n := len(w.seen("a.example")); n < 98 {
			t.Errorf("%d of the 100 oldest have left, and %d of those that came later", n, len(w.seen("b.example")))
		}
	})
}

// TestW18_ThrottledMailIsNotLookedAtForNothing: another source of the pool has room by its plan, and yet can't
// take the mail.
func TestW18_ThrottledMailIsNotLookedAtForNothing(t *testing.T) {
	for name, keep := range map[string]func(w *fillWorld){
		"missing": func(w *fillWorld) { w.dispatcher.split.missing = func(s string) bool { return s == "new-1" } },
		"suspended": func(w *fillWorld) {
			w.delivery.Suspend("mx.a.example", "new-1", "a test", w.begin.Add(10*time.Hour))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newFillWorld(t, unequal)
				defer w.end()
				keep(w)
				var looks atomic.Int64
				handle := w.dispatcher.throttled.handle
				w.dispatcher.throttled.handle = func(l *queue.Lease) {
					looks.Add(1)
					handle(l)
				}
				w.accept(2400, "a.example")
				time.Sleep(time.Minute + 30*time.Second)
				before := looks.Load()
				time.Sleep(10 * time.Minute)
				if n := looks.Load() - before; n > 1000 {
					t.Errorf("%d messages were looked at in ten minutes", n)
				}
			})
		})
	}
}

// TestW18_WhatAPausedSourceHeldTakesAnother: an operator pauses one of two sources with a backlog, and what
// waited for it leaves by the other one.
func TestW18_WhatAPausedSourceHeldTakesAnother(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newFillWorld(t, unequal)
		defer w.end()
		w.accept(2000, "a.example")
		time.Sleep(time.Minute)
		key, _ := w.dispatcher.Policy().WarmupKeyOf("new-1")
		if err := w.ctl.Do(t.Context(), key, warmup.Pause()); err != nil {
			t.Fatal(err)
		}
		paused := len(w.seen(""))
		time.Sleep(3 * time.Minute)
		if n := len(w.seen("")); n == paused { // the other one has 20 an hour
			t.Errorf("%d have left by the other one", n-paused)
		}
		if err := w.ctl.Do(t.Context(), key, warmup.Resume()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Hour)
		if n := len(w.seen("")); n < 1990 {
			t.Errorf("%d of 2000 have left, %d before the pause", n, paused)
		}
	})
}

// TestW11_WaitingMailOfASourceThatComesUnderAPlanIsCounted: an operator decides to warm up a source that has
// mail waiting in delivery. That was chosen when it needed no tokens.
func TestW11_WaitingMailOfASourceThatComesUnderAPlanIsCounted(t *testing.T) {
	for name, pool := range map[string]string{
		"shared":             `shared = ["new-1"]`,
		"without a plan":     "overflow = \"hold\"\ndedicated \"new-1\" {}",
		"under it all along": "overflow = \"hold\"\ndedicated \"new-1\" { plan = \"live\" }",
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				plan, _, _ := strings.Cut(strings.NewReplacer(`hourly = 120`, `hourly = 20`, `daily  = 2880`, `daily  = 480`).Replace(fillPlan), `pool "default"`)
				w := newFillWorld(t, plan+"pool \"default\" {\n"+pool+"\n}")
				defer w.end()
				before := w.dispatcher.Policy()
				w.delivery.Suspend("mx.a.example", "new-1", "a test", w.begin.Add(time.Minute))
				w.accept(100, "a.example")
				time.Sleep(10 * time.Second)
				pol := parsePolicy(t, plan+"pool \"default\" {\noverflow = \"hold\"\ndedicated \"new-1\" { plan = \"live\" }\n}")
				if err := w.ctl.Assign(pol.Plans()); err != nil { // which are those of both policies
					t.Fatal(err)
				}
				w.policy.Store(pol)
				w.delivery.Reload(pol.Stays(before))
				w.dispatcher.Reload()
				time.Sleep(40 * time.Minute)
				n := int64(len(w.seen("")))
				s, _ := w.ctl.Status("192.0.2.20") // after it: a token is charged before its mail leaves
				if n == 0 || n > 20 || n > s.SentHour {
					t.Errorf("%d have left, and the ledger has %d of %d", n, s.SentHour, s.HourlyLimit)
				}
			})
		})
	}
}
