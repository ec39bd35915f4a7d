package delivery

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// silentHosts is a world with 100 connections, 200 sites whose hosts take connections and never greet, 5
// that are known, and 5 that are not.
func silentHosts(t *testing.T, test func(w *world, silent, known, unknown []*route.Route)) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			c.MaxConnections = 100
			c.Limits = func(*route.Route, string, string) Limits { return Limits{Site: Scope{Connections: 10}} }
		})
		defer w.end()
		site := func(name string, i int, cfg sink.Config) *route.Route {
			return routeTo(fmt.Sprint(name, i), tier(w.host(fmt.Sprint("mx.", name, i), cfg)))
		}
		var silent, known, unknown []*route.Route
		for i := range 200 {
			silent = append(silent, site("silent", i, sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: time.Hour}}))
		}
		for i := range 5 {
			known = append(known, site("known", i, sink.Config{Latency: 50 * time.Millisecond}))
			unknown = append(unknown, site("unknown", i, sink.Config{Latency: 50 * time.Millisecond}))
		}
		for _, r := range known {
			w.send(r, 1)
		}
		w.awaitResults(5, time.Minute)
		time.Sleep(time.Minute) // their connections are gone
		test(w, silent, known, unknown)
	})
}

// Hosts that take connections and say nothing leave places to those that have proved themselves, at once,
// and to others within the time that a greeting has while places are scarce.
func TestSilentHostsLeavePlacesToOthers(t *testing.T) {
	silentHosts(t, func(w *world, silent, known, unknown []*route.Route) {
		for _, r := range silent {
			w.send(r, 2)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := w.s.Counts().Live; n != 50 {
			t.Errorf("%d connections to silent hosts, want half of all", n)
		}
		good, fresh := delays{w: w}, delays{w: w}
		for range 10 {
			for i := range known {
				good.send(known[i], "out1")
				fresh.send(unknown[i], "out1")
			}
		}
		waiting := lanes(w, unknown[0].Site)[0].Why
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			w.checkPlaces(0)
		}
		t.Logf("known hosts: %d done, the last after %v", len(good.at), good.quantile(1))
		if len(good.at) != good.sent || good.quantile(1) > time.Second {
			t.Errorf("known hosts: %d of %d messages done, the last after %v", len(good.at), good.sent, good.quantile(1))
		}
		if len(fresh.at) != fresh.sent {
			t.Fatalf("hosts that were not known: %d of %d messages done within a minute", len(fresh.at), fresh.sent)
		}
		t.Logf("others: the last after %v; waited for: %s", fresh.quantile(1), waiting)
		if fresh.quantile(1) > time.Second {
			t.Errorf("mail for unknown hosts took %v behind 200 silent ones of the same tenant", fresh.quantile(1))
		}
		if !strings.Contains(waiting, "have not proved themselves") {
			t.Errorf("the mail for unknown hosts waited since %q", waiting)
		}
		short := 0
		for _, res := range w.settled() {
			if strings.Contains(res.Reply.Text, "cut short") {
				short++
				if res.Reply.OK() || !res.Reply.Temporary() || res.RetryAfter.IsZero() {
					t.Fatalf("result %+v", res)
				}
			}
		}
		if short == 0 {
			t.Error("no wait for a greeting was cut short")
		}
	})
}

// Where places are not scarce a host may take its time.
func TestSlowGreetingIsWaitedForWithoutNeed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: 4 * time.Minute}}))), 1)
		if res := w.awaitResults(1, 10*time.Minute)[0]; !res.Reply.OK() {
			t.Errorf("result %+v", res)
		}
	})
}

// When the known hosts fall silent, a quarter of the connections is left to those that stand, and the
// others' turn comes soon.
func TestKnownHostsThatFallSilent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, atOnce(func(c *Config) {
			c.MaxConnections = 40
			c.Limits = func(*route.Route, string, string) Limits { return Limits{} }
		}))
		defer w.end()
		var hosts []*worldHost
		var routes []*route.Route
		for i := range 60 {
			hosts = append(hosts, w.host(fmt.Sprint("mx", i), sink.Config{}))
			routes = append(routes, routeTo(fmt.Sprint("site", i), tier(hosts[i])))
			w.send(routes[i], 1)
			w.awaitResults(i+1, time.Minute)
		}
		time.Sleep(time.Minute)
		w.mu.Lock()
		for _, h := range hosts[1:] {
			h.hole = true
		}
		w.mu.Unlock()
		w.send(routes[0], 1)
		w.awaitResults(61, time.Second)
		for _, r := range routes[1:] {
			w.send(r, 1)
		}
		time.Sleep(time.Second)
		if n := w.s.Counts().Live; n != 31 {
			t.Errorf("%d connections, want three quarters on their way and the one that stands", n)
		}
		w.send(routes[0], 1)
		w.awaitResults(62, time.Second)
		w.awaitResults(62+59, 2*time.Minute)
	})
}

