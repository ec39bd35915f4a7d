package delivery

import (
	"testing"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// TestASuspensionKeepsWhatMayNotBeginYet: jobs that are asked for a leave at MAIL wait out a suspension like
// any other, by an operator's word or by a host's, and are not asked before.
func TestASuspensionKeepsWhatMayNotBeginYet(t *testing.T) {
	for _, byHost := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1}))
			defer w.end()
			cfg := sink.Config{Latency: time.Second}
			if byHost {
				cfg.Refusals = []sink.Refusal{{Phase: sink.Mail, Prefix: "from@", Reply: "421 4.7.0 [TSS04] Messages from 192.0.2.1 temporarily deferred"}}
			}
			r := routeTo("a", tier(w.host("mx", cfg)))
			r.Provider = "yahoo"
			asked := 0
			for range 20 {
				j := w.job(r, 1)
				j.MayBegin = func(int) bool { asked++; return true }
				w.submit(j)
			}
			if w.s.Suspended("a", "out1") {
				t.Error("suspended from the begin")
			}
			if !byHost {
				w.s.Suspend("a", "out1", "a test", time.Now().Add(10*time.Minute))
			}
			time.Sleep(time.Minute)
			if !w.s.Suspended("a", "out1") || !byHost && w.s.Suspended("a", "out2") {
				t.Error("the suspended source is not, or another is")
			}
			if asked > 3 {
				t.Errorf("%d were asked for while suspended", asked)
			}
			if byHost {
				return // which does it again
			}
			w.s.Resume("a")
			if n := delivered(w.awaitResults(20, 5*time.Minute)); n != 20 || asked != 20 {
				t.Errorf("%d of 20 delivered when it was lifted, %d asked for", n, asked)
			}
		})
	}
}

// TestALostConnectionIsAskedForAnew: what a connection that dies did not come to is asked for when the
// next one begins with it, and each transaction once.
func TestALostConnectionIsAskedForAnew(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxRecipients: 2}))
		defer w.end()
		r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 100 * time.Millisecond})))
		var begun []int
		j := w.job(r, 5)
		j.MayBegin = func(n int) bool { begun = append(begun, n); return n == 2 }
		w.submit(j)
		results := w.awaitResults(5, time.Minute)
		if n := withdrawn(results); n != 1 || delivered(results) != 4 || len(begun) != 3 {
			t.Errorf("%d withdrawn, %d delivered of a job of 5 in transactions of %v", n, delivered(results), begun)
		}
	})
}

func withdrawn(results []Result) (n int) {
	for _, r := range results {
		if r.Withdrawn && !r.Attempted && r.Reply.Temporary() {
			n++
		}
	}
	return n
}
