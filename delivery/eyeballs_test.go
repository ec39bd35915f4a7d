package delivery

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/parking"
	"example.org/mta/lab/sink"
)

// hole makes a host that swallows connection requests.
func (w *world) hole(name string) *worldHost {
	h := w.host(name, sink.Config{})
	w.mu.Lock()
	defer w.mu.Unlock()
	h.hole = true
	return h
}

func (w *world) dialsTo(host string) (n int) {
	for _, d := range w.dialed() {
		if strings.HasSuffix(d, ">"+host) {
			n++
		}
	}
	return n
}

// TestAHostThatSwallowsRequestsCostsLittle has the same in slow start and without, for one message and
// for many: the mail is with the good host after 250 ms for each host that was tried before it.
func TestAHostThatSwallowsRequestsCostsLittle(t *testing.T) {
	for _, messages := range []int{1, 50} {
		for _, change := range []func(*Config){nil, unhurried(Limits{})} {
			for seed := range uint64(4) {
				bubble.Test(t, func(t *testing.T) {
					w := newWorld(t, func(c *Config) {
						c.Rand = rand.New(rand.NewPCG(seed, 1))
						if change != nil {
							change(c)
						}
					})
					defer w.end()
					r := routeTo("a", tier(w.hole("six"), w.host("four", sink.Config{}), w.hole("seven")))
					start := time.Now()
					w.send(r, messages)
					if n := delivered(w.awaitResults(messages, 10*time.Second)); n != messages {
						t.Fatalf("%d of %d delivered", n, messages)
					}
					// 30 ms for the steps of awaitResults and the sink; without slow start all may be
					// tried at once.
					if took := time.Since(start); took > 2*attemptDelay+30*time.Millisecond {
						t.Errorf("seed %d: %d messages took %v; dialed %v", seed, messages, took, w.dialed())
					}
				})
			}
		}
	}
}

func TestTheNextHostIsTriedAfterTheDelay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		r := routeTo("a", tier(w.hole("mx1"), w.hole("mx2"), w.hole("mx3")))
		w.send(r, 1)
		for i := range 3 {
			if i > 0 {
				time.Sleep(attemptDelay - time.Millisecond)
				synctest.Wait()
				if got := w.dialed(); len(got) != i {
					t.Fatalf("before the delay is over: dialed %v", got)
				}
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if got := w.dialed(); len(got) != i+1 {
				t.Fatalf("after %d delays: dialed %v", i, got)
			}
		}
		results := w.awaitResults(1, 2*time.Minute)
		if r := results[0]; r.Reply.Text == "" || !strings.Contains(r.Reply.Text, "connection timed out") || !r.Attempted {
			t.Errorf("result %+v", r)
		}
		hosts := w.dialed()
		slices.Sort(hosts)
		if !slices.Equal(hosts, []string{"out1>mx1", "out1>mx2", "out1>mx3"}) {
			t.Errorf("dialed %v, want each host once", hosts)
		}
		for _, h := range []string{"mx1", "mx2", "mx3"} {
			if s := hostState(w, h); s != destdb.Retry {
				t.Errorf("%s is %v after it has failed", h, s)
			}
		}
	})
}

// TestASlowGreetingIsNoSlowConnection: only the TCP connection counts.
func TestASlowGreetingIsNoSlowConnection(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		slow := sink.Config{Work: map[sink.Phase]time.Duration{sink.Connect: 5 * time.Second}}
		r := routeTo("a", tier(w.host("mx1", slow), w.host("mx2", slow)))
		w.send(r, 1)
		w.awaitResults(1, time.Minute)
		if got := w.dialed(); len(got) != 1 {
			t.Errorf("dialed %v, want one host", got)
		}
	})
}

// TestALoneHostIsNotDialedAgain: there is nothing to be tried beside it.
func TestALoneHostIsNotDialedAgain(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 4}, ConnectTimeout: 30 * time.Second}))
		defer w.end()
		r := routeTo("a", tier(w.hole("mx1")))
		w.send(r, 6)
		synctest.Wait()
		before := w.dialsTo("mx1")
		time.Sleep(29 * time.Second)
		synctest.Wait()
		if after := w.dialsTo("mx1"); before != 2 || after != before {
			t.Errorf("two connections are enough for six messages; dialed %d times, and later %d", before, after)
		}
	})
}

// TestAFamilyComesBack: what was passed over while it was cut off is used again when it works.
func TestAFamilyComesBack(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{ConnectTimeout: 10 * time.Second, HostRetry: time.Minute, IdleTimeout: time.Second}))
		defer w.end()
		six := w.hole("six")
		r := routeTo("a", tier(six, w.host("four", sink.Config{})))
		for range 5 {
			w.send(r, 1)
			time.Sleep(15 * time.Second)
		}
		before := w.dialsTo("six")
		if before == 0 || before > 2 {
			t.Fatalf("the host that is cut off was dialed %d times", before)
		}
		w.mu.Lock()
		six.hole = false
		w.mu.Unlock()
		for range 60 {
			w.send(r, 1)
			time.Sleep(15 * time.Second)
		}
		if after := w.dialsTo("six"); after < before+10 { // by turns with the other
			t.Errorf("it works again, and was dialed %d times before and %d times since", before, after-before)
		}
		if n := delivered(w.settled()); n != 65 {
			t.Errorf("%d of 65 delivered", n)
		}
	})
}

// TestSilentHostAmidALimit: more mail than one connection will take waits for another, which slow start does not allow
// yet. The reason is the host.
func TestSilentHostAmidALimit(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(*Config) {})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Hour})))
		for range 150 {
			w.submit(w.job(r, 1))
		}
		why := func(want string, class parking.Reason) {
			t.Helper()
			if l := lanes(w, "a")[0]; !strings.Contains(l.Why, want) || l.Waits != class {
				t.Errorf("%q, %v", l.Why, l.Waits)
			}
		}
		time.Sleep(time.Second)
		why("slow start", parking.Limit)
		time.Sleep(40 * time.Second)
		why("took a connection 41s ago and is not ready", parking.Unreachable)
	})
}

// An operator is told which host has let us in and says nothing, and until when we wait for it.
func TestSilentHostIsNamed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{}))
		defer w.end()
		j := w.job(routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Hour}))), 1)
		w.submit(j)
		time.Sleep(time.Minute)
		want := "mx[192.0.2.1]:25 took a connection 1m0s ago and is not ready for mail yet (greeting, EHLO or STARTTLS)"
		at, _ := w.s.Whereabouts(j.Message.ID)
		if l := lanes(w, "a")[0]; l.Why != want || len(at.Waiting) != 1 || at.Waiting[0].Why != want || !l.Until.Equal(time.Now().Add(4*time.Minute)) {
			t.Errorf("%q until %v; of the message: %+v", l.Why, l.Until, at)
		}
	})
}
