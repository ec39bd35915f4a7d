package delivery

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// slowHost takes a message in that time.
func slowHost(d time.Duration) sink.Config {
	return sink.Config{Work: map[sink.Phase]time.Duration{sink.End: d}}
}

// standing counts the connections that take mail.
func (w *world) standing() (n int) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for c := range w.s.conns {
		if c.rec.Phase == destdb.Open {
			n++
		}
	}
	return n
}

// TestALimitOnConnectionsFalls: whatever it is of, the connections beyond it end when they have done what they are at, and
// idle ones at once; nothing is sent twice, and no more is opened.
func TestALimitOnConnectionsFalls(t *testing.T) {
	for what, limits := range map[string]func(n int) Limits{
		"site":     func(n int) Limits { return Limits{Site: Scope{Connections: n}} },
		"path":     func(n int) Limits { return Limits{Path: Scope{Connections: n}} },
		"source":   func(n int) Limits { return Limits{Source: Scope{Connections: n}} },
		"provider": func(n int) Limits { return Limits{Provider: Scope{Connections: n}} },
		"host":     func(n int) Limits { return Limits{Host: Scope{Connections: n}} },
		"shared": func(n int) Limits {
			return Limits{Shared: []NamedScope{{"site a from pool p", Scope{Connections: n}}}}
		},
	} {
		for _, mode := range []smtpclient.Mode{smtpclient.LockStep, smtpclient.Chunked} {
			t.Run(fmt.Sprint(what, " ", mode), func(t *testing.T) {
				bubble.Test(t, func(t *testing.T) {
					most := 20
					w := newWorld(t, atOnce(func(c *Config) {
						c.Limits = func(*route.Route, string, string) Limits {
							l := limits(most)
							l.MaxMode, l.IdleTimeout = mode, time.Hour
							return l
						}
					}))
					defer w.end()
					r := routeTo("a", tier(w.host("mx", slowHost(time.Second))))
					r.Provider = "big"
					w.send(r, 400)
					time.Sleep(5 * time.Second)
					if n := w.standing(); n != 20 {
						t.Fatalf("%d connections, want 20", n)
					}
					most = 2
					w.s.Reload(nil)
					time.Sleep(1500 * time.Millisecond)
					if n := w.live(); n != 2 {
						t.Errorf("%d connections are open after a message's time, want 2", n)
					}
					before := len(w.dialed())
					done := w.count()
					time.Sleep(10 * time.Second)
					if n, m := w.count()-done, len(w.dialed())-before; n < 16 || n > 24 || m > 0 {
						t.Errorf("%d messages left by %d new connections in 10 s, want about 20 by those that were there", n, m)
					}
					most = 20
					w.s.Reload(nil)
					if got := delivered(w.awaitResults(400, time.Minute)); got != 400 {
						t.Errorf("%d messages were delivered", got)
					}
					if n := len(w.recorder.Deliveries()); n != 400 {
						t.Errorf("the host took %d messages, want each once", n)
					}
					if n := w.live(); n < 15 {
						t.Errorf("%d connections under the old limit again", n)
					}
					most = 1 // they are idle
					w.s.Reload(nil)
					time.Sleep(time.Second)
					if n := w.live(); n != 1 {
						t.Errorf("%d connections are idle, want 1", n)
					}
				})
			})
		}
	}
}

// TestALimitOnConnectionsRises: slow start goes on to it by what the connections take that were there before.
func TestALimitOnConnectionsRises(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		most := 1
		w := newWorld(t, func(c *Config) {
			c.Limits = func(*route.Route, string, string) Limits { return Limits{Site: Scope{Connections: most}} }
		})
		defer w.end()
		w.send(routeTo("a", tier(w.host("mx", slowHost(time.Second)))), 90)
		time.Sleep(10 * time.Second)
		if n := w.standing(); n != 1 {
			t.Fatalf("%d connections, want 1", n)
		}
		most = 20
		w.s.Reload(nil)
		time.Sleep(6 * time.Second)
		if n := w.standing(); n < 15 {
			t.Errorf("%d connections after six messages' time, want near 20", n)
		}
	})
}

