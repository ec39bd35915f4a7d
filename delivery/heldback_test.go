package delivery

import (
	"testing"
	"time"

	"mta/internal/bubble"
	"mta/internal/sink"
)

// withLeave makes a job that may begin for a while.
func (w *world) withLeave(j *Job, lasts time.Duration) *Job {
	until := time.Now().Add(lasts)
	j.MayBegin = func() bool { return time.Now().Before(until) }
	return j
}

func withdrawn(results []Result) (n int) {
	for _, r := range results {
		if r.Withdrawn && !r.Attempted && r.Reply.Temporary() {
			n++
		}
	}
	return n
}

// TestASuspensionGivesLeavesBack: what waits with a leave when its source is suspended comes back, by an
// operator's word or by a host's; what has none waits on, and so does what never may begin, until
// the suspension is lifted.
func TestASuspensionGivesLeavesBack(t *testing.T) {
	for _, byHost := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1}))
			defer w.end()
			cfg := sink.Config{Latency: time.Second}
			if byHost {
				cfg.Refusals = []sink.Refusal{{Phase: sink.Mail, Prefix: "from@", Reply: "421 4.7.28 unusual rate"}}
			}
			r := routeTo("a", tier(w.host("mx", cfg)))
			r.Provider = "google"
			for range 20 {
				w.s.Submit(w.withLeave(w.job(r, 1), time.Hour))
			}
			w.send(r, 1)
			begun := w.job(r, 1)
			if w.s.HeldBack(begun.Message, r, "out1") != NotHeld {
				t.Error("held back before the suspension")
			}
			if !byHost {
				w.s.Suspend("a", "out1", "a test", time.Now().Add(10*time.Minute))
			}
			results := w.awaitResults(20, 10*time.Second)
			if n := withdrawn(results); n != len(results) && !byHost || n < 15 {
				t.Errorf("%d of %d withdrawn", n, len(results))
			}
			if w.s.HeldBack(begun.Message, r, "out1") != Suspended || w.s.HeldBack(begun.Message, r, "out2") != NotHeld {
				t.Error("the suspended source is not held back, or another is")
			}
			before := w.count()
			w.s.Submit(w.withLeave(w.job(r, 1), -time.Hour))
			time.Sleep(time.Minute)
			if n := w.count(); n != before {
				t.Errorf("%d came back while suspended", n-before)
			}
			if byHost {
				return // which does it again
			}
			w.s.Resume("a")
			after := w.awaitResults(22, time.Minute)[before:] // the one without a leave, too
			if n := withdrawn(after); n != 1 {
				t.Errorf("%d of %+v were withdrawn when it was lifted, want 1", n, after)
			}
		})
	}
}

// TestHeldBackWithoutRoom: a source that has no room at a site is held back there, and another is not.
func TestHeldBackWithoutRoom(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, func(c *Config) { c.Share = 10 })
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second})))
		m := w.job(r, 1).Message
		taken := 0
		for ; w.s.HeldBack(m, r, "out1") == NotHeld; taken++ {
			w.send(r, 1)
		}
		if taken != 10 || w.s.HeldBack(m, r, "out1") != NoRoom || w.s.HeldBack(m, r, "out2") != NotHeld {
			t.Errorf("held back after %d jobs: %v, another source: %v", taken, w.s.HeldBack(m, r, "out1"), w.s.HeldBack(m, r, "out2"))
		}
		w.awaitResults(10, time.Minute)
		time.Sleep(time.Second)
		if w.s.HeldBack(m, r, "out1") != NotHeld {
			t.Error("it is held back for ever")
		}
	})
}

// TestASuspensionGivesBackWhatItsConnectionHad: a host that ends a connection with a reply by which its
// source is suspended has not seen the jobs that were next there. Their leaves don't wait for the end of the
// suspension either, and a job whose other part waits is done once.
func TestASuspensionGivesBackWhatItsConnectionHad(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxRecipients: 2}))
		defer w.end()
		refuse := sink.Refusal{Phase: sink.Mail, Prefix: "from@", Reply: "421 4.7.28 unusual rate"}
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: time.Second, Refusals: []sink.Refusal{refuse}})))
		r.Provider = "google"
		const n = 20
		for range n {
			if !w.s.Submit(w.withLeave(w.job(r, 3), time.Hour)) {
				t.Fatal("job refused")
			}
		}
		time.Sleep(time.Minute)
		results := w.settled()
		if len(results) != 3*n || w.jobs != n {
			t.Errorf("%d results of %d jobs after a minute, want %d of %d; %s", len(results), w.jobs, 3*n, n, w.picture())
		}
		if refused := len(results) - withdrawn(results); refused != 2 {
			t.Errorf("%d were refused, want the first job's first two; the others withdrawn", refused)
		}
	})
}