// A host that takes connections and then does nothing is as broken as one that doesn't greet: the mail
// goes to the others, and it is left alone for a while.
func TestHostThatGreetsAndDoesNothing(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{HostRetry: time.Minute}))
		defer w.end()
		idle := w.host("idle", sink.Config{Drop: map[sink.Phase]float64{sink.Mail: 1}})
		good := w.host("good", sink.Config{})
		r := routeTo("a", tier(idle), tier(good))
		w.send(r, 1)
		res := w.awaitResults(1, time.Minute)[0]
		if res.Attempted && !res.Reply.OK() {
			w.send(r, 1) // the message that found out may be deferred
			res = w.awaitResults(2, time.Minute)[1]
		}
		if !res.Reply.OK() || res.Host.Name != "good" {
			t.Errorf("result %+v", res)
		}
		n, before := len(w.dialed()), len(w.settled())
		w.send(r, 20)
		w.awaitResults(before+20, time.Minute)
		for _, d := range w.dialed()[n:] {
			if d == "out1>idle" {
				t.Fatal("the host was tried again before its time")
			}
		}
		at, why := brokenUntil(w, "idle")
		if d := time.Until(at); d <= 0 || d > time.Minute || why == "" {
			t.Errorf("the host is broken for %v (%s), want its retry time", d, why)
		}
	})
}

// brokenUntil is when the path to a host may be tried again, and why not before.
func brokenUntil(w *world, name string) (time.Time, string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for p := range w.s.pools {
		if p.Host.Name == name && p.Suspect() {
			return p.RetryAt(), p.Why().Text
		}
	}
	return time.Time{}, ""
}

// A host is a stranger until a connection has become ready there, and again when the last one failed.
func TestStrangers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		h := w.host("mx", sink.Config{})
		r := routeTo("a", tier(h))
		is := func() bool {
			w.s.mu.Lock()
			defer w.s.mu.Unlock()
			return stranger(w.s.bySite["a"][0].tiers[0][0])
		}
		w.setDown(h, true)
		w.send(r, 1)
		w.awaitResults(1, time.Minute)
		if !is() {
			t.Error("a host that was never reached is no stranger")
		}
		w.setDown(h, false)
		time.Sleep(time.Hour)
		w.send(r, 1)
		w.awaitResults(2, time.Minute)
		if is() {
			t.Error("a host that takes mail is a stranger")
		}
		time.Sleep(time.Hour)
		w.setDown(h, true)
		w.send(r, 1)
		w.awaitResults(3, time.Minute)
		if !is() {
			t.Error("a host whose last connection failed is no stranger")
		}
	})
}

// persist hands over a tenant's job to a site, again each second until it is taken.
func (w *world) persist(r *route.Route, tenant string, done func([]Result)) {
	j := w.job(r, 1)
	j.Message.Tenant = tenant
	j.Done = func(_ *Job, results []Result) { done(results) }
	for !w.submit(j) {
		time.Sleep(time.Second)
	}
}

// firstMail is how long the first mail for hosts that were never met takes, one after the other.
func firstMail(w *world, tenant string, routes []*route.Route) (worst time.Duration) {
	for _, r := range routes {
		began, done := time.Now(), make(chan bool)
		w.persist(r, tenant, func(results []Result) { done <- results[0].Reply.OK() })
		if !<-done {
			w.t.Errorf("mail for %s was not delivered", r.Site)
		}
		worst = max(worst, time.Since(began))
	}
	return worst
}

