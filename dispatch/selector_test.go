package dispatch

import (
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
)

// engaged submits a message that has a mark.
func (w *warmStage) engaged(tier uint8) envelope.ID {
	w.next++
	l := w.lease(w.next, 0, "r@x.example")
	l.Message.Tenant, l.Message.Tier, l.Message.Received = "acme", tier, w.clock
	l.Message.Marks = []string{"x-mta-engaged: yes"}
	w.handle(l)
	return w.next
}

const preferring = `{
		plan = "small"
		prefer { header = ["X-MTA-Engaged: Yes"] }
	}`

// TestPreferredMailGoesFirstInItsLine: of 60 that wait, those that came last leave first.
func TestPreferredMailGoesFirstInItsLine(t *testing.T) {
	w := newWarmStage(t, strings.Replace(holding, `{ plan = "small" }`, preferring, 1))
	for range 50 {
		w.mailOf(3, 1)
	}
	first := w.next + 1
	for range 10 {
		w.engaged(3)
	}
	w.pass(90 * time.Minute)
	if len(w.jobs) < 12 {
		t.Fatalf("%d have left", len(w.jobs))
	}
	for i, j := range w.jobs[:12] {
		if preferred := j.Message.ID >= first; preferred != (i >= 1 && i < 11) && preferred != (i < 10) {
			t.Errorf("number %d to leave is %s", i, j.Message.ID)
		}
	}
}

// TestOtherMailLeavesTokensToPreferredMail: in a pool where nothing waits, preferred mail finds tokens though
// ten times as much other mail asks for them, and the others fill the hour.
func TestOtherMailLeavesTokensToPreferredMail(t *testing.T) {
	for _, selector := range []string{preferring, `{ plan = "small" }`} {
		w := newWarmStage(t, strings.NewReplacer("hourly = 10", "hourly = 120", "daily = 15", "daily = 2400",
			`{ plan = "small" }`, strings.Replace(selector, "small", "even", 1), `plan "small"`, `plan "even"`).Replace(overflowing))
		took, engaged, all := 0, 0, 0
		for second := range 3 * 3600 {
			if second%90 == 0 && second > 3600 {
				engaged++
				w.engaged(1)
			}
			if second%9 == 0 {
				w.mailOf(1, 1)
			}
			w.pass(time.Second)
		}
		for _, j := range w.jobs {
			if j.Source == "acme-1" {
				all++
				if len(j.Message.Marks) > 0 {
					took++
				}
			}
		}
		t.Logf("%s: %d of %d engaged recipients took the source, and %d in all", selector, took, engaged, all)
		if selector != preferring {
			if took > engaged*8/10 {
				t.Errorf("without prefer %d of %d took the source, so the test shows nothing", took, engaged)
			}
			continue
		}
		if took < engaged*95/100 || all < 3*120*95/100 {
			t.Errorf("%d of %d took the source, and %d in all", took, engaged, all)
		}
	}
}

// TestExceptedMailTakesAnotherSource, at its first attempt and at a retry.
func TestExceptedMailTakesAnotherSource(t *testing.T) {
	w := newWarmStage(t, strings.Replace(overflowing, `{ plan = "small" }`, `{
		plan = "small"
		except { tier = [0, 1] }
		except {
			campaign = ["reset"]
			sender_domain = ["Acme.example"]
		}
	}`, 1))
	w.pass(filling)
	w.mailOf(1, 1)
	w.wantSources(0, 1)
	w.mailOf(2, 1)
	w.step()
	w.wantSources(1, 1)
	for _, c := range []struct {
		sender   envelope.Address
		campaign string
		excepted bool
	}{{"a@acme.example", "reset", true}, {"a@acme.example", "news", false}, {"a@else.example", "reset", false}} {
		before := len(w.jobs)
		w.next++
		l := w.lease(w.next, 0, "r@x.example")
		l.Message.Tenant, l.Message.Tier, l.Message.Received = "acme", 2, w.clock
		l.Message.Sender, l.Message.Campaign = c.sender, c.campaign
		w.handle(l)
		w.step()
		if got := w.jobs[before].Source == "pool-1"; got != c.excepted {
			t.Errorf("%+v left from %s", c, w.jobs[before].Source)
		}
	}
}
