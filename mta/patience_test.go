package mta

import (
	"strings"
	"testing"
	"time"

	"mta/internal/envelope"
)

// newsletter is a pool that diverts, with the preset plan of most.
const newsletter = `
	source "pool-1" { address = "192.0.2.10" }
	source "acme-1" { address = "192.0.2.20" }
	provider "big" { mx = ["*.big.example"] }
	tenant "acme" {
		pool = "acme"
		PATIENCE
	}
	pool "acme" {
		shared = ["pool-1"]
		dedicated "acme-1" { plan = "standard" }
	}`

// mailOf submits a message of a tier to n recipients.
func (w *warmStage) mailOf(tier uint8, n int) envelope.ID {
	w.next++
	var to []string
	for range n {
		to = append(to, "r@x.example")
	}
	l := w.lease(w.next, 0, to...)
	l.Message.Tenant, l.Message.Tier, l.Message.Received = "acme", tier, w.clock
	w.handle(l)
	w.told = w.told[:0]
	return w.next
}

// begunFrom counts the recipients that have left from a source since a job.
func (w *warmStage) begunFrom(source string, first int) (n int) {
	for _, j := range w.jobs[first:] {
		if j.Source == source {
			n += len(j.Recipients)
		}
	}
	return n
}

// TestBurstsWarmUp: mail that comes within ten minutes, or each five minutes, waits for its source by the
// hour for as long as its patience lasts, and the rest takes a shared source at once: the day's caps, 250 and
// 400, are met, and the stage advances.
func TestBurstsWarmUp(t *testing.T) {
	for name, x := range map[string]struct {
		patience string
		every    time.Duration
		for_     time.Duration
		least    []int
	}{
		"ten minutes":              {"", time.Minute, 10 * time.Minute, []int{248, 396}},
		"each five minutes":        {"", 5 * time.Minute, 24 * time.Hour, []int{248, 396}},
		"ten minutes, no patience": {`patience = "0s"`, time.Minute, 10 * time.Minute, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWarmStage(t, strings.Replace(newsletter, "PATIENCE", x.patience, 1))
			begin := w.clock
			const daily = 2000
			burst := daily * int(x.every/time.Second) / int(x.for_/time.Second)
			for day, least := range append(x.least, 0) {
				before := len(w.jobs)
				offered := 0
				for end := begin.Add(time.Duration(day+1) * 24 * time.Hour); w.clock.Before(end); {
					since := w.clock.Sub(begin) % (24 * time.Hour)
					if since < x.for_ && since%x.every == 0 {
						for range burst {
							w.mailOf(3, 1)
						}
						offered += burst
					}
					w.pass(time.Second)
					w.warming.sweep(t.Context(), false)
				}
				n := w.begunFrom("acme-1", before)
				s, _ := w.warming.ctl.Status("192.0.2.20")
				t.Logf("day %d: %d from its source, %d from the shared one; then stage %d", day+1, n, w.begunFrom("pool-1", before), s.Stage)
				if x.least == nil {
					if n > 60 {
						t.Errorf("%d took the source without patience", n)
					}
					return
				}
				if n < least || w.begunFrom("acme-1", before)+w.begunFrom("pool-1", before)+w.held() != offered {
					t.Errorf("day %d: %d from its source, want %d; %d in all with %d held of %d", day+1, n, least, len(w.jobs)-before, w.held(), offered)
				}
			}
		})
	}
}

// TestLargeMessagesLeaveAsTokensCome: under a cap of 10 an hour, in a pool that holds.
func TestLargeMessagesLeaveAsTokensCome(t *testing.T) {
	w := newWarmStage(t, holding)
	w.mailOf(3, 40)
	w.pass(3 * time.Hour)
	if n := w.begunFrom("acme-1", 0); n < 12 || n > 15 { // a day has 15
		t.Errorf("%d of 40 have left", n)
	}
	w.pass(70 * time.Hour)
	if n := w.begunFrom("acme-1", 0); n != 40 || w.held() != 0 {
		t.Errorf("%d of 40 have left in three days, %d are held", n, w.held())
	}
}

// TestAFirstTierOvertakesBulkThatIsHeld: within a minute of its tokens, though 300 of bulk wait for days.
func TestAFirstTierOvertakesBulkThatIsHeld(t *testing.T) {
	w := newWarmStage(t, strings.NewReplacer("hourly = 10", "hourly = 120", "daily = 15", "daily = 2400").Replace(holding))
	for range 300 {
		w.mailOf(4, 1)
	}
	w.pass(5 * time.Minute)
	w.next = 1000
	id := w.mailOf(1, 1)
	came := w.clock
	for range 120 {
		w.pass(time.Second)
		if last := w.jobs[len(w.jobs)-1]; last.Message.ID == id {
			break
		}
	}
	if last := w.jobs[len(w.jobs)-1]; last.Message.ID != id || w.clock.Sub(came) > time.Minute {
		t.Errorf("%v later the last to leave is %s, and %d wait", w.clock.Sub(came), last.Message.ID, w.held())
	}
}
