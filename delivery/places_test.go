package delivery

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/route"
	"example.org/mta/lab/sink"
)

// delays is how long each job took from Submit to Done.
type delays struct {
	w    *world
	sent int
	at   []time.Duration
}

// send submits a job from a source.
func (d *delays) send(r *route.Route, source string) {
	d.w.t.Helper()
	d.sent++
	j, began := d.w.job(r, 1), time.Now()
	j.Source = source
	j.Done = func(j *Job, results []Result) {
		d.w.mu.Lock()
		d.at = append(d.at, time.Since(began))
		d.w.mu.Unlock()
		d.w.done(j, results)
	}
	if !d.w.submit(j) {
		d.w.t.Fatal("job refused")
	}
}

// quantile is after how long that part of the jobs was done.
func (d *delays) quantile(q float64) time.Duration {
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	at := slices.Sorted(slices.Values(d.at))
	return at[min(int(q*float64(len(at))), len(at)-1)]
}

// asShipped are the limits that a configuration without any has.
func asShipped(l Limits) func(*Config) {
	if l.Site.Connections == 0 {
		l.Site.Connections = 10
	}
	return func(c *Config) {
		c.Limits = func(*route.Route, string, string) Limits { return l }
	}
}

func sourceName(i int) string { return fmt.Sprintf("out%d", i+1) }

// Of 30 sources at a site with 10 connections none is left out.
func TestPlacesOfManySources(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond})))
		d := delays{w: w}
		const n = 600
		for i := range n {
			d.send(r, sourceName(i*7%30))
			time.Sleep(100 * time.Millisecond)
		}
		w.awaitResults(n, time.Minute)
		t.Logf("p50 %v, p99 %v, %d connections for %d messages", d.quantile(.5), d.quantile(.99), len(w.dialed()), n)
		if p99 := d.quantile(.99); p99 > 2*time.Second {
			t.Errorf("p99 %v, want less than 2 s", p99)
		}
	})
}

func TestPlacesOfManySourcesAtOnce(t *testing.T) {
	for _, x := range []struct {
		sources, messages int
		most              time.Duration
	}{{30, 600, 10 * time.Second}, {1000, 1500, 90 * time.Second}} {
		t.Run(fmt.Sprint(x.sources), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, asShipped(Limits{}))
				defer w.end()
				r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond})))
				d := delays{w: w}
				for i := range x.messages {
					d.send(r, sourceName(i%x.sources))
				}
				w.awaitResults(x.messages, 10*time.Minute)
				t.Logf("p50 %v, last %v, %d connections", d.quantile(.5), d.quantile(1), len(w.dialed()))
				if last := d.quantile(1); last > x.most {
					t.Errorf("the last took %v, want less than %v", last, x.most)
				}
			})
		})
	}
}

// The sites of a provider take each other's places.
func TestPlacesOfAProvidersSites(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{Provider: Scope{Connections: 10}}))
		defer w.end()
		d := delays{w: w}
		for i := range 40 {
			r := routeTo(fmt.Sprint("site", i), tier(w.host(fmt.Sprint("mx", i), sink.Config{Latency: 50 * time.Millisecond})))
			r.Provider = "p"
			d.send(r, "out1")
		}
		w.awaitResults(40, 5*time.Minute)
		t.Logf("last %v", d.quantile(1))
		if last := d.quantile(1); last > 3*time.Second {
			t.Errorf("the last took %v, want less than 3 s", last)
		}
	})
}

// A tenant with a pool of its own does not wait for the end of another's backlog, though the host is
// slow and all connections are busy.
func TestPlacesOfASecondTenant(t *testing.T) {
	for _, head := range []time.Duration{3 * time.Second, time.Minute} {
		t.Run(head.String(), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				w := newWorld(t, asShipped(Limits{}))
				defer w.end()
				r := routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: time.Second}})))
				first, second := delays{w: w}, delays{w: w}
				for range 1000 {
					first.send(r, "out1")
				}
				time.Sleep(head)
				for range 30 {
					second.send(r, "out2")
				}
				w.awaitResults(1030, 10*time.Minute)
				t.Logf("the second tenant's first message took %v, its median %v, its last %v", slices.Min(second.at), second.quantile(.5), second.quantile(1))
				if d := slices.Min(second.at); d > 3*time.Second {
					t.Errorf("the second tenant's first message took %v, want less than 3 s", d)
				}
			})
		})
	}
}

