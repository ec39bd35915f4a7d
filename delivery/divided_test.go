package delivery

import (
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// dealer gives parts by hand. It is a Divider.
type dealer struct {
	mu     sync.Mutex
	parts  map[string]float64 // connections, or events a second
	wanted map[string]float64
	limits map[string]float64
	used   map[string]int
	paced  map[string]*gcra.Limiter
	lacks  string
}

func newDealer() *dealer {
	return &dealer{parts: make(map[string]float64), wanted: make(map[string]float64), limits: make(map[string]float64),
		used: make(map[string]int), paced: make(map[string]*gcra.Limiter)}
}

func (d *dealer) WantConnections(name string, limit, want int) {
	d.want(name, float64(limit), float64(want))
}

func (d *dealer) WantRate(name string, limit gcra.Rate, want float64) {
	d.want(name, limit.PerSecond(), want)
}

func (d *dealer) want(name string, limit, want float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limits[name], d.wanted[name] = limit, want
}

func (d *dealer) Lacks(string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lacks
}

func (d *dealer) Allowed(name string) int { return int(d.part(name)) }

func (d *dealer) part(name string) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.parts[name]
}

func (d *dealer) Open(name string, n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n = max(0, min(n, int(d.parts[name])-d.used[name]))
	d.used[name] += n
	return n
}

func (d *dealer) Close(name string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used[name] -= n
}

func (d *dealer) Next(name string) time.Duration {
	part := d.part(name)
	if part == 0 {
		return -1
	}
	return max(0, time.Until(d.pace(name).Next(time.Now(), rateOf(part), 1)))
}

func rateOf(perSecond float64) gcra.Rate {
	return gcra.Rate{Events: 1, Per: time.Duration(float64(time.Second) / perSecond), Burst: 1}
}

func (d *dealer) pace(name string) *gcra.Limiter {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.paced[name] == nil {
		d.paced[name] = new(gcra.Limiter)
	}
	return d.paced[name]
}

func (d *dealer) Spend(name string) { d.pace(name).Take(time.Now(), rateOf(d.part(name)), 1) }

func (d *dealer) Held(name string) bool { return d.part(name) > 0 }

// give changes parts of limits.
func (d *dealer) give(w *world, parts map[string]float64) {
	d.mu.Lock()
	for name, part := range parts {
		d.parts[name] = part
	}
	d.mu.Unlock()
	w.s.PartsChanged()
	synctest.Wait()
}

// wants is what the relay could use of a limit, as it was declared last.
func (d *dealer) wants(name string) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wanted[name]
}

// dealt is a world whose mail has divided limits.
func dealt(t *testing.T, l Limits) (*world, *dealer) {
	d := newDealer()
	w := newWorld(t, func(c *Config) { unhurried(l)(c); c.Divider = d })
	return w, d
}

func both(s Scope) Limits {
	return Limits{Divided: []NamedScope{{"provider big", s}}, MaxMode: smtpclient.LockStep}
}

// why is why the only lane waits.
func (w *world) why() string {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, l := range w.s.lanes {
		return l.reason(time.Now()).What
	}
	return ""
}

func TestPartOfConnections(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const name = "provider big: connections"
		w, d := dealt(t, both(Scope{Connections: 8}))
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{Latency: 100 * time.Millisecond}))), 400)
		time.Sleep(3 * time.Second)
		if n := w.live(); n != 0 || d.wants(name) == 0 || d.limits[name] != 8 {
			t.Errorf("%d connections without a part, %v wanted of %v", n, d.wants(name), d.limits[name])
		}
		if why := w.why(); why != "connection_limit of provider big, of all relays together" {
			t.Errorf("waits: %s", why)
		}
		d.lacks = "the database is away" // now and then
		for _, part := range []int{1, 4, 2, 0, 3} {
			d.give(w, map[string]float64{name: float64(part)})
			time.Sleep(3 * time.Second)
			if n := w.live(); n != part || d.used[name] != part {
				t.Errorf("%d connections with a part of %d, %d known", n, part, d.used[name])
			}
			if want := d.wants(name); want <= float64(part) || want > 8 {
				t.Errorf("with a part of %d, %v are wanted", part, want)
			}
			if lacks := w.why() == "connection_limit of provider big, of all relays together: the database is away"; lacks != (part == 0) {
				t.Errorf("with a part of %d, it waits: %s", part, w.why())
			}
		}
		for _, r := range w.awaitResults(400, time.Hour) {
			if !r.Reply.OK() && !r.Withdrawn { // by a connection that had to end
				t.Errorf("a message comes back: %+v", r)
			}
		}
		time.Sleep(2 * time.Minute) // idle connections end
		if d.wants(name) != 0 || d.used[name] != 0 {
			t.Errorf("idle, %v are wanted, %d in use", d.wants(name), d.used[name])
		}
	})
}

