package router

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// silence is names of which those of silent.test are never answered.
func silence() *names {
	return &names{delay: func(d string) time.Duration {
		if strings.HasSuffix(d, ".silent.test") {
			return time.Hour
		}
		return 10 * time.Millisecond
	}}
}

// submitEach submits messages for a domain each.
func submitEach(r *Router, c *collector, n int, from envelope.ID) {
	for i := range n {
		r.Submit(Request{Message: from + envelope.ID(i), Domains: []string{fmt.Sprintf("d%d.silent.test", i)}, Done: c.done})
	}
}

// A domain that is asked for the first time doesn't wait for those whose name servers are silent, once it
// is known that they are, and not long before that.
func TestSilentDomainsLeaveWorkersToOthers(t *testing.T) {
	const silent = 1000
	inBubble(t, silence(), Settings{Timeout: 15 * time.Second}, func(t *testing.T, r *Router) {
		var c collector
		for round, most := range []time.Duration{silent / 50 * 2 * time.Second, 100 * time.Millisecond} {
			submitEach(r, &c, silent, envelope.ID(1+round*silent))
			time.Sleep(time.Millisecond)
			domain, start := fmt.Sprintf("new%d.test", round), time.Now()
			r.Submit(Request{Message: 1e6, Domains: []string{domain}, Done: c.done})
			for len(c.say(domain)) == 0 {
				time.Sleep(10 * time.Millisecond)
				synctest.Wait()
			}
			took := time.Since(start)
			t.Logf("round %d: amid %d silent domains a new one took %v", round, silent, took)
			if took > most {
				t.Errorf("round %d: it took %v, want %v at most", round, took, most)
			}
			for c.count() < (round+1)*(silent+1) { // all silent ones fail
				time.Sleep(time.Second)
				synctest.Wait()
			}
			if s := r.Stats(); s.Running != 0 || s.Messages != 0 || r.mu.patience.running != 0 {
				t.Errorf("left: %+v, %d patient", s, r.mu.patience.running)
			}
			time.Sleep(time.Minute)
		}
	})
}

// A look-up that is cut off for others gets all of its time later.
func TestSlowDomainsHaveTheirTime(t *testing.T) {
	n := silence()
	silent := n.delay
	n.delay = func(d string) time.Duration {
		if d == "slow.test" {
			return 10 * time.Second
		}
		return silent(d)
	}
	inBubble(t, n, Settings{Workers: 10, Timeout: 15 * time.Second}, func(t *testing.T, r *Router) {
		var c collector
		submitEach(r, &c, 10, 1)
		for i := range 3 {
			r.Submit(Request{Message: envelope.ID(100 + i), Domains: []string{"slow.test"}, Done: c.done})
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got := c.say("slow.test"); got != "mx.slow.test; mx.slow.test; mx.slow.test" || n.askedFor("slow.test") != 2 {
			t.Errorf("asked %d times, told %q", n.askedFor("slow.test"), got)
		}
	})
}

// Close and Reload tell those as well whose look-up was cut off.
func TestClosePatientLookups(t *testing.T) {
	inBubble(t, silence(), Settings{Workers: 4}, func(t *testing.T, r *Router) {
		var c collector
		submitEach(r, &c, 50, 1)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if err := r.Reload(Settings{Workers: 6}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		r.Close()
		if c.count() != 50 {
			t.Errorf("%d of 50 were told", c.count())
		}
		for i := range 50 {
			if got := c.say(fmt.Sprintf("d%d.silent.test", i)); !strings.HasPrefix(got, "451 4.3.2") || strings.Contains(got, ";") {
				t.Errorf("d%d was told %q", i, got)
			}
		}
	})
}

// Close answers for a slow domain, too, whose turn comes just then: nothing that is postponed any more has
// another turn.
func TestCloseAnswersForSlowDomains(t *testing.T) {
	r := New(Config{}, &names{})
	r.mu.Lock()
	r.mu.patience.learn("slow.example", true, r.now())
	r.mu.Unlock()
	turn, closed, told := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1)
	r.Submit(Request{
		Domains: []string{"slow.example"},
		Wanted:  func(string) bool { close(turn); <-closed; return true },
		Done:    func(string, *route.Route, *reply.Reply) { told <- struct{}{} },
	})
	<-turn
	ended := make(chan struct{})
	go func() { r.Close(); close(ended) }()
	for known := false; !known; _, _, known = r.Known("any.example") {
		runtime.Gosched()
	}
	close(closed)
	<-ended
	select {
	case <-told:
	default:
		t.Error("Done was not called")
	}
}