// Whatever the limits and the mail: while a lane waits for a place, no connection of the scope is idle
// unless one is on its way out for it; and a source that has no connection has one before the others
// have been given one each.
func TestPlacesGoByTurns(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				rnd := rand.New(rand.NewPCG(seed, 1))
				limits := Limits{Site: Scope{Connections: 1 + rnd.IntN(6)}, Provider: Scope{Connections: 2 + rnd.IntN(8)},
					Source: Scope{Connections: rnd.IntN(4)}, Host: Scope{Connections: rnd.IntN(4)}}
				change := func(c *Config) {
					asShipped(limits)(c)
					c.MaxConnections = 3 + rnd.IntN(10)
				}
				if seed%2 == 0 {
					change = atOnce(change)
				}
				w := newWorld(t, change)
				defer w.end()
				var sites []*route.Route
				for i := range 1 + rnd.IntN(4) {
					h := w.host(fmt.Sprint("mx", i), sink.Config{Latency: time.Duration(rnd.IntN(80)) * time.Millisecond,
						Work: map[sink.Phase]time.Duration{sink.End: time.Duration(rnd.IntN(50)) * time.Millisecond}})
					sites = append(sites, routeTo(fmt.Sprint("site", i), tier(h)))
					sites[i].Provider = "p"
				}
				sources := 2 + rnd.IntN(12)
				d := delays{w: w}
				for range 400 {
					for range 1 + rnd.IntN(2)*rnd.IntN(20) {
						d.send(sites[rnd.IntN(len(sites))], sourceName(rnd.IntN(sources)))
					}
					time.Sleep(time.Duration(rnd.IntN(100)) * time.Millisecond)
					synctest.Wait()
					w.checkPlaces(sources * len(sites))
				}
				w.awaitResults(d.sent, time.Hour)
				for w.s.Counts().Waiting > 0 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					w.checkPlaces(sources * len(sites))
				}
			})
		})
	}
}

// checkPlaces compares the books of all scopes with the connections that there are, and looks for idle
// connections that keep a lane waiting.
func (w *world) checkPlaces(turns int) {
	w.t.Helper()
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	type books struct{ live, idle, leaving int }
	seen := map[*budget]books{}
	for c := range w.s.conns {
		for _, b := range c.budgets {
			if b == nil {
				continue
			}
			x := seen[b]
			x.live++
			if c.rec.Phase == destdb.Open && c.rec.Backlog == 0 {
				x.idle++
			}
			if c.leaving {
				x.leaving++
			}
			seen[b] = x
		}
	}
	for _, b := range w.s.budgets {
		if got := (books{b.live, b.idle, b.leaving}); got != seen[b] {
			w.t.Fatalf("%v has books of %+v, want %+v", b.budgetKey, got, seen[b])
		}
		if b.waiting > b.leaving && b.idle > 0 {
			w.t.Fatalf("%d lanes wait for %v, %d connections are on their way out, and %d are idle", b.waiting, b.budgetKey, b.leaving, b.idle)
		}
		lanes, holders := 0, 0
		for _, p := range b.parties {
			lanes += len(p.lanes)
			if p.live > 0 {
				holders++
			}
		}
		if lanes != b.waiting || holders != b.holders {
			w.t.Fatalf("%v has %d lanes in line and %d holders, counts %d and %d", b.budgetKey, lanes, holders, b.waiting, b.holders)
		}
	}
}

// While it waits, a lane without a connection sees at most so many connections begun for others as
// there are lanes.
func TestPlacesWaitIsBounded(t *testing.T) {
	for seed := range uint64(8) {
		bubble.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 2))
			w := newWorld(t, atOnce(asShipped(Limits{Site: Scope{Connections: 1 + rnd.IntN(5)}})))
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 20 * time.Millisecond})))
			const sources = 20
			d := delays{w: w}
			since := map[string]int{} // source: how many had been dialed when its lane began to wait
			worst := 0
			for step := 0; step < 2000 || w.s.Counts().Waiting > 0; step++ {
				if step < 2000 && rnd.IntN(3) == 0 {
					d.send(r, sourceName(rnd.IntN(sources)))
				}
				time.Sleep(5 * time.Millisecond)
				dials := w.dialed()
				w.s.mu.Lock()
				for _, l := range w.s.lanes {
					name := l.laneKey.source
					from, waits := since[name]
					switch wants := l.waiting.n > 0 && l.running+l.opening == 0; {
					case wants && !waits:
						since[name] = len(dials)
					case waits && !wants:
						worst = max(worst, len(dials)-from)
						delete(since, name)
					}
				}
				w.s.mu.Unlock()
			}
			if worst > sources {
				t.Errorf("a source waited for %d connections of others, want %d at most", worst, sources)
			}
		})
	}
}

