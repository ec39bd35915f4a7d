package queue

import (
	"context"
	"fmt"
	"math/rand"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/queue/vfs/vfstest"
)

// TestSummaryBothWays holds what is counted in the schedule against what is counted message by
// message, which a filter for the sender of all of them enforces.
func TestSummaryBothWays(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		rng := rand.New(rand.NewSource(1))
		for i := range 600 { // more than a batch
			accept(t, q, message(1+rng.Intn(40), "example.net"), "x")
			m := next(t, q).Message // that one, or one that has become due
			for r := range m.Recipients {
				key := site(fmt.Sprint("site", rng.Intn(7)))
				switch rng.Intn(4) {
				case 0:
					q.Park(m.ID, []int{r}, parking.Line{Key: key}, time.Time{})
				case 1:
					q.Defer(m.ID, []int{r}, q.now().Add(3*time.Hour), Attempt{Reply: greylisted}, key)
				case 2:
					q.Settle(m.ID, []int{r}, Delivered)
				}
			}
			if i%6 == 0 {
				time.Sleep(2 * time.Minute)
			}
		}
		synctest.Wait() // for what the clock still makes due
		for _, f := range []Filter{
			{}, {Key: site("site3")}, {Key: site("nobody")}, {States: []State{StateParked, StateLeased}},
			{OlderThan: time.Hour}, {NewerThan: time.Hour}, {OlderThan: 30 * time.Minute, NewerThan: 2 * time.Hour, Key: site("site1")},
		} {
			slow := f
			slow.Sender = "@example.com"
			got, want := q.Summary(f), q.Summary(slow)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v:\n%+v\nwant\n%+v", f, got, want)
			}
			if len(got) == 0 && f.Key != site("nobody") {
				t.Errorf("%+v selects nothing", f)
			}
		}
	})
}

// BenchmarkSummary counts a million queued recipients of 1,000 sites.
func BenchmarkSummary(b *testing.B) {
	const messages, each = 100_000, 10
	q := benchQueue(b, vfstest.Memory())
	for range messages {
		m := message(each, "example.net")
		if err := commit(q, m, "x"); err != nil {
			b.Fatal(err)
		}
		l, err := q.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		for r := range each {
			q.Park(l.Message.ID, []int{r}, siteLine(fmt.Sprint("site", (int(l.Message.ID)+r)%1000)), time.Time{})
		}
	}
	b.ResetTimer()
	for b.Loop() {
		total := 0
		for _, row := range q.Summary(Filter{}) {
			total += row.Total
		}
		if total != messages*each {
			b.Fatalf("%d counted", total)
		}
	}
}
