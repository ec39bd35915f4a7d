package queue

import (
	"context"
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/vfs/vfstest"
)

// TestCountsEqualAScan does what happens to mail at random, over restarts, and holds all counters against a look
// at every recipient.
func TestCountsEqualAScan(t *testing.T) {
	for seed := range int64(4) {
		inTime(t, func(t *testing.T) {
			cfg := small(t, vfstest.Memory())
			q := open(t, cfg)
			rng := rand.New(rand.NewSource(seed))
			for range 12 {
				for range 60 {
					happen(t, q, rng)
				}
				checkCounts(t, q)
				if rng.Intn(3) == 0 {
					before := deferredLines(q)
					shut(t, q)
					time.Sleep(time.Duration(rng.Intn(3)) * 20 * time.Minute)
					q = open(t, cfg)
					checkCounts(t, q)
					after := deferredLines(q)
					for r, line := range before {
						if now, left := after[r]; left && now != line || len(after)*2 < len(before) {
							t.Fatalf("%v waits for %q, want %q as before", r, after[r].Text(), line.Text())
						}
					}
				}
			}
			if q.Stats().Queued < 50 {
				t.Errorf("only %d recipients were left to compare", q.Stats().Queued)
			}
			shut(t, q)
		})
	}
}

// deferredLines are the lines of recipients that were deferred, by the walk that a summary with a filter takes.
func deferredLines(q *Queue) map[recipientKey]parking.Line {
	lines := map[recipientKey]parking.Line{}
	w := q.Walk(Filter{}, false, 0)
	for c, _ := w.Next(); c != nil; c, _ = w.Next() {
		for _, r := range c.Rcpts {
			if r.Line.Reason != parking.Unclassed {
				lines[recipientKey{r.ID, r.Rcpt}] = r.Line
			}
		}
	}
	return lines
}

// happen lets something happen to mail.
func happen(t *testing.T, q *Queue, rng *rand.Rand) {
	m := message(1+rng.Intn(5), "")
	for i := range m.Recipients {
		m.Recipients[i].Address = envelope.Address(fmt.Sprintf("r%d@D%d.Example", i, rng.Intn(9)))
	}
	m.Tenant, m.Campaign = []string{"", "acme", "beta"}[rng.Intn(3)], []string{"", "spring", "autumn"}[rng.Intn(3)]
	m.Sender = []envelope.Address{"", "ann@a.example", "ben@b.example"}[rng.Intn(3)]
	if rng.Intn(6) == 0 {
		m.Release = q.now().Add(time.Duration(rng.Intn(7200)) * time.Second)
	}
	accept(t, q, m, strings.Repeat("x", 1+rng.Intn(300)))
	if rng.Intn(4) == 0 {
		time.Sleep(time.Duration(rng.Intn(600)) * time.Second)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	l, err := q.Next(ctx)
	if err != nil {
		return
	}
	for _, p := range l.Recipients {
		id, r, key := l.Message.ID, []int{p.Index}, site(fmt.Sprint("site", rng.Intn(5)))
		switch rng.Intn(9) {
		case 0, 1:
			q.Settle(id, r, Delivered)
		case 2:
			q.Park(id, r, parking.Line{Key: key, Source: fmt.Sprint("source", rng.Intn(3))}, time.Time{})
		case 3:
			q.File(id, r, parking.Line{Key: key, Source: fmt.Sprint("source", rng.Intn(3))})
		case 4:
			q.Change(Selector{IDs: []envelope.ID{id}}, []Action{Hold, Bounce, Remove, Unhold, RetryNow}[rng.Intn(5)], false)
			q.Return(id, r)
		case 5:
			q.Change(Selector{Filter: Filter{Domain: "d3.example", States: []State{StateDeferred}}}, []Action{Hold, Remove, RetryNow}[rng.Intn(3)], false)
			q.Defer(id, r, q.now().Add(time.Hour), Attempt{Reply: greylisted, Reason: parking.Greylisted}, key)
		default:
			why := parking.Reason(rng.Intn(len(parking.Reasons())))
			q.Defer(id, r, q.now().Add(time.Duration(rng.Intn(20000))*time.Second), Attempt{Reply: greylisted, Reason: why}, key)
		}
	}
}

// checkCounts compares each counter with a look at every recipient.
func checkCounts(t *testing.T, q *Queue) {
	t.Helper()
	if wrong := miscounted(q); wrong != "" {
		t.Fatal(wrong)
	}
}

// miscounted describes the first counter that is not what a look at every recipient finds, "" when all are.
func miscounted(q *Queue) string {
	tally := func(by Naming) Counts {
		x, _ := q.Tally(Filter{}, by, "", 0)
		return Counts{Rows: x.Rows}
	}
	byEnvelope := func(name func(m *envelope.Message, i int) string) Counts { return tally(Naming{Envelope: name}) }
	source := func(l parking.Line) string { return l.Source }
	for what, c := range map[string]struct{ got, want Counts }{
		"site":     {q.CountLines(func(l parking.Line) string { return l.Key.String() }), tally(Naming{Line: func(l parking.Line) string { return l.Key.String() }})},
		"reason":   {q.CountLines(parking.Line.Text), tally(Naming{Line: parking.Line.Text})},
		"source":   {q.CountLines(source), tally(Naming{Line: source})},
		"domain":   {q.CountDomains(), byEnvelope(func(m *envelope.Message, i int) string { return m.Recipients[i].Address.Domain() })},
		"tenant":   {q.CountTenants(), byEnvelope(func(m *envelope.Message, _ int) string { return m.Tenant })},
		"campaign": {q.CountCampaigns(""), byEnvelope(func(m *envelope.Message, _ int) string { return m.Campaign })},
		"sender":   {q.CountSenders(""), byEnvelope(func(m *envelope.Message, _ int) string { return m.Sender.Domain() })},
	} {
		if !slices.EqualFunc(c.got.Rows, c.want.Rows, func(a, b Row) bool { return reflect.DeepEqual(a, b) }) || c.got.Unnamed.Total != 0 {
			return fmt.Sprintf("by %s the counters have\n%+v\nand the queue has\n%+v", what, c.got, c.want)
		}
	}
	var states [schedule.States]Count
	for _, row := range tally(Naming{Line: func(parking.Line) string { return "" }}).Rows {
		for s, n := range row.States {
			states[s].Total, states[s].States[s] = n, n
		}
	}
	byState := func(f Filter) []Row {
		x, _ := q.Tally(f, Naming{State: func(s RecipientState) string { return fmt.Sprint(s.State, s.State == StateLeased && s.Ending) }}, "", 0)
		return x.Rows
	}
	if got, want := byState(Filter{}), byState(Filter{Leased: func(envelope.ID, int, bool) bool { return true }}); !reflect.DeepEqual(got, want) {
		return fmt.Sprintf("by state the schedule has\n%+v\nand one by one there are\n%+v", got, want)
	}
	for s, got := range q.CountStates() {
		aged := 0
		for _, n := range got.Ages {
			aged += n
		}
		if got.Total != states[s].Total || aged != got.Total {
			return fmt.Sprintf("%d are %s, %d of them of some age, want %d", got.Total, State(s), aged, states[s].Total)
		}
	}
	return ""
}