// Taking turns costs a tenth of the throughput at most, however few the places and however many the
// sources that all have more mail than leaves.
func TestPlacesCostLittle(t *testing.T) {
	for _, without := range []sink.Extension{0, sink.Chunking} {
		alone := throughput(t, 1, without)
		for _, sources := range []int{2, 5, 12} {
			together := throughput(t, sources, without)
			t.Logf("without %v: %.0f messages/s of one source, %.0f of %d", without, alone, together, sources)
			if together < .9*alone {
				t.Errorf("without %v: %.0f messages/s of one source, %.0f of %d together", without, alone, together, sources)
			}
		}
	}
}

// throughput is how many messages leave in a second over 4 connections when each of the sources has more
// than that.
func throughput(t *testing.T, sources int, without sink.Extension) (rate float64) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{Site: Scope{Connections: 4}, MaxDeliveriesPerConnection: 1e6, ActiveTimeout: time.Hour}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Without: without,
			Work: map[sink.Phase]time.Duration{sink.End: 10 * time.Millisecond}})))
		stopped := false
		var send func(i int)
		send = func(i int) {
			j := w.job(r, 1)
			j.Source = sourceName(i)
			j.Done = func(j *Job, results []Result) {
				w.done(j, results)
				if !stopped {
					send(i)
				}
			}
			if !w.submit(j) {
				t.Error("job refused")
			}
		}
		for i := range sources {
			for range 100 {
				send(i)
			}
		}
		time.Sleep(5 * time.Second) // slow start
		before := w.count()
		time.Sleep(20 * time.Second)
		rate = float64(w.count()-before) / 20
		w.mu.Lock()
		stopped = true
		w.mu.Unlock()
		w.awaitResults(before, time.Minute)
	})
	return rate
}

// A free place is offered to all who wait for it, however many before them have no use for it just now.
func TestFreePlaceIsOfferedToAll(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) {
			c.MaxConnections = 1
			c.Limits = func(_ *route.Route, source, _ string) (l Limits) {
				if source == "out1" {
					l.Source.MessageRate = gcra.Rate{Events: 1, Per: time.Hour, Burst: 1}
				}
				return l
			}
		})
		defer w.end()
		slow := sink.Config{Work: map[sink.Phase]time.Duration{sink.Greeting: time.Second}}
		for i := range 50 { // the first takes what the source's rate allows while the others wait for its place
			w.send(routeTo(fmt.Sprint("site", i), tier(w.host(fmt.Sprint("mx", i), slow))), 1)
		}
		time.Sleep(time.Millisecond)
		d := delays{w: w}
		d.send(routeTo("last", tier(w.host("mx.last", sink.Config{}))), "out2")
		w.awaitResults(2, time.Minute)
		if took := d.quantile(1); took > 2*time.Second {
			t.Errorf("a place was free after a second, and was taken after %v", took)
		}
	})
}

// A lane in line has the place of one idle connection: of the one that has been idle longest.
func TestRoomIsMadeByTheLongestIdle(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, atOnce(asShipped(Limits{Provider: Scope{Connections: 5}})))
		defer w.end()
		var sites []*route.Route
		for i := range 7 {
			r := routeTo(fmt.Sprint("site", i), tier(w.host(fmt.Sprint("mx", i), sink.Config{Latency: 50 * time.Millisecond})))
			r.Provider = "p"
			sites = append(sites, r)
		}
		for _, i := range []int{3, 0, 4, 1, 2} {
			w.send(sites[i], 1)
			time.Sleep(time.Second)
		}
		w.send(sites[5], 1)
		w.send(sites[6], 1)
		w.awaitResults(7, time.Second)
		if got, want := w.connected(), []string{"site1", "site2", "site4", "site5", "site6"}; !slices.Equal(got, want) {
			t.Errorf("the sites with connections are %v, want %v", got, want)
		}
	})
}

// connected gives the site of each connection, in order.
func (w *world) connected() (sites []string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for c := range w.s.conns {
		sites = append(sites, c.lane.laneKey.site)
	}
	slices.Sort(sites)
	return sites
}

// places counts the connections of each source.
func (w *world) places() map[string]int {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	n := make(map[string]int)
	for c := range w.s.conns {
		n[c.source.Name]++
	}
	return n
}