func TestPartOfARate(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		for _, x := range []struct {
			name, waits string
			limits      Limits
		}{
			{"provider big: messages", "this relay's part of max_message_rate 50/s of provider big, of all relays together",
				both(Scope{MessageRate: gcra.Rate{Events: 50}})},
			{"provider big: new connections", "this relay's part of max_connection_rate of provider big, of all relays together",
				both(Scope{ConnectionRate: gcra.Rate{Events: 50}})},
		} {
			x.limits.MaxDeliveriesPerConnection = 1000
			if strings.HasSuffix(x.name, "new connections") {
				x.limits.MaxDeliveriesPerConnection = 1
			}
			w, d := dealt(t, x.limits)
			w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 200)
			time.Sleep(3 * time.Second)
			if n := len(w.settled()); n != 0 || w.why() != x.waits || d.wants(x.name) != 50 {
				t.Errorf("%d without a part, %v wanted; waits: %s", n, d.wants(x.name), w.why())
			}
			d.give(w, map[string]float64{x.name: 10})
			time.Sleep(5 * time.Second)
			if n := len(w.settled()); n < 48 || n > 52 {
				t.Errorf("%s: %d in 5 s at 10/s", x.name, n)
			}
			d.lacks = "the database is away"
			d.give(w, map[string]float64{x.name: 0})
			before := len(w.settled())
			time.Sleep(5 * time.Second)
			if n := len(w.settled()); n != before || !strings.HasSuffix(x.waits+": the database is away", w.why()) || !strings.Contains(w.why(), "away") {
				t.Errorf("%s: %d more after the part has ended; waits: %s", x.name, n-before, w.why())
			}
			d.give(w, map[string]float64{x.name: 50})
			w.awaitResults(200, time.Minute)
			time.Sleep(time.Minute)
			if n := d.wants(x.name); n != 0 {
				t.Errorf("%s: %v wanted after a minute without mail", x.name, n)
			}
			w.end()
		}
	})
}

// A relay wants somewhat more than it uses, so that the others get the rest.
func TestOnlyWhatIsUsedIsWanted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const name = "provider big: messages"
		w, d := dealt(t, both(Scope{MessageRate: gcra.Rate{Events: 100}}))
		defer w.end()
		d.give(w, map[string]float64{name: 100})
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for range 300 {
			w.send(r, 1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := d.wants(name); math.Abs(n-12.5) > 1.3 {
			t.Errorf("%v a second wanted for 10", n)
		}
	})
}

// A tenant's rate keeps no other tenant's mail.
func TestPartOfATenant(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDealer()
		w := newWorld(t, atOnce(func(c *Config) {
			c.Divider = d
			c.Limits = func(_ *route.Route, _, tenant string) Limits {
				if tenant == "slow" {
					return Limits{Divided: []NamedScope{{"tenant slow", Scope{MessageRate: gcra.Rate{Events: 10}}}}}
				}
				return Limits{}
			}
		}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for _, tenant := range []string{"slow", "other"} {
			for range 50 {
				j := w.job(r, 1)
				j.Message.Tenant = tenant
				w.submit(j)
			}
		}
		time.Sleep(3 * time.Second)
		if n := len(w.settled()); n != 50 || d.wants("tenant slow: messages") != 10 {
			t.Errorf("%d arrived, %v wanted", n, d.wants("tenant slow: messages"))
		}
		d.give(w, map[string]float64{"tenant slow: messages": 10})
		time.Sleep(3 * time.Second)
		if n := len(w.settled()); n < 69 || n > 82 {
			t.Errorf("%d arrived after 3 s at 10/s", n)
		}
		d.give(w, map[string]float64{"tenant slow: messages": 100})
		w.awaitResults(100, time.Minute)
	})
}