// A tenant's mail for hosts that were never met does not wait for all the silent hosts of another; and
// nobody's waits for silent hosts that are tried again and again.
func TestHostsThatWereNeverMet(t *testing.T) {
	silentHosts(t, func(w *world, silent, _, unknown []*route.Route) {
		ended := make(chan struct{})
		var tried sync.WaitGroup
		for _, r := range silent {
			tried.Go(func() {
				for {
					failed := make(chan struct{})
					w.persist(r, "bulk", func([]Result) { close(failed) })
					<-failed
					select {
					case <-ended:
						return
					default:
					}
				}
			})
		}
		time.Sleep(time.Second)
		if took := firstMail(w, "other", unknown[:1]); took > time.Second {
			t.Errorf("amid the silent hosts of another tenant it took %v", took)
		} else {
			t.Logf("amid the silent hosts of another tenant: %v", took)
		}
		time.Sleep(3 * time.Minute)
		took := firstMail(w, "bulk", unknown[1:])
		t.Logf("amid silent hosts that are tried again: %v", took)
		if took > time.Second {
			t.Errorf("amid silent hosts that are tried again it took %v", took)
		}
		close(ended)
		tried.Wait()
	})
}

// Of a stream of silent hosts that were never met, each costs others a second at most: a host that answers
// is met at once, however long the stream lasts, near or far; and it needs no second attempt.
func TestNewSilentHostsDelayNoFirstMail(t *testing.T) {
	const perSecond, seconds = 27, 40
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.MaxConnections = 100 })
		defer w.end()
		near, far := delays{w: w}, delays{w: w}
		for i := range perSecond * seconds {
			h := w.host(fmt.Sprint("silent", i), sink.Config{})
			h.hole = true
			w.persist(routeTo(h.Name, tier(h)), "", func([]Result) {})
			if i%(perSecond/2) == 0 {
				a := w.host(fmt.Sprint("near", i), sink.Config{Latency: 20 * time.Millisecond})
				near.send(routeTo(a.Name, tier(a)), "out1")
				b := w.host(fmt.Sprint("far", i), sink.Config{Latency: 150 * time.Millisecond})
				far.send(routeTo(b.Name, tier(b)), "out1")
			}
			time.Sleep(time.Second / perSecond)
		}
		time.Sleep(2 * time.Minute)
		for _, r := range w.settled() {
			if !r.Reply.OK() {
				t.Errorf("result %+v", r)
			}
		}
		for what, d := range map[string]*delays{"near": &near, "far": &far} {
			t.Logf("hosts that answer, %s: %d of %d, p50 %v, p99 %v", what, len(d.at), d.sent, d.quantile(.5), d.quantile(.99))
			if len(d.at) != d.sent || d.quantile(.99) > time.Second {
				t.Errorf("%s: %d of %d, p99 %v", what, len(d.at), d.sent, d.quantile(.99))
			}
		}
	})
}

// Mail for hosts that answer doesn't wait for a burst of silent ones ahead of it, however many they are.
func TestBurstOfSilentHosts(t *testing.T) {
	for _, silent := range []int{200, 1000} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.MaxConnections = 100 })
			defer w.end()
			w.burst(silent, func() bool { return false })
			good := delays{w: w}
			for i := range 20 {
				h := w.host(fmt.Sprint("good", i), sink.Config{Latency: 50 * time.Millisecond})
				good.send(routeTo(h.Name, tier(h)), "out1")
			}
			time.Sleep(time.Minute)
			results := w.settled()
			t.Logf("behind %d silent hosts: %d of %d, p50 %v, the last after %v", silent, len(good.at), good.sent, good.quantile(.5), good.quantile(1))
			if len(good.at) != good.sent || good.quantile(1) > time.Second {
				t.Errorf("behind %d silent hosts: %d of %d, the last after %v", silent, len(good.at), good.sent, good.quantile(1))
			}
			for _, r := range results {
				if !r.Reply.OK() {
					t.Errorf("result %+v", r)
				}
			}
		})
	}
}

// burst submits mail for so many silent hosts, and each again when it comes back, as long as again says so.
func (w *world) burst(silent int, again func() bool) {
	for range silent {
		h := w.host(fmt.Sprint("silent", len(w.hosts)), sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: time.Hour}})
		r := routeTo(h.Name, tier(h))
		var back func([]Result)
		back = func([]Result) {
			if again() {
				go w.persist(r, "", back)
			}
		}
		w.persist(r, "", back)
		time.Sleep(time.Microsecond) // one after the other
	}
}