// slowSite is a site whose host takes a second for each message, with so many places.
func slowSite(t *testing.T, places int) (*world, *route.Route) {
	w := newWorld(t, atOnce(asShipped(Limits{Site: Scope{Connections: places}, MaxDeliveriesPerConnection: 1e6, ActiveTimeout: 24 * time.Hour})))
	return w, routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Without: sink.Chunking, Work: map[sink.Phase]time.Duration{sink.End: time.Second}})))
}

// One busy connection gives way to a lane in line, and no other while it ends.
func TestOneConnectionGivesWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w, r := slowSite(t, 4)
		defer w.end()
		first := delays{w: w}
		for range 200 {
			first.send(r, "out1")
		}
		time.Sleep(30 * time.Second)
		second := delays{w: w}
		second.send(r, "out2")
		w.awaitResults(201, 10*time.Minute)
		if took := second.quantile(1); took > 5*time.Second {
			t.Errorf("the second source's message took %v", took)
		}
		if n := len(w.dialed()); n != 6 { // 4, the one that took a place, and one that took it back
			t.Errorf("%d connections, want 6", n)
		}
	})
}

// What a connection that gives way had not begun leaves by another. That is no connection that died under it.
func TestWhatGaveWayIsNotMoved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, asShipped(Limits{Site: Scope{Connections: 1}}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 50 * time.Millisecond, Work: map[sink.Phase]time.Duration{sink.End: 10 * time.Second}})))
		d := delays{w: w}
		for range 20 {
			d.send(r, "out1")
		}
		w.s.mu.Lock()
		for p := w.s.bySite["a"][0].waiting.oldest; p != nil; p = p.newer {
			p.moves = maxMoves
		}
		w.s.mu.Unlock()
		d.send(r, "out2")
		if n := delivered(w.awaitResults(21, 5*time.Minute)); n != 21 {
			t.Errorf("%d of 21 delivered", n)
		}
		if n := w.s.Counts().Moved; n != 0 || len(w.dialed()) != 3 {
			t.Errorf("%d messages count as moved, %d connections, want 0 and 3", n, len(w.dialed()))
		}
	})
}

// Sources that all have more mail than leaves have as many places each, give or take one; then no connection is
// closed for the sake of another.
func TestPlacesAreShared(t *testing.T) {
	for places, want := range map[int]map[string]int{4: {"out1": 2, "out2": 2}, 5: {"out1": 3, "out2": 2}} {
		bubble.Test(t, func(t *testing.T) {
			w, r := slowSite(t, places)
			defer w.end()
			for i := range 600 {
				j := w.job(r, 1)
				if j.Source = "out1"; i >= 300 {
					j.Source = "out2"
				}
				if !w.submit(j) {
					t.Fatal("job refused")
				}
				if i == 299 {
					time.Sleep(5 * time.Second) // out1 has all places
				}
			}
			time.Sleep(time.Minute)
			if got := w.places(); !maps.Equal(got, want) {
				t.Errorf("of %d places the sources have %v, want %v", places, got, want)
			}
			if n := len(w.dialed()); n != places+2 {
				t.Errorf("%d connections, want %d", n, places+2)
			}
		})
	}
}

// A lane whose mail was taken back, or has expired, is in line no longer: no connection gives way to it.
func TestNobodyGivesWayToALaneWithoutMail(t *testing.T) {
	for name, takeBack := range map[string]func(*world, *Job){
		"cancel": func(w *world, j *Job) { w.s.Cancel(j.Message.ID) },
		"expiry": func(*world, *Job) { time.Sleep(5 * time.Second) },
		"reload": func(w *world, j *Job) { w.s.Reload(func(o *Job) bool { return o != j }) },
	} {
		bubble.Test(t, func(t *testing.T) {
			w, r := slowSite(t, 1)
			defer w.end()
			w.send(r, 40)
			time.Sleep(time.Second)
			j := w.job(r, 1)
			j.Source, j.Expires = "out2", time.Now().Add(time.Second)
			if !w.submit(j) {
				t.Fatal("job refused")
			}
			takeBack(w, j)
			synctest.Wait()
			w.s.mu.Lock()
			for _, l := range w.s.lanes {
				if l.waitsOn != nil && l.waiting.n == 0 {
					t.Errorf("%s: without mail, source %s is in line for %v", name, l.laneKey.source, l.waitsOn.budgetKey)
				}
			}
			w.s.mu.Unlock()
			w.awaitResults(41, 5*time.Minute)
			if n := len(w.dialed()); n != 1 {
				t.Errorf("%s: %d connections, want 1", name, n)
			}
		})
	}
}
