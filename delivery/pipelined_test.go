package delivery

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/lab/sink"
)

// T4: a connection is cut at the k-th of n messages that are under way on it. What was
// acknowledged is never sent again; all others are delivered; what was sent and not answered may
// come twice, and is then in the log as ambiguous.
func TestT4_CutAfterTheKthOfNPipelined(t *testing.T) {
	modes := map[string]sink.Extension{"pipelining": sink.Chunking, "chunking": 0, "lock-step": sink.Chunking | sink.Pipelining}
	phases := map[string]sink.Phase{"before it is taken": sink.End, "when it is taken": sink.Kept}
	for mode, without := range modes {
		for when, phase := range phases {
			t.Run(mode+"/"+when, func(t *testing.T) {
				for k := 1; k <= 10; k++ {
					bubble.Test(t, func(t *testing.T) { cutAtKth(t, without, phase, k) })
				}
			})
		}
	}
}

func cutAtKth(t *testing.T, without sink.Extension, phase sink.Phase, k int) {
	const before, n = 100, 10 // those before let the window grow, so that the n are all under way
	var log safeBuffer
	w := newWorld(t, func(c *Config) {
		unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1e6, HostRetry: time.Second, MaxHostRetry: time.Second})(c)
		c.Log = slog.New(slog.NewTextHandler(&log, nil))
	})
	defer w.end()
	cfg := sink.Config{Latency: 100 * time.Millisecond, Without: without, Hook: func(c sink.Command) sink.Answer {
		return sink.Answer{Drop: c.Connection == 1 && c.Phase == phase && c.Message == before+k}
	}}
	r := routeTo("a", tier(w.host("mx", cfg)))
	w.send(r, before)
	if got := delivered(w.awaitResults(before, time.Hour)); got != before {
		t.Fatalf("%d of the first %d delivered", got, before)
	}

	acknowledged, ambiguous, open := map[string]int{}, map[string]bool{}, n
	var again []*Job
	done := func(j *Job, results []Result) {
		w.mu.Lock()
		defer w.mu.Unlock()
		id := j.Message.ID.String()
		if results[0].Ambiguous {
			ambiguous[id] = true
		}
		if results[0].Reply.OK() {
			acknowledged[id]++
			open--
			return
		}
		again = append(again, j)
	}
	for range n {
		j := w.job(r, 1)
		j.Done = done
		w.submit(j)
	}
	for end := time.Now().Add(time.Hour); ; time.Sleep(time.Second) { // as the queue would
		synctest.Wait()
		w.mu.Lock()
		left, retry := open, again
		again = nil
		w.mu.Unlock()
		if left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("k=%d: %d not delivered after an hour; %s", k, left, w.picture())
		}
		for _, j := range retry {
			if !w.submit(j) {
				w.mu.Lock()
				again = append(again, j)
				w.mu.Unlock()
			}
		}
	}

	copies := map[string]int{}
	for _, d := range w.recorder.Deliveries()[before:] {
		copies[d.ID]++
	}
	for id, times := range acknowledged {
		if times != 1 || copies[id] == 0 || copies[id] > 1 && !ambiguous[id] || copies[id] > 2 {
			t.Errorf("k=%d: message %s was acknowledged %d times, and came %d times (ambiguous: %v)", k, id, times, copies[id], ambiguous[id])
		}
	}
	if len(acknowledged) != n || len(copies) != n {
		t.Errorf("k=%d: %d of %d acknowledged, %d came", k, len(acknowledged), n, len(copies))
	}
	// At least the one that was cut is in doubt; the k-1 before it were answered and are not.
	if len(ambiguous) == 0 || len(ambiguous) > n-k+1 {
		t.Errorf("k=%d: %d are ambiguous, want 1 to %d", k, len(ambiguous), n-k+1)
	}
	for id := range ambiguous {
		if !strings.Contains(log.String(), fmt.Sprintf("ambiguous: the host may have taken the message, it is tried again\" message=%s", id)) {
			t.Errorf("k=%d: that %s is ambiguous is not in the log", k, id)
		}
	}
	if phase == sink.Kept && len(w.recorder.Deliveries()) == before+n {
		t.Errorf("k=%d: nothing came twice: the test shows nothing", k)
	}
}

// safeBuffer is a log that several goroutines write.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// T5: a connection is used again and again, until it is too old or has carried its number of
// messages, whether mail comes all the time or now and then.
func TestT5_ConnectionsAreReused(t *testing.T) {
	perConnection := func(w *world) (count map[uint64]int) {
		count = map[uint64]int{}
		for _, d := range w.recorder.Deliveries() {
			count[d.Connection]++
		}
		return count
	}
	t.Run("up to their number of messages", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 40, ActiveTimeout: time.Hour}))
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 20 * time.Millisecond})))
			w.send(r, 400)
			w.awaitResults(400, time.Minute)
			if n := len(w.dialed()); n != 10 {
				t.Errorf("%d connections for 400 messages at 40 each, want 10", n)
			}
			for c, n := range perConnection(w) {
				if n != 40 {
					t.Errorf("connection %d carried %d messages, want 40", c, n)
				}
			}
		})
	})
	t.Run("up to their age", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{Site: Scope{Connections: 1}, MaxDeliveriesPerConnection: 1e6, ActiveTimeout: 5 * time.Minute, IdleTimeout: time.Minute}))
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{Latency: 20 * time.Millisecond})))
			for i := range 30 * 60 { // a message each second
				w.send(r, 1)
				time.Sleep(time.Second)
				w.awaitResults(i+1, time.Second)
			}
			if n := len(w.dialed()); n < 6 || n > 7 {
				t.Errorf("%d connections in half an hour with an age of 5 min, want 6 or 7", n)
			}
			first := map[uint64]time.Time{}
			for _, d := range w.recorder.Deliveries() {
				if _, ok := first[d.Connection]; !ok {
					first[d.Connection] = d.At
				}
				if age := d.At.Sub(first[d.Connection]); age > 5*time.Minute+2*time.Second {
					t.Fatalf("connection %d carried mail when it was %v old", d.Connection, age)
				}
			}
		})
	})
	t.Run("while idle, up to their idle age", func(t *testing.T) {
		bubble.Test(t, func(t *testing.T) {
			w := newWorld(t, unhurried(Limits{IdleTimeout: 30 * time.Second, ActiveTimeout: time.Hour}))
			defer w.end()
			r := routeTo("a", tier(w.host("mx", sink.Config{})))
			for i, pause := range []time.Duration{0, 25 * time.Second, 25 * time.Second, 29 * time.Second, 40 * time.Second, 25 * time.Second} {
				time.Sleep(pause)
				w.send(r, 1)
				w.awaitResults(i+1, time.Second)
			}
			if n := len(w.dialed()); n != 2 {
				t.Errorf("%d connections, want 2: only one pause was longer than the idle age", n)
			}
		})
	})
}
