package router

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/router/resolver"
)

// names is a Resolver in memory, for tests in virtual time: each domain has one exchanger, mx.
// under it, and an MX look-up takes as long as delay says.
type names struct {
	delay func(domain string) time.Duration

	mu      sync.Mutex
	asked   map[string]int // MX look-ups by domain
	now     int
	most    int // MX look-ups at once
	started []string
}

func (n *names) MX(ctx context.Context, domain string) (*resolver.Answer, error) {
	n.mu.Lock()
	if n.asked == nil {
		n.asked = make(map[string]int)
	}
	n.asked[domain]++
	n.started = append(n.started, domain)
	n.now++
	n.most = max(n.most, n.now)
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.now--
	}()
	if n.delay != nil {
		select {
		case <-time.After(n.delay(domain)):
		case <-ctx.Done():
			return nil, &resolver.Error{Name: domain, Type: resolver.TypeMX, Reason: "no answer in time", Expires: time.Now().Add(5 * time.Second)}
		}
	}
	if strings.HasPrefix(domain, "no") {
		return nil, &resolver.Error{Kind: resolver.NXDomain, Name: domain, Type: resolver.TypeMX, Expires: time.Now().Add(time.Minute)}
	}
	return &resolver.Answer{Name: domain, MX: []resolver.MX{{Preference: 10, Host: "mx." + domain}}, Expires: time.Now().Add(time.Hour)}, nil
}

func (n *names) A(_ context.Context, host string) (*resolver.Answer, error) {
	return &resolver.Answer{Name: host, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, Expires: time.Now().Add(time.Hour)}, nil
}

func (n *names) AAAA(_ context.Context, host string) (*resolver.Answer, error) {
	return nil, &resolver.Error{Kind: resolver.NoData, Name: host, Type: resolver.TypeAAAA, Expires: time.Now().Add(time.Hour)}
}

func (n *names) askedFor(domain string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[domain]
}

// collector writes down what Done is told.
type collector struct {
	mu   sync.Mutex
	told map[string][]string // by domain: sites and refusals
	at   map[string]time.Time
}

func (c *collector) done(domain string, rt *route.Route, err *reply.Reply) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told == nil {
		c.told, c.at = make(map[string][]string), make(map[string]time.Time)
	}
	c.at[domain] = time.Now()
	if err != nil {
		c.told[domain] = append(c.told[domain], err.String())
	} else {
		c.told[domain] = append(c.told[domain], rt.Site)
	}
}

func (c *collector) say(domain string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.Join(c.told[domain], "; ")
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, t := range c.told {
		n += len(t)
	}
	return n
}

// inBubble runs a test in virtual time with a router that is closed at the end.
func inBubble(t *testing.T, n *names, s Settings, test func(t *testing.T, r *Router)) {
	t.Helper()
	bubble.Test(t, func(t *testing.T) {
		r := New(Config{Settings: s}, n)
		test(t, r)
		r.Close()
	})
}

func seconds(n int) func(string) time.Duration {
	return func(string) time.Duration { return time.Duration(n) * time.Second }
}

func TestSubmitTellsEachDomainOnce(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{}, func(t *testing.T, r *Router) {
		var c collector
		r.Submit(Request{Message: 1, Domains: []string{"a.test", "b.test", "nosuch.test", "[192.0.2.7]"}, Done: c.done})
		if c.count() != 0 {
			t.Error("told before there was anything to tell")
		}
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for domain, want := range map[string]string{
			"a.test": "mx.a.test", "b.test": "mx.b.test", "nosuch.test": "550 5.1.2 the domain nosuch.test does not exist", "[192.0.2.7]": "[192.0.2.7]",
		} {
			if got := c.say(domain); got != want {
				t.Errorf("%s: told %q, want %q", domain, got, want)
			}
		}
	})
}

func TestKnownRoutesAreTiedToTheirTime(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{MaxRouteAge: 10 * time.Minute}, func(t *testing.T, r *Router) {
		ask := func(domain string) (sync bool) {
			var c collector
			r.Submit(Request{Domains: []string{domain}, Done: c.done})
			sync = c.count() == 1
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if c.count() != 1 {
				t.Fatalf("%s: told %d times", domain, c.count())
			}
			return sync
		}
		start := time.Now()
		if ask("a.test") || ask("nosuch.test") {
			t.Error("answered at once without having asked")
		}
		if !ask("a.test") || !ask("nosuch.test") {
			t.Error("what is known is told at once")
		}
		time.Sleep(time.Until(start.Add(62 * time.Second))) // NXDOMAIN holds for a minute
		if !ask("a.test") || ask("nosuch.test") {
			t.Error("after a minute the route still holds, the refusal does not")
		}
		time.Sleep(time.Until(start.Add(10*time.Minute + time.Second)))
		if ask("a.test") {
			t.Error("after MaxRouteAge the route still holds")
		}
		if a, b := n.askedFor("a.test"), n.askedFor("nosuch.test"); a != 2 || b != 2 {
			t.Errorf("asked %d and %d times, want twice each", a, b)
		}
	})
}

