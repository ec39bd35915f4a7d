package router

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
)

// verify asks about a domain for at most that long, and gives the answer in a word.
func verify(r *Router, domain string, most time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	refused, known := r.Verify(ctx, domain)
	switch {
	case !known:
		return "unknown"
	case refused != nil:
		return fmt.Sprint(refused.Code, " ", refused.Enhanced)
	}
	return "takes mail"
}

// Ten thousand verifications whose name servers don't answer hold the configured workers and no
// more, mail is routed beside them as if they were not there, and each has its word in time.
func TestS16_VerificationsAreOnePseudoMessage(t *testing.T) {
	n := &names{delay: func(domain string) time.Duration {
		if domain == "quick.example" {
			return 10 * time.Millisecond
		}
		return 40 * time.Second
	}}
	inBubble(t, n, Settings{Workers: 100, VerifyWorkers: 7}, func(t *testing.T, r *Router) {
		const many, patience = 10_000, 2 * time.Second
		began := time.Now()
		var unknown atomic.Int64
		var asking sync.WaitGroup
		for i := range many {
			asking.Go(func() {
				if verify(r, fmt.Sprint("v", i, ".example"), patience) == "unknown" {
					unknown.Add(1)
				}
			})
		}
		synctest.Wait()
		if s := r.Stats(); s.Verifying != 7 || s.Running != 7 || s.Verifications != many-7 {
			t.Errorf("%d workers verify, %d are busy, %d domains wait; want 7, 7 and the rest", s.Verifying, s.Running, s.Verifications)
		}
		// A big envelope gets what it would have got, but for those seven; a small one its worker.
		var c collector
		var domains []string
		for i := range 500 {
			domains = append(domains, fmt.Sprint("m", i, ".example"))
		}
		r.Submit(Request{Message: envelope.ID(1), Domains: domains, Done: c.done})
		synctest.Wait()
		if s := r.Stats(); s.Verifying != 7 || s.Running < 90 {
			t.Errorf("beside a big envelope %d workers verify, %d are busy", s.Verifying, s.Running)
		}
		r.Submit(Request{Message: envelope.ID(2), Domains: []string{"quick.example"}, Done: c.done})
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if got := c.say("quick.example"); got != "mx.quick.example" {
			t.Errorf("small mail waits beside verifications: %q", got)
		}
		asking.Wait()
		if took := time.Since(began); took != patience || unknown.Load() != many {
			t.Errorf("%d of %d have no answer after %v, want all after %v", unknown.Load(), many, took, patience)
		}
		// Nobody waits any more: what was not begun never is.
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		n.mu.Lock()
		asked := len(n.asked)
		n.mu.Unlock()
		if s := r.Stats(); s.Verifying != 0 || s.Verifications != 0 || asked != 7+501 {
			t.Errorf("left: %d workers, %d domains; %d domains were looked up, want those begun and the mail's", s.Verifying, s.Verifications, asked)
		}
	})
}

func TestVerifyAnswers(t *testing.T) {
	n := &names{delay: func(string) time.Duration { return 100 * time.Millisecond }}
	inBubble(t, n, Settings{Workers: 3, VerifyWorkers: 1}, func(t *testing.T, r *Router) {
		if got := verify(r, "a.example", time.Second); got != "takes mail" {
			t.Errorf("a.example: %s", got)
		}
		if got := verify(r, "no.example", time.Second); got != "550 5.1.2" {
			t.Errorf("no.example: %s", got)
		}
		// What is known is known at once, and mail makes use of it.
		var c collector
		r.Submit(Request{Domains: []string{"a.example"}, Done: c.done})
		if verify(r, "no.example", 0) != "550 5.1.2" || c.say("a.example") != "mx.a.example" || n.askedFor("a.example") != 1 {
			t.Error("what was verified is not kept")
		}
		// Many sessions that ask about one domain are one look-up.
		var asking sync.WaitGroup
		var taken atomic.Int64
		for range 100 {
			asking.Go(func() {
				if verify(r, "b.example", time.Second) == "takes mail" {
					taken.Add(1)
				}
			})
		}
		asking.Wait()
		if taken.Load() != 100 || n.askedFor("b.example") != 1 {
			t.Errorf("%d of 100 have an answer from %d look-ups, want 100 from 1", taken.Load(), n.askedFor("b.example"))
		}
		// One who left takes nothing from those who stay.
		done := make(chan string)
		go func() { done <- verify(r, "c.example", time.Second) }()
		if got := verify(r, "c.example", 50*time.Millisecond); got != "unknown" {
			t.Errorf("after 50 of 100 ms: %s", got)
		}
		if got := <-done; got != "takes mail" {
			t.Errorf("who stayed: %s", got)
		}
	})
}

func TestCloseAnswersVerifications(t *testing.T) {
	n := &names{delay: func(string) time.Duration { return time.Hour }}
	inBubble(t, n, Settings{VerifyWorkers: 1}, func(t *testing.T, r *Router) {
		began := time.Now()
		answers := make(chan string, 3)
		for i := range 3 {
			go func() { answers <- verify(r, fmt.Sprint("d", i, ".example"), time.Minute) }()
		}
		synctest.Wait()
		r.Close()
		for range 3 {
			if got := <-answers; got != "451 4.3.2" {
				t.Errorf("at the end: %s", got)
			}
		}
		if got := verify(r, "d.example", time.Minute); got != "451 4.3.2" || time.Since(began) != 0 {
			t.Errorf("after the end: %s, after %v", got, time.Since(began))
		}
	})
}