// TestConnectionsKeepToNewSettings: what ends a connection is what is configured now.
func TestConnectionsKeepToNewSettings(t *testing.T) {
	for what, after := range map[string]Limits{
		"idle_timeout":                  {IdleTimeout: 10 * time.Second},
		"active_timeout":                {IdleTimeout: time.Hour, ActiveTimeout: 10 * time.Second},
		"max_deliveries_per_connection": {IdleTimeout: time.Hour, ActiveTimeout: time.Hour, MaxDeliveriesPerConnection: 5},
		"pipelining":                    {IdleTimeout: time.Hour, ActiveTimeout: time.Hour, MaxMode: smtpclient.LockStep},
		"timeouts": {IdleTimeout: time.Hour, ActiveTimeout: time.Hour,
			Timeouts: smtpclient.Timeouts{Dot: time.Minute}},
	} {
		t.Run(what, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				l := Limits{Site: Scope{Connections: 1}, IdleTimeout: time.Hour, ActiveTimeout: time.Hour}
				w := newWorld(t, func(c *Config) {
					c.Limits = func(*route.Route, string, string) Limits { return l }
				})
				defer w.end()
				r := routeTo("a", tier(w.host("mx", sink.Config{})))
				w.send(r, 5)
				w.awaitResults(5, time.Minute)
				l = after
				w.s.Reload(nil)
				time.Sleep(12 * time.Second)
				w.send(r, 1)
				w.awaitResults(6, time.Minute)
				w.send(r, 1)
				w.awaitResults(7, time.Minute)
				if n := len(w.dialed()); n != 2 {
					t.Errorf("%d connections, want a second one", n)
				}
			})
		})
	}
}

// TestASourceChanges: mail leaves from what the source is now, and a host that turned it away is tried again.
func TestASourceChanges(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var name, refuses atomic.Value
		name.Store("old.example")
		refuses.Store("")
		hellos := make(chan string, 100)
		w := newWorld(t, atOnce(func(c *Config) {
			c.Source = func(string) (Source, bool) { return Source{Name: "out1", EHLO: name.Load().(string)}, true }
			c.Limits = func(*route.Route, string, string) Limits {
				return Limits{Site: Scope{Connections: 3}, HostRetry: time.Hour}
			}
		}))
		defer w.end()
		host := slowHost(time.Second)
		host.Hook = func(c sink.Command) (a sink.Answer) {
			if c.Phase == sink.Hello {
				hellos <- c.Line
				if c.Line == "EHLO "+refuses.Load().(string) {
					a.Reply = "421 4.7.1 who is that?"
				}
			}
			return a
		}
		r := routeTo("a", tier(w.host("mx", host)))
		w.send(r, 60)
		time.Sleep(5 * time.Second)
		for range len(hellos) {
			<-hellos
		}
		name.Store("new.example")
		w.s.Reload(nil)
		time.Sleep(1500 * time.Millisecond)
		if n := len(hellos); n != 3 || <-hellos != "EHLO new.example" {
			t.Errorf("%d connections were opened as new.example, want 3", n)
		}
		if n := delivered(w.awaitResults(60, time.Minute)); n != 60 || len(w.recorder.Deliveries()) != 60 {
			t.Errorf("%d messages were delivered, the host took %d, want 60", n, len(w.recorder.Deliveries()))
		}
		time.Sleep(time.Minute)
		refuses.Store("new.example")
		w.send(r, 1)
		if got := w.awaitResults(61, time.Minute)[60]; got.Reply.OK() || w.submit(w.job(r, 1)) {
			t.Fatalf("%+v, and more may be tried at once", got)
		}
		name.Store("newer.example")
		w.s.Reload(nil)
		w.send(r, 1)
		if got := w.awaitResults(62, time.Second)[61]; !got.Reply.OK() {
			t.Errorf("by another name: %+v", got)
		}
	})
}

// TestASourceGoesAmidMail: what its connections have not begun goes back, to leave by another, and none of it by the old,
// whoever ends them.
func TestASourceGoesAmidMail(t *testing.T) {
	for _, cut := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			var gone atomic.Bool
			w := newWorld(t, atOnce(func(c *Config) {
				c.Source = func(name string) (Source, bool) { return Source{Name: name, EHLO: "relay.example"}, !gone.Load() }
				c.Limits = func(*route.Route, string, string) Limits {
					return Limits{Site: Scope{Connections: 2}, MaxMode: smtpclient.LockStep}
				}
			}))
			defer w.end()
			host := sink.Config{Latency: 2 * time.Millisecond}
			host.Hook = func(c sink.Command) (a sink.Answer) {
				a.Drop = cut && c.Phase == sink.Mail && gone.Load()
				return a
			}
			w.send(routeTo("a", tier(w.host("mx", host))), 400)
			time.Sleep(101 * time.Millisecond)
			gone.Store(true)
			w.s.Reload(nil)
			sent, back := 0, 0
			for _, r := range w.awaitResults(400, 20*time.Second) {
				switch {
				case r.Reply.OK():
					sent++
				case r.Withdrawn && !r.Attempted:
					back++
				}
			}
			if sent > 100 || sent+back < 396 || len(w.recorder.Deliveries()) != sent || len(w.dialed()) != 2 {
				t.Errorf("%d were sent, %d came back, the host took %d, from %d connections", sent, back, len(w.recorder.Deliveries()), len(w.dialed()))
			}
		})
	}
}