// A thousand messages for one domain whose name server is slow hold one worker, not all.
func TestOneSlowDomainHoldsOneWorker(t *testing.T) {
	n := &names{delay: func(d string) time.Duration {
		if d == "slow.test" {
			return 30 * time.Second
		}
		return 100 * time.Millisecond
	}}
	inBubble(t, n, Settings{Workers: 10}, func(t *testing.T, r *Router) {
		var slow, quick collector
		for i := range 1000 {
			r.Submit(Request{Message: envelope.ID(i), Domains: []string{"slow.test"}, Done: slow.done})
		}
		r.Submit(Request{Domains: []string{"quick.test"}, Done: quick.done})
		start := time.Now()
		time.Sleep(time.Second)
		synctest.Wait()
		if quick.count() != 1 || quick.at["quick.test"].Sub(start) > 200*time.Millisecond {
			t.Errorf("the quick domain was told %d times, after %s", quick.count(), quick.at["quick.test"].Sub(start))
		}
		if st := r.Stats(); st.Running != 1 {
			t.Errorf("%d workers are busy, want 1", st.Running)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if slow.count() != 1000 || n.askedFor("slow.test") != 1 {
			t.Errorf("%d told, %d asked", slow.count(), n.askedFor("slow.test"))
		}
	})
}

func TestWorkersAreBounded(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{Workers: 7}, func(t *testing.T, r *Router) {
		var c collector
		start := time.Now()
		for i := range 70 {
			r.Submit(Request{Message: envelope.ID(i), Domains: []string{fmt.Sprintf("d%d.test", i)}, Done: c.done})
		}
		time.Sleep(10*time.Second + time.Millisecond)
		synctest.Wait()
		if n.most != 7 || c.count() != 70 {
			t.Errorf("%d at once, %d told after %s; want 7 and all 70", n.most, c.count(), time.Since(start))
		}
	})
}

// S2 for the router itself: a big envelope leaves workers to those who come later.
func TestBigEnvelopeLeavesRoomForSmallMail(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{Workers: 100}, func(t *testing.T, r *Router) {
		var big, small collector
		domains := make([]string, 2000)
		for i := range domains {
			domains[i] = fmt.Sprintf("big%d.test", i)
		}
		r.Submit(Request{Message: 1, Domains: domains, Done: big.done})
		synctest.Wait()
		if st := r.Stats(); st.Running != 91 {
			t.Errorf("the big envelope has %d of 100 workers, want 91", st.Running)
		}
		start := time.Now()
		for i := range 9 {
			r.Submit(Request{Message: envelope.ID(2 + i), Domains: []string{fmt.Sprintf("small%d.test", i)}, Done: small.done})
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		for d, at := range small.at {
			if at.Sub(start) != time.Second {
				t.Errorf("%s had to wait for %s", d, at.Sub(start)-time.Second)
			}
		}
		if small.count() != 9 {
			t.Errorf("%d of 9 small messages told", small.count())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if big.count() != 2000 {
			t.Errorf("%d of 2000 domains told", big.count())
		}
	})
}

func TestReloadAppliesToAllThatComesAfter(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{Workers: 1}, func(t *testing.T, r *Router) {
		var before, waiting, after collector
		r.Submit(Request{Message: 1, Domains: []string{"known.test"}, Done: before.done})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		r.Submit(Request{Message: 1, Domains: []string{"a.test"}, Done: before.done})  // being looked up
		r.Submit(Request{Message: 2, Domains: []string{"b.test"}, Done: waiting.done}) // waits for the worker
		synctest.Wait()
		if err := r.Reload(Settings{Workers: 1, Smarthosts: []SmarthostRoute{{"*", nil}}}); err == nil {
			t.Error("a bad reload: no error")
		}
		if err := r.Reload(Settings{Workers: 1, Smarthosts: []SmarthostRoute{{"*", hosts("smart.test:587")}}}); err != nil {
			t.Fatal(err)
		}
		r.Submit(Request{Message: 3, Domains: []string{"a.test"}, Done: after.done})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if got := before.say("a.test"); got != "mx.a.test" {
			t.Errorf("asked before: %s", got)
		}
		if got := waiting.say("b.test"); got != "smart.test:587" {
			t.Errorf("waited meanwhile: %s", got)
		}
		if got := after.say("a.test"); got != "smart.test:587" {
			t.Errorf("asked after: %s", got)
		}
		if got := before.say("known.test"); got != "mx.known.test" {
			t.Fatalf("known before: %s", got)
		}
		r.Submit(Request{Message: 4, Domains: []string{"known.test"}, Done: after.done})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := after.say("known.test"); got != "smart.test:587" {
			t.Errorf("what is known is of the old settings: %s", got)
		}
	})
}