// A rule that slows two tenants' mail, and a rule for one of them, count for the relays together, and keep no other mail.
func TestPartOfARule(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDealer()
		w := newWorld(t, atOnce(func(c *Config) {
			c.Divider = d
			c.Limits = func(_ *route.Route, _, tenant string) (l Limits) {
				rule := RuleRate{Rule: 7, Rate: gcra.Rate{Events: 10}, Why: "slow tenant " + tenant + OfAllRelays + ": big", Tenant: tenant, Shared: "rule for tenant " + tenant}
				if tenant == "a" || tenant == "b" {
					l.Rules = []RuleRate{rule}
				}
				return l
			}
		}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for _, tenant := range []string{"a", "b", "other"} {
			for range 50 {
				j := w.job(r, 1)
				j.Message.Tenant = tenant
				w.submit(j)
			}
		}
		time.Sleep(3 * time.Second)
		a, b := d.wants("rule for tenant a: messages"), d.wants("rule for tenant b: messages")
		if n := len(w.settled()); n != 50 || a != 10 || b != 10 || !strings.HasSuffix(w.why(), ", of all relays together: big") {
			t.Errorf("%d arrived, %v and %v wanted, waits: %s", n, a, b, w.why())
		}
		d.give(w, map[string]float64{"rule for tenant a: messages": 10})
		time.Sleep(3 * time.Second)
		if n := len(w.settled()); n < 69 || n > 82 {
			t.Errorf("%d arrived after 3 s at 10/s", n)
		}
		d.give(w, map[string]float64{"rule for tenant a: messages": 100, "rule for tenant b: messages": 100})
		w.awaitResults(150, time.Minute)
	})
}

// A process that was stopped finds its parts ended: what its connections have not begun goes back.
func TestNothingBeginsWithoutAPart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const name = "provider big: connections"
		limits := both(Scope{Connections: 1})
		limits.MaxMode, limits.MaxDeliveriesPerConnection = smtpclient.Pipelined, 1000
		w, d := dealt(t, limits)
		defer w.end()
		d.give(w, map[string]float64{name: 1})
		w.send(routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second}))), 200)
		time.Sleep(10*time.Second + 500*time.Millisecond) // between two replies of the host
		d.mu.Lock()
		d.parts[name] = 0 // and nobody has been told
		d.mu.Unlock()
		arrived := len(w.recorder.Deliveries())
		time.Sleep(20 * time.Second)
		if n := len(w.recorder.Deliveries()); n > arrived+1 {
			t.Errorf("%d messages left after the part had ended", n-arrived)
		}
		d.give(w, map[string]float64{name: 1})
		w.awaitResults(200, time.Hour)
	})
}

// What a connection has not begun is asked for a part first, and then for the rest: that may cost a warm-up's token.
func TestATransactionAsksForAPart(t *testing.T) {
	d, asked := newDealer(), 0
	s := &Scheduler{cfg: Config{Divider: d}, budgets: make(map[budgetKey]*budget)}
	x := NamedScope{"provider big", Scope{Connections: 1, MessageRate: gcra.Rate{Events: 5}}}
	may := mayBegin([]dividedLimit{{s.divide(x, time.Now()), x.Scope}}, func(int) bool { asked++; return true })
	d.parts["provider big: connections"] = 1
	if may(1) || asked != 0 {
		t.Error("it begins without a part of the rate")
	}
	d.parts["provider big: messages"] = 1
	if !may(1) || asked != 1 {
		t.Error("it does not begin with its parts")
	}
	d.parts["provider big: connections"] = 0
	if may(1) || asked != 1 {
		t.Error("it begins without a part of the connections")
	}
	if may := mayBegin(nil, nil); may != nil {
		t.Error("a transaction without divided limits asks")
	}
}

