package callout

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

var noSuchUser = reply.Reply{Code: 550, Enhanced: reply.Enhanced{5, 1, 1}, Text: "no such user"}

// hosts answers after a second: yes to what begins with y, no to n, and nothing to all else.
type hosts struct{ asked atomic.Int64 }

func (h *hosts) ask(ctx context.Context, rcpt envelope.Address) Answer {
	h.asked.Add(1)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return Answer{}
	}
	switch rcpt[0] {
	case 'y':
		return Answer{Known: true}
	case 'n':
		return Answer{Known: true, Refusal: noSuchUser}
	}
	<-ctx.Done()
	return Answer{}
}

func withChecker(t *testing.T, test func(*testing.T, *Checker, *hosts)) {
	bubble.Test(t, func(t *testing.T) {
		h := new(hosts)
		c := New(h.ask, time.Now)
		defer c.Close()
		test(t, c, h)
	})
}

// Answers are remembered, yes for two hours and no for a quarter of one, and silence for no time.
func TestAnswersAreRemembered(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		check := func(rcpt envelope.Address, missing bool, took time.Duration, asked int64) {
			t.Helper()
			began := time.Now()
			a := c.Check(t.Context(), rcpt)
			if a.Missing() != missing || time.Since(began) != took || h.asked.Load() != asked {
				t.Errorf("%s: %+v after %v, %d were asked; want missing %v after %v, %d", rcpt, a, time.Since(began), h.asked.Load(), missing, took, asked)
			}
		}
		check("yes@box.example", false, time.Second, 1)
		check("no@box.example", true, time.Second, 2)
		time.Sleep(keepNo - time.Second)
		check("no@box.example", true, 0, 2)
		time.Sleep(time.Second)
		check("no@box.example", true, time.Second, 3)
		check("yes@box.example", false, 0, 3)
		time.Sleep(keepYes)
		check("yes@box.example", false, time.Second, 4)
		check("silent@box.example", false, Patience, 5)
		check("silent@box.example", false, Patience, 6)
		if s := c.Stats(); s != (Stats{Asked: 6, Recalled: 2, Refused: 3, Unknown: 2}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestForget: what is remembered is asked for anew, and the answer to a question that is open is not remembered.
func TestForget(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		c.Check(t.Context(), "no@box.example")
		var open sync.WaitGroup
		open.Go(func() {
			if a := c.Check(t.Context(), "nobody@box.example"); !a.Missing() {
				t.Errorf("%+v", a)
			}
		})
		time.Sleep(time.Second / 2)
		c.Forget()
		for n, rcpt := range []envelope.Address{"nobody@box.example", "no@box.example"} {
			if c.Check(t.Context(), rcpt); h.asked.Load() != int64(n+3) {
				t.Errorf("%s: %d were asked", rcpt, h.asked.Load())
			}
			if c.Check(t.Context(), rcpt); h.asked.Load() != int64(n+3) {
				t.Errorf("%s is not remembered", rcpt)
			}
		}
		open.Wait()
	})
}

// Many clients that ask for one mailbox make one question, and one who goes does not end it for the others.
func TestOneQuestionForMany(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		var all sync.WaitGroup
		var missing atomic.Int64
		for i := range 100 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Second/2+time.Duration(i%2)*time.Second)
				defer cancel()
				if a := c.Check(ctx, "no@box.example"); a.Missing() {
					missing.Add(1)
				}
			})
		}
		all.Wait()
		if h.asked.Load() != 1 || missing.Load() != 50 {
			t.Errorf("%d were asked, and %d heard the answer; want 1 and 50", h.asked.Load(), missing.Load())
		}
	})
}

// What is beyond the limit passes at once.
func TestLimitOfQuestions(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		for i := range 10 * Limit {
			go c.Check(t.Context(), envelope.Address(fmt.Sprintf("no%d@box.example", i)))
		}
		synctest.Wait()
		began := time.Now()
		if a := c.Check(t.Context(), "no@box.example"); a.Known || time.Since(began) > 0 || h.asked.Load() != Limit {
			t.Errorf("%+v after %v, %d were asked", a, time.Since(began), h.asked.Load())
		}
		time.Sleep(2 * time.Second)
		if a := c.Check(t.Context(), "no@box.example"); !a.Missing() {
			t.Errorf("after the others: %+v", a)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	c := New(nil, time.Now)
	for i := range maxKept * 3 / 2 {
		c.keep(envelope.Address(fmt.Sprint(i)), Answer{Known: true})
	}
	if n := len(c.kept); n > maxKept {
		t.Errorf("%d answers are kept", n)
	}
}

// A clock that was set back makes no answer last longer.
func TestAnswersAndAClockSetBack(t *testing.T) {
	now := time.Now()
	c := New(nil, func() time.Time { return now })
	c.keep("a@box.example", Answer{Known: true})
	now = now.Add(-24 * time.Hour)
	if m := c.kept["a@box.example"]; m.fresh(now) {
		t.Error("the answer lasts a day and two hours")
	}
}

// Close ends what is being asked, and who checks after that is not kept waiting.
func TestClose(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		done := make(chan Answer)
		go func() { done <- c.Check(context.Background(), "silent@box.example") }()
		synctest.Wait()
		c.Close()
		if a := <-done; a.Known {
			t.Errorf("%+v", a)
		}
		if a := c.Check(context.Background(), "yes@box.example"); a.Known || h.asked.Load() != 1 {
			t.Errorf("after Close: %+v", a)
		}
	})
}

// A domain is the same in upper and lower case; the local part need not be (RFC 5321, 2.4).
func TestSpellingsOfADomainAreOneQuestion(t *testing.T) {
	withChecker(t, func(t *testing.T, c *Checker, h *hosts) {
		for _, rcpt := range []envelope.Address{"yes@box.example", "yes@BOX.example", "yes@box.Example", "Yes@box.example"} {
			c.Check(context.Background(), rcpt)
		}
		if n := h.asked.Load(); n != 2 {
			t.Errorf("%d questions, want 2", n)
		}
	})
}