// TestForgetAll: what is known, and what is being looked up, is looked up anew for those who ask from now on.
func TestForgetAll(t *testing.T) {
	n := &names{delay: seconds(1)}
	inBubble(t, n, Settings{Workers: 2}, func(t *testing.T, r *Router) {
		var c collector
		r.Submit(Request{Message: 1, Domains: []string{"known.test"}, Done: c.done})
		time.Sleep(2 * time.Second)
		r.Submit(Request{Message: 1, Domains: []string{"a.test"}, Done: c.done})
		synctest.Wait()
		r.ForgetAll()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := c.say("a.test"); got != "mx.a.test" {
			t.Errorf("asked before: %s", got)
		}
		for _, domain := range []string{"known.test", "a.test"} {
			if _, _, known := r.Known(domain); known {
				t.Errorf("%s is known", domain)
			}
		}
		r.Submit(Request{Message: 2, Domains: []string{"a.test"}, Done: c.done})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if _, _, known := r.Known("a.test"); !known {
			t.Error("what is found from then on is not kept")
		}
	})
}

func TestReloadToMoreWorkersStartsThem(t *testing.T) {
	n := &names{delay: seconds(10)}
	inBubble(t, n, Settings{Workers: 1, FirstTry: time.Minute}, func(t *testing.T, r *Router) {
		var c collector
		for i := range 5 {
			r.Submit(Request{Message: envelope.ID(i), Domains: []string{fmt.Sprintf("d%d.test", i)}, Done: c.done})
		}
		synctest.Wait()
		if err := r.Reload(Settings{Workers: 5, FirstTry: time.Minute}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if st := r.Stats(); st.Running != 5 {
			t.Errorf("%d workers busy, want 5", st.Running)
		}
		if err := r.Reload(Settings{Workers: 2, FirstTry: time.Minute}); err != nil { // fewer than are busy
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if c.count() != 5 {
			t.Errorf("%d told", c.count())
		}
	})
}

func TestCloseTellsAllWhoWait(t *testing.T) {
	n := &names{delay: seconds(30)}
	bubble.Test(t, func(t *testing.T) {
		r := New(Config{Settings: Settings{Workers: 2}}, n)
		var c collector
		for i := range 10 {
			r.Submit(Request{Message: envelope.ID(i), Domains: []string{fmt.Sprintf("d%d.test", i), "same.test"}, Done: c.done})
		}
		synctest.Wait()
		start := time.Now()
		r.Close()
		if time.Since(start) != 0 {
			t.Errorf("close waited for %s", time.Since(start))
		}
		if c.count() != 20 {
			t.Errorf("%d told, want 20", c.count())
		}
		for d, told := range c.told {
			for _, s := range told {
				if s != "451 4.3.2 the relay is shutting down" {
					t.Errorf("%s: %s", d, s)
				}
			}
		}
		r.Submit(Request{Domains: []string{"late.test"}, Done: c.done})
		if got := c.say("late.test"); got != "451 4.3.2 the relay is shutting down" {
			t.Errorf("after close: %q", got)
		}
		r.Close() // twice does no harm
	})
}

// Many at once, with reloads meanwhile: all are told, once.
func TestNobodyIsForgotten(t *testing.T) {
	n := &names{}
	r := New(Config{Settings: Settings{Workers: 5}, Routes: 50}, n)
	var wg sync.WaitGroup
	var told atomic.Int64
	for g := range 8 {
		wg.Go(func() {
			for i := range 500 {
				r.Submit(Request{
					Message: envelope.ID(g*1000 + i),
					Domains: []string{fmt.Sprintf("a%d.test", i%100), fmt.Sprintf("b%d-%d.test", g, i), "nosuch.test"},
					Done:    func(string, *route.Route, *reply.Reply) { told.Add(1) },
				})
				if i%100 == 50 {
					if err := r.Reload(Settings{Workers: 1 + i%7}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	r.Close()
	if told.Load() != 8*500*3 {
		t.Errorf("%d told, want %d", told.Load(), 8*500*3)
	}
	if st := r.Stats(); st.Routes > 50 || st.Running != 0 || st.Messages != 0 {
		t.Errorf("left over: %+v", st)
	}
}

// Whoever submits while the router closes is told something too.
func TestCloseWhileSubmitting(t *testing.T) {
	for range 20 {
		r := New(Config{Settings: Settings{Workers: 3}}, &names{})
		var wg sync.WaitGroup
		var told atomic.Int64
		for g := range 4 {
			wg.Go(func() {
				for i := range 50 {
					r.Submit(Request{
						Domains: []string{fmt.Sprintf("d%d-%d.test", g, i)},
						Done:    func(string, *route.Route, *reply.Reply) { told.Add(1) },
					})
				}
			})
		}
		r.Close()
		wg.Wait()
		if told.Load() != 200 {
			t.Fatalf("%d told, want 200", told.Load())
		}
	}
}

func TestListenerAddrs(t *testing.T) {
	got, err := ListenerAddrs([]netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:25"), netip.MustParseAddrPort("0.0.0.0:2525")})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"192.0.2.1:25": true, "127.0.0.1:2525": true}
	for _, a := range got {
		delete(want, a.String())
	}
	if len(want) > 0 {
		t.Errorf("%v lacks %v", got, want)
	}
}

// BenchmarkRoute routes a domain that is known, as most are that a message is for.
func BenchmarkRoute(b *testing.B) {
	r := New(Config{}, &names{})
	defer r.Close()
	told := make(chan struct{}, 1)
	req := Request{Message: 1, Domains: []string{"known.test"}, Done: func(string, *route.Route, *reply.Reply) { told <- struct{}{} }}
	r.Submit(req)
	<-told
	b.ReportAllocs()
	for b.Loop() {
		r.Submit(req)
		<-told
	}
}

func BenchmarkSubmitUnknown(b *testing.B) {
	r := New(Config{}, &names{})
	defer r.Close()
	told := make(chan struct{}, 1)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i++
		r.Submit(Request{Message: 1, Domains: []string{fmt.Sprintf("d%d.test", i)}, Done: func(string, *route.Route, *reply.Reply) { told <- struct{}{} }})
		<-told
	}
}

// A million domains in one envelope, nothing known: the cost of each stays that of one.
func BenchmarkSubmitMillion(b *testing.B) {
	domains := make([]string, 1_000_000)
	for i := range domains {
		domains[i] = fmt.Sprintf("d%d.test", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		r := New(Config{}, &names{})
		var left sync.WaitGroup
		left.Add(len(domains))
		r.Submit(Request{Message: 1, Domains: domains, Done: func(string, *route.Route, *reply.Reply) { left.Done() }})
		left.Wait()
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(domains)), "ns/domain")
}

// With nothing to do, or nobody who may be given a worker, the router does nothing at all: it looks
// at no clock and starts no goroutine.
func TestS5_RouterSleepsWhenEmptyOrBlocked(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var looks atomic.Int64
		n := &names{delay: func(string) time.Duration { return 40 * time.Second }}
		r := New(Config{Settings: Settings{Workers: 2, FirstTry: time.Minute}, Now: func() time.Time { looks.Add(1); return time.Now() }}, n)
		defer r.Close()
		var c collector
		idle := func(what string) {
			t.Helper()
			synctest.Wait()
			before := looks.Load()
			time.Sleep(30 * time.Second)
			synctest.Wait()
			if n := looks.Load() - before; n != 0 {
				t.Errorf("%s: the clock was looked at %d times", what, n)
			}
		}
		idle("empty")
		for i := range 1000 {
			r.Submit(Request{Message: envelope.ID(i), Domains: []string{fmt.Sprint("d", i, ".example")}, Done: c.done})
		}
		idle("blocked")
		if s := r.Stats(); s.Running != 2 || s.Messages != 998 || c.count() != 0 {
			t.Errorf("%d run, %d messages wait, %d are done: nobody is blocked", s.Running, s.Messages, c.count())
		}
	})
}
