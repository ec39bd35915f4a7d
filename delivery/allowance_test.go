package delivery

import (
	"context"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/delivery/smtpclient"
	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/lab/sink"
)

// plodder is a session that works on one transaction after the other, each for as long as time
// says, and tells whose it was.
type plodder struct {
	fakeSession
	time func() time.Duration
	tell func(envelope.ID)
}

func (p *plodder) run() {
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.ending {
			p.wake.Wait()
		}
		var t *smtpclient.Transaction
		if len(p.queue) > 0 {
			t, p.queue = p.queue[0], p.queue[1:]
		}
		p.mu.Unlock()
		if t == nil {
			p.closed(nil)
			return
		}
		time.Sleep(p.time())
		p.tell(t.Message.ID)
		results := make([]smtpclient.Result, len(t.Recipients))
		for i := range results {
			results[i].Fate, results[i].Reply.Code = smtpclient.Answered, 250
		}
		t.Done(t, smtpclient.Outcome{Results: results})
	}
}

func (p *plodder) Depth() int { return 1 }

// The second big envelope takes the rest of the connections at once, and as the jobs of the first
// end the workers move over: within ten mean job times, as S4 wants, both get the same.
func TestS4_WorkersMoveOverToTheSecondMessage(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		const mean = time.Second
		var mu sync.Mutex // guards the rest
		rnd := rand.New(rand.NewPCG(3, 4))
		ended := map[envelope.ID]int{}
		w := newWorld(t, func(c *Config) {
			unhurried(Limits{Site: Scope{Connections: 100}, MaxRecipients: 1, MaxDeliveriesPerConnection: 1e6})(c)
			c.handshake = func(_ context.Context, nc net.Conn, cfg smtpclient.Config) (session, error) {
				nc.Close()
				p := &plodder{fakeSession: fakeSession{closed: cfg.Closed},
					time: func() time.Duration {
						mu.Lock()
						defer mu.Unlock()
						return mean/2 + time.Duration(rnd.Int64N(int64(mean)))
					},
					tell: func(id envelope.ID) {
						mu.Lock()
						defer mu.Unlock()
						ended[id]++
					}}
				p.wake.L = &p.mu
				go p.run()
				return p, nil
			}
		})
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{})))
		big := func() *Job {
			j := w.job(r, 4000)
			w.submit(j)
			return j
		}
		connections := func(j *Job) int {
			synctest.Wait()
			w.s.mu.Lock()
			defer w.s.mu.Unlock()
			return w.s.messages[j.Message.ID].workers
		}
		a := big()
		time.Sleep(20 * mean)
		if n := connections(a); n != 91 {
			t.Errorf("alone, the first has %d of 100 connections, want 91 (S3)", n)
		}
		b := big()
		if n := connections(b); n < 9 {
			t.Errorf("the second got %d connections at once, want the 9 that were left", n)
		}
		if n := w.s.Counts().Live; n != 100 {
			t.Errorf("%d connections, want all 100", n)
		}
		time.Sleep(10 * mean)
		for range 5 { // and it stays so
			synctest.Wait()
			mu.Lock()
			before := [2]int{ended[a.Message.ID], ended[b.Message.ID]}
			mu.Unlock()
			time.Sleep(4 * mean)
			mu.Lock()
			got := [2]int{ended[a.Message.ID] - before[0], ended[b.Message.ID] - before[1]}
			mu.Unlock()
			if share := float64(got[1]) / float64(got[0]+got[1]); share < .45 || share > .55 || got[0]+got[1] < 350 {
				t.Errorf("of %d jobs in 4 s the second has %.0f %%, want half of 400", got[0]+got[1], 100*share)
			}
		}
		w.s.Cancel(a.Message.ID)
		w.s.Cancel(b.Message.ID)
		w.awaitResults(8000, time.Minute)
	})
}

// Nothing waits, or nothing that waits may go: the scheduler sleeps, but for its look around once a
// second, and its stack is no deeper however much waits (Finch's recursion has no base case).
func TestS5_EmptyAndBlockedAreIdle(t *testing.T) {
	depth := func(waiting int) int {
		var deepest int
		bubble.Test(t, func(t *testing.T) {
			var looks, most atomic.Int64
			w := newWorld(t, func(c *Config) {
				unhurried(Limits{Site: Scope{Connections: 1}, MaxRecipients: 1, ActiveTimeout: 3 * time.Hour, IdleTimeout: 3 * time.Hour})(c)
				c.Share = waiting + 1
				c.Now = func() time.Time {
					looks.Add(1)
					var pcs [512]uintptr
					most.Store(max(most.Load(), int64(runtime.Callers(0, pcs[:]))))
					return time.Now()
				}
			})
			defer w.end()
			idle := func(what string) {
				t.Helper()
				synctest.Wait()
				looks.Store(0)
				time.Sleep(time.Minute)
				synctest.Wait()
				if n := looks.Load(); n > 60*4 {
					t.Errorf("%s: the clock was looked at %d times in a minute", what, n)
				}
			}
			idle("empty")
			r := routeTo("a", tier(w.host("mx", sink.Config{Work: map[sink.Phase]time.Duration{sink.End: time.Hour}})))
			w.send(r, 1)
			for range waiting { // its connection is busy for an hour, and there may be no other
				w.submit(w.job(r, 1))
			}
			idle("blocked")
			l := lanes(w, "a")[0]
			if l.Waiting == 0 || l.Why == "" {
				t.Errorf("%d wait for %q: nobody is blocked", l.Waiting, l.Why)
			}
			w.s.Suspend("b", "", "a test", time.Now().Add(time.Hour))
			w.submit(w.job(routeTo("b", tier(w.host("mx2", sink.Config{}))), 1))
			idle("suspended")
			deepest = int(most.Load())
		})
		return deepest
	}
	few, many := depth(20), depth(2_000)
	if many > few {
		t.Errorf("the stack is %d deep with 20 jobs waiting and %d with 2,000", few, many)
	}
}