// TestAProviderComes: its limits hold for a site that has mail, from the first route that names it, for the connections
// that are open too.
func TestAProviderComes(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		limits := func(r *route.Route) (l Limits) {
			if r.Provider == "big" {
				l.Provider.Connections = 3
				l.Site.MessageRate = gcra.Rate{Events: 2, Burst: 1}
			}
			return l
		}
		w := newWorld(t, atOnce(func(c *Config) {
			c.Limits = func(r *route.Route, _, _ string) Limits { return limits(r) }
		}))
		defer w.end()
		var at [2]*route.Route
		for i := range at {
			at[i] = routeTo(fmt.Sprint("a", i), tier(w.host(fmt.Sprint("mx", i), slowHost(time.Second))))
			w.send(at[i], 10)
		}
		time.Sleep(2 * time.Second)
		w.s.Reload(nil)
		for i := range at {
			r := *at[i]
			r.Provider = "big"
			w.send(&r, 20)
		}
		before := w.awaitResults(20, time.Minute)
		time.Sleep(3 * time.Second)
		if n := w.live(); n > 3 {
			t.Errorf("%d connections, want 3", n)
		}
		if n := w.count() - len(before); n > 16 {
			t.Errorf("%d messages left at twice 2/s in 3 s", n)
		}
		w.s.Reload(nil)
		for i := range at {
			w.send(at[i], 1) // which has no provider any more
		}
		w.awaitResults(62, 20*time.Second)
	})
}

// TestTheRetryIntervalOfHostsFalls: one that is broken is tried again after the new one, from now on.
func TestTheRetryIntervalOfHostsFalls(t *testing.T) {
	for _, turnedAway := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			l := Limits{HostRetry: 3 * time.Hour, MaxHostRetry: 3 * time.Hour}
			w := newWorld(t, func(c *Config) {
				c.Limits = func(*route.Route, string, string) Limits { return l }
			})
			defer w.end()
			var down atomic.Bool
			down.Store(true)
			h := w.host("mx", sink.Config{Hook: func(c sink.Command) (a sink.Answer) {
				if c.Phase == sink.Hello && down.Load() {
					a.Reply = "421 4.3.2 not now"
				}
				return a
			}})
			w.setDown(h, !turnedAway)
			r := routeTo("a", tier(h))
			w.send(r, 1)
			w.awaitResults(1, time.Minute)
			down.Store(false)
			if w.submit(w.job(r, 1)) {
				t.Fatal("there is space for mail that can't be tried")
			}
			w.setDown(h, false)
			l.HostRetry, l.MaxHostRetry = time.Minute, time.Hour
			w.s.Reload(nil)
			time.Sleep(62 * time.Second)
			if n := len(w.told()); n != 1 {
				t.Fatalf("%d flows have space", n)
			}
			w.send(r, 1)
			if got := w.awaitResults(2, time.Second)[1]; !got.Reply.OK() {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestTransactionsAreDividedAnew when fewer recipients may be in each.
func TestTransactionsAreDividedAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		l := Limits{Site: Scope{MessageRate: gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}}}
		w := newWorld(t, atOnce(func(c *Config) {
			c.Limits = func(*route.Route, string, string) Limits { return l }
		}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		w.send(r, 1)
		w.awaitResults(1, time.Minute)
		for _, n := range []int{250, 10} {
			if !w.submit(w.job(r, n)) {
				t.Fatal("job refused")
			}
		}
		l = Limits{MaxRecipients: 20}
		w.s.Reload(nil)
		back, sent := 0, 0
		for _, r := range w.awaitResults(261, time.Minute)[1:] {
			switch {
			case r.Withdrawn && !r.Attempted:
				back++
			case r.Reply.OK():
				sent++
			}
		}
		if back != 250 || sent != 10 {
			t.Errorf("%d come back and %d were sent, want 250 and 10", back, sent)
		}
	})
}

// BenchmarkANewSite is what the first mail for a site costs among many others.
func BenchmarkANewSite(b *testing.B) {
	for _, sites := range []int{100, 20_000} {
		b.Run(fmt.Sprint(sites), func(b *testing.B) {
			s := New(Config{Source: func(name string) (Source, bool) { return Source{Name: name}, true }})
			defer s.Close()
			reserve := func(n int) {
				r := &route.Route{Domain: "a.example", Site: fmt.Sprint(n), Tiers: []route.Tier{{{Name: "mx",
					Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 25)}}}}
				j := &Job{Message: &envelope.Message{ID: envelope.ID(n)}, Route: r, Source: "out1"}
				if !s.Reserve(j) {
					b.Fatal("refused")
				}
				s.Release(j)
			}
			for n := range sites {
				reserve(n)
			}
			for n := sites; b.Loop(); n++ {
				reserve(n)
			}
		})
	}
}