// Mail that waits for one limit wants its others, too: or their parts would be given up meanwhile, one after the other.
func TestAllThatMailNeedsIsWanted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		limits := both(Scope{Connections: 4, MessageRate: gcra.Rate{Events: 50}, ConnectionRate: gcra.Rate{Events: 5}})
		limits.Divided = append(limits.Divided, NamedScope{"site a", Scope{Connections: 3, MessageRate: gcra.Rate{Events: 20}}})
		w, d := dealt(t, limits)
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 100)
		parts := map[string]float64{"provider big: messages": 50, "site a: connections": 1, "provider big: new connections": 5,
			"provider big: connections": 1, "site a: messages": 20}
		for next := range parts {
			for range 5 {
				time.Sleep(time.Second)
				for name := range parts {
					if d.wants(name) == 0 {
						t.Fatalf("nothing of %s is wanted; mail waits: %s", name, w.why())
					}
				}
			}
			d.give(w, map[string]float64{next: parts[next]})
		}
		w.awaitResults(100, time.Minute)
	})
}

// Of limits that do not hold it back, mail wants what it uses: the rest is for other relays.
func TestANarrowLimitLeavesTheOthers(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		limits := both(Scope{MessageRate: gcra.Rate{Events: 100}, ConnectionRate: gcra.Rate{Events: 100}})
		limits.Divided = append(limits.Divided, NamedScope{"site a", Scope{MessageRate: gcra.Rate{Events: 2}}})
		w, d := dealt(t, limits)
		defer w.end()
		d.give(w, map[string]float64{"provider big: messages": 100, "provider big: new connections": 100, "site a: messages": 2})
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 100)
		time.Sleep(20 * time.Second)
		if n := d.wants("site a: messages"); n != 2 {
			t.Errorf("%v of the narrow one are wanted", n)
		}
		for _, name := range []string{"provider big: messages", "provider big: new connections"} {
			if n := d.wants(name); n == 0 || n > 4 {
				t.Errorf("%v of %s are wanted, where 2 are used", n, name)
			}
		}
		w.awaitResults(100, time.Minute)
	})
}

// A reload can make a limit while connections are open, and take it away.
func TestALimitComesAndGoes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		limits := Limits{MaxMode: smtpclient.LockStep, IdleTimeout: time.Hour}
		d := newDealer()
		w := newWorld(t, atOnce(func(c *Config) {
			c.Divider = d
			c.Limits = func(*route.Route, string, string) Limits {
				mu.Lock()
				defer mu.Unlock()
				return limits
			}
		}))
		defer w.end()
		reload := func(s ...NamedScope) {
			mu.Lock()
			limits.Divided = s
			mu.Unlock()
			w.s.Reload(nil)
		}
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.send(r, 1)
		w.awaitResults(1, time.Minute)
		reload(NamedScope{"provider big", Scope{Connections: 4, MessageRate: gcra.Rate{Events: 50}}})
		d.give(w, map[string]float64{"provider big: messages": 50})
		w.send(r, 20)
		time.Sleep(10 * time.Second)
		if n := len(w.settled()); n != 1 || d.wants("provider big: connections") == 0 {
			t.Errorf("%d results without a part: the connection is older than the limit", n-1)
		}
		reload(NamedScope{"provider big", Scope{MessageRate: gcra.Rate{Events: 50}}})
		time.Sleep(10 * time.Second)
		if n := d.wants("provider big: connections"); n != 0 {
			t.Errorf("%v connections are wanted of a limit that is gone", n)
		}
		for _, r := range w.awaitResults(21, time.Minute) {
			if !r.Reply.OK() && !r.Withdrawn { // which was submitted when the limit was there
				t.Errorf("a message comes back: %+v", r)
			}
		}
		reload()
		time.Sleep(3 * time.Minute)
		if n := d.wants("provider big: messages"); n != 0 {
			t.Errorf("%v messages are wanted of a limit that is gone", n)
		}
	})
}

// A part that grows is used at once, also while all connections are busy for long.
func TestAPartGrowsAmidALongTransaction(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const name = "provider big: connections"
		w, d := dealt(t, both(Scope{Connections: 8}))
		defer w.end()
		d.give(w, map[string]float64{name: 1})
		w.send(routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.Rcpt: time.Minute}}))), 30)
		time.Sleep(5 * time.Second)
		d.give(w, map[string]float64{name: 3})
		time.Sleep(time.Second)
		if n := w.live(); n != 3 {
			t.Errorf("%d connections a second after the part has grown to 3", n)
		}
		w.awaitResults(30, time.Hour)
	})
}