// A message for many silent hosts takes turns with the others of its tenant, wherever they stand in line.
func TestMessageForManySilentHosts(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.MaxConnections = 100 })
		defer w.end()
		good := delays{w: w}
		var many *envelope.Message
		for i := range 400 {
			h := w.host(fmt.Sprint("silent", i), sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: time.Hour}})
			j := w.job(routeTo(h.Name, tier(h)), 1)
			if many == nil {
				many = j.Message
			}
			j.Message, j.Done = many, func(*Job, []Result) {}
			if !w.submit(j) {
				t.Fatal("job refused")
			}
			time.Sleep(time.Microsecond) // one after the other
			if i%20 == 10 {
				h := w.host(fmt.Sprint("good", i), sink.Config{Latency: 50 * time.Millisecond})
				good.send(routeTo(h.Name, tier(h)), "out1")
			}
		}
		time.Sleep(time.Minute)
		w.settled()
		t.Logf("%d of %d, p50 %v, the last after %v", len(good.at), good.sent, good.quantile(.5), good.quantile(1))
		if len(good.at) != good.sent || good.quantile(1) > time.Second {
			t.Errorf("%d of %d, the last after %v", len(good.at), good.sent, good.quantile(1))
		}
	})
}

// A host that delays its greeting to strangers for as long as some do has its mail after some attempts,
// however many silent hosts are tried again all the while.
func TestDelayedGreetingAmidSilentHosts(t *testing.T) {
	for _, delay := range []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.MaxConnections = 100 })
			defer w.end()
			var over atomic.Bool
			goOn := func() bool { return !over.Load() }
			w.burst(200, goOn)
			began, met, attempts := time.Now(), make(chan bool, 1), 0
			h := w.host("slow", sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: delay}})
			r := routeTo(h.Name, tier(h))
			var again func([]Result)
			again = func(results []Result) {
				if attempts++; results[0].Reply.OK() {
					met <- true
				} else {
					go w.persist(r, "", again)
				}
			}
			w.persist(r, "", again)
			w.burst(200, goOn)
			<-met
			took := time.Since(began)
			over.Store(true)
			t.Logf("a greeting after %v: delivered after %v, by attempt %d", delay, took, attempts)
			if took > 30*time.Minute {
				t.Errorf("a greeting after %v: delivered after %v, by attempt %d", delay, took, attempts)
			}
			time.Sleep(2 * time.Hour) // the rest comes back
		})
	}
}

// A burst of silent hosts over TCP, with TLS off and in real time, which is printed and fails nothing.
func TestNewSilentHostsOverTCP(t *testing.T) {
	const silent, answering = 150, 20
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer mute.Close() // nobody accepts: the system takes the connections, and says nothing
	server := sink.New(sink.Config{Hostname: "answers"})
	defer server.Close()
	answers, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go server.Serve(answers)
	w := &world{t: t}
	w.s = New(Config{
		MaxConnections: 100,
		Source:         func(name string) (Source, bool) { return Source{Name: name, EHLO: "out.example"}, true },
		Dial: func(ctx context.Context, _ Source, h route.Host) (net.Conn, error) {
			to := mute.Addr()
			if h.Name == "answers" {
				to = answers.Addr()
			}
			return new(net.Dialer).DialContext(ctx, "tcp", to.String())
		},
	})
	defer w.s.Close()
	site := func(name string, i int) *route.Route {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 25)
		return &route.Route{Domain: fmt.Sprint(name, i, ".example"), Site: fmt.Sprint(name, i), Tiers: []route.Tier{{{Name: name, Addr: addr}}}}
	}
	for i := range silent {
		w.persist(site("silent", i), "", func([]Result) {})
	}
	var took []time.Duration
	met := make(chan time.Duration)
	for i := range answering {
		began := time.Now()
		r := site("answers", silent+i)
		var again func([]Result)
		again = func(results []Result) {
			if results[0].Reply.OK() {
				met <- time.Since(began)
			} else {
				go w.persist(r, "", again)
			}
		}
		w.persist(r, "", again)
	}
	for range answering { // none is lost, whatever it took
		took = append(took, <-met)
	}
	slices.Sort(took)
	t.Logf("first mail for %d hosts behind %d silent ones: p50 %v, the last %v", answering, silent, took[answering/2], took[answering-1])
}