// TestASiteWhoseMailWaitsIsSuspended: the picture keeps a site that has waited without a connection for longer than its
// garbage collector waits, so that the mail sees what happens to the site.
func TestASiteWhoseMailWaitsIsSuspended(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, d := dealt(t, both(Scope{MessageRate: gcra.Rate{Events: 50}}))
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", sink.Config{}))), 20)
		time.Sleep(3 * time.Minute)
		if _, known := w.s.Site("a"); !known {
			t.Error("the site is not known any more")
		}
		w.s.Suspend("a", "", "maintenance over there", time.Now().Add(time.Hour))
		d.give(w, map[string]float64{"provider big: messages": 50})
		time.Sleep(10 * time.Second)
		if n := len(w.settled()); n != 0 {
			t.Errorf("%d left for a suspended site", n)
		}
		if n := w.s.Resume("a"); n != 1 {
			t.Errorf("resumed %d", n)
		}
		w.awaitResults(20, time.Minute)
	})
}

// A part of a slow rate that grows is used at once, also where mail of two tenants waits for a limit each.
func TestAPartGrowsForTwoTenants(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := newDealer()
		w := newWorld(t, atOnce(func(c *Config) {
			c.Divider = d
			c.Limits = func(_ *route.Route, _, tenant string) (l Limits) {
				if tenant != "" {
					l.Divided = []NamedScope{{"tenant " + tenant, Scope{MessageRate: gcra.Rate{Events: 100}}}}
				}
				return l
			}
		}))
		defer w.end()
		slow := gcra.Rate{Events: 1, Per: time.Hour}
		for _, tenant := range []string{"a", "b"} {
			d.pace("tenant "+tenant+": messages").Take(time.Now(), slow, 1)
		}
		d.give(w, map[string]float64{"tenant a: messages": slow.PerSecond(), "tenant b: messages": slow.PerSecond()})
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		for _, tenant := range []string{"a", "b"} {
			for range 10 {
				j := w.job(r, 1)
				j.Message.Tenant = tenant
				w.submit(j)
			}
		}
		time.Sleep(5 * time.Second)
		if n := len(w.settled()); n != 0 {
			t.Errorf("%d left at 1/h", n)
		}
		for _, tenant := range []string{"a", "b"} {
			d.paced["tenant "+tenant+": messages"] = new(gcra.Limiter)
		}
		d.give(w, map[string]float64{"tenant a: messages": 100, "tenant b: messages": 100})
		time.Sleep(3 * time.Second)
		if n := len(w.settled()); n != 20 {
			t.Errorf("%d of 20 have left 3 s after the parts have grown; waits: %s", n, w.why())
		}
		w.awaitResults(20, 3*time.Hour)
	})
}

// After a reload a relay without mail of a tenant keeps no other one at what the tenant's limit was.
func TestAnEarlierLimitIsForgotten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const name = "tenant a: messages"
		var rate atomic.Int64
		rate.Store(1000)
		d := newDealer()
		w := newWorld(t, atOnce(func(c *Config) {
			c.Divider = d
			c.Limits = func(_ *route.Route, _, tenant string) (l Limits) {
				if tenant != "" {
					l.Divided = []NamedScope{{"tenant " + tenant, Scope{MessageRate: gcra.Rate{Events: int(rate.Load())}}}}
				}
				return l
			}
		}))
		defer w.end()
		d.give(w, map[string]float64{name: 1000})
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		send := func(n int) {
			for range n {
				j := w.job(r, 1)
				j.Message.Tenant = "a"
				w.submit(j)
			}
		}
		send(2000)
		w.awaitResults(2000, time.Minute)
		time.Sleep(dividedQuiet + 2*time.Second)
		if d.wants(name) == 0 {
			t.Fatal("nothing is wanted a while after 1,000 messages a second")
		}
		rate.Store(2000)
		w.s.Reload(nil)
		time.Sleep(2 * time.Second)
		if n := d.wants(name); n != 0 {
			t.Errorf("%v of an earlier limit are wanted", n)
		}
		send(1)
		w.awaitResults(2001, time.Minute)
		if d.wants(name) == 0 || d.limits[name] != 2000 {
			t.Errorf("%v of %v are wanted when mail has come", d.wants(name), d.limits[name])
		}
	})
}
