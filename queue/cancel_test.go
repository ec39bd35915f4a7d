package queue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/vfs/vfstest"
)

// A cancel and the release of a message meet at the same instant, 10,000 times: a recipient is handed out or
// cancelled, never both and never neither; and what was handed out and is asked for is followed to its end.
func TestCancelAgainstRelease(t *testing.T) {
	const rounds, each = 500, 20
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.SegmentSize = 1 << 20
		q := open(t, cfg)
		defer shut(t, q)
		counts := map[string]int{}
		for range rounds {
			meet(t, q, each, counts)
		}
		if n := counts["cancelled"] + counts["delivered"]; n != rounds*each || counts["cancelled"] == 0 || counts["delivered"] == 0 {
			t.Errorf("of %d recipients: %v", rounds*each, counts)
		}
		if s := balanced(t, q); s.Queued != 0 || len(q.rcpts.followed) != 0 {
			t.Errorf("%d are left, %d are followed", s.Queued, len(q.rcpts.followed))
		}
	})
}

// meet lets some messages be released and cancelled at once, and counts what became of them.
func meet(t *testing.T, q *Queue, n int, counts map[string]int) {
	t.Helper()
	at := time.Now().Add(10 * time.Second).Truncate(time.Second)
	var ids []envelope.ID
	for range n {
		m := message(1, "example.net")
		m.Release = at
		ids = append(ids, accept(t, q, m, "x").ID)
	}
	ctx, stop := context.WithCancel(t.Context())
	sent := map[envelope.ID]bool{}
	var taking, asking sync.WaitGroup
	taking.Go(func() {
		for {
			l, err := q.Next(ctx)
			if err != nil {
				return
			}
			sent[l.Message.ID] = true
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
	})
	done := make([]*Cancellation, n)
	for i, id := range ids {
		asking.Go(func() {
			time.Sleep(time.Until(at))
			done[i], _ = q.Cancel(Selector{IDs: []envelope.ID{id}})
		})
	}
	asking.Wait()
	time.Sleep(2 * time.Second)
	stop()
	taking.Wait()
	for i, id := range ids {
		c := done[i]
		switch {
		case c.Cancelled == 1 && !sent[id]:
			counts["cancelled"]++
		case c.Cancelled == 0 && sent[id]:
			counts["delivered"]++
		default:
			t.Fatalf("%d recipients were cancelled, and handed out: %v", c.Cancelled, sent[id])
		}
		for _, f := range c.Leased {
			if o, ended := c.Outcome(f); !ended || o != Delivered {
				t.Fatalf("followed to %v %v", o, ended)
			}
		}
	}
}

// What is leased when it is cancelled is attempted no further, and its end is known to who cancelled it.
func TestCancelOfWhatIsLeased(t *testing.T) {
	inTime(t, func(t *testing.T) {
		var told []Item
		cfg := small(t, vfstest.Memory())
		cfg.OnRemoved = func(items []Item, recorded func()) { told = append(told, items...); recorded() }
		q := open(t, cfg)
		m := accept(t, q, message(4, "example.net"), "x")
		l := next(t, q)
		q.Return(m.ID, []int{3})
		first, err := q.Cancel(Selector{IDs: []envelope.ID{m.ID}})
		if err != nil || first.Cancelled != 1 || len(first.Leased) != 3 {
			t.Fatalf("%+v %v", first, err)
		}
		again, err := q.Cancel(Selector{IDs: []envelope.ID{m.ID}})
		if err != nil || again.Cancelled != 0 || len(again.Leased) != 3 {
			t.Fatalf("asked again: %+v %v", again, err)
		}
		if _, ended := first.Outcome(first.Leased[0]); ended {
			t.Fatal("it has not come back")
		}
		q.Settle(m.ID, []int{0}, Delivered)
		q.Defer(m.ID, []int{1}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("site"))
		for _, c := range []*Cancellation{first, again} {
			var ends []string
			for _, f := range c.Leased {
				o, ended := c.Outcome(f)
				ends = append(ends, fmt.Sprint(f.Recipient, o, ended))
			}
			if want := []string{"0 delivered true", "1 removed true", "2 unknown false"}; !slices.Equal(ends, want) {
				t.Errorf("%q, want %q", ends, want)
			}
		}
		_ = l
		shut(t, q) // with recipient 2 on a connection
		q = open(t, cfg)
		defer shut(t, q)
		if s := balanced(t, q); s.Queued != 0 {
			t.Errorf("%d are left after a restart", s.Queued)
		}
		for _, it := range told {
			if len(it.Recipients) != 1 || it.Recipients[0].Asked != Cancel {
				t.Errorf("told of %+v", it)
			}
		}
		if len(told) != 3 {
			t.Errorf("told of %d removals", len(told))
		}
	})
}

// A cancel selects by tenant, campaign and tag.
func TestCancelByFilter(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.SegmentSize = 1 << 20
		q := open(t, cfg)
		for i := range 600 {
			m := later(2, "example.net", time.Hour, 0)
			m.Tenant, m.Campaign, m.Tags = []string{"acme", "other", ""}[i%3], []string{"spring", "summer"}[i%2], []string{"a", []string{"b", "c"}[i%2]}
			accept(t, q, m, "x")
		}
		for _, x := range []struct {
			f    Filter
			want int
		}{
			{Filter{Tenant: "nobody", Campaign: "spring"}, 0},
			{Filter{Tenant: "acme", Campaign: "spring"}, 200},
			{Filter{Tenant: "acme", Campaign: "spring"}, 0},
			{Filter{Tenant: "other", Tag: "c"}, 200},
			{Filter{Tenant: "acme", Tag: "a"}, 200},
		} {
			pauses := 0
			if done, err := q.Cancel(Selector{Filter: x.f, Pause: func() { pauses++ }}); err != nil || done.Cancelled != x.want {
				t.Errorf("%+v: %d were cancelled, want %d (%v)", x.f, done.Cancelled, x.want, err)
			}
			if pauses == 0 {
				t.Errorf("%+v: it does not pause", x.f)
			}
		}
		for range 2 {
			if s := balanced(t, q); s.Queued != 600 {
				t.Fatalf("%d are left", s.Queued)
			}
			shut(t, q)
			q = open(t, cfg)
		}
		shut(t, q)
	})
}

// The new time of a message that was moved is in force at once, and after restarts and compaction; the old
// one is gone, and its age counts from the new one.
func TestMovedMailKeepsItsNewTime(t *testing.T) {
	for _, held := range []bool{false, true} {
		for _, after := range []time.Duration{30 * time.Minute, 100 * time.Hour} {
			t.Run(fmt.Sprint(after, held), func(t *testing.T) { moveAndWait(t, after, held) })
		}
	}
}

func moveAndWait(t *testing.T, after time.Duration, held bool) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		m := accept(t, q, later(20, "example.net", time.Hour, 10*time.Minute), "x")
		want := *m
		want.Release = time.Now().Add(after).Truncate(time.Second)
		if held {
			q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false)
		}
		if err := q.Move(m.ID, want.Release); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			if i > 0 {
				shut(t, q)
				q = open(t, cfg)
			}
			it, err := q.Get(m.ID)
			if err != nil || !it.Release.Equal(want.Release) || it.Recipients[7].Next.IsZero() != held || !held && (!it.Recipients[7].Scheduled || !it.Recipients[7].Next.Equal(want.ReleaseOf(7))) {
				t.Fatalf("start %d: released %v, want %v: %+v %v", i, it.Release, want.Release, it.Recipients[7], err)
			}
			if n, _ := q.Scheduled(Selector{All: true}); n != 20 && !held {
				t.Fatalf("start %d: %d recipients keep their time", i, n)
			}
			if i == 0 {
				churn(t, q)
			}
		}
		defer func() { shut(t, q) }()
		if held {
			q.Change(Selector{IDs: []envelope.ID{m.ID}}, Unhold, false)
		}
		for left := 20; left > 0; {
			l := next(t, q)
			for _, p := range l.Recipients {
				if late := time.Since(want.ReleaseOf(p.Index)); late < 0 || late > 2*time.Second || !p.Since.Equal(want.Start()) {
					t.Fatalf("recipient %d came out %v after its time, its age counts from %v", p.Index, late, p.Since)
				}
			}
			left -= len(l.Recipients)
			if err := q.Move(m.ID, time.Now().Add(time.Hour)); !errors.Is(err, ErrReleased) {
				t.Fatalf("moved while it is being released: %v", err)
			}
			q.Settle(m.ID, indexes(l), Delivered)
		}
		if err := q.Move(m.ID, time.Now()); !errors.Is(err, ErrUnknown) || len(q.few.moves) != 0 {
			t.Errorf("%v, %d moves are remembered", err, len(q.few.moves))
		}
	})
}

// BenchmarkCancelCampaign cancels one of two campaigns of scheduled messages, while others are submitted.
func BenchmarkCancelCampaign(b *testing.B) {
	for range b.N {
		q := open(b, Config{Dir: b.TempDir(), MinFree: 1, OnRemoved: func(_ []Item, recorded func()) { recorded() }})
		n := *campaign
		fillCampaigns(b, q, n)
		ctx, stop := context.WithCancel(b.Context())
		var under sync.WaitGroup
		var worst time.Duration
		sent := 0
		under.Go(func() {
			for ctx.Err() == nil {
				began := time.Now()
				m := message(1, "example.org")
				m.Release = time.Now().Add(time.Hour)
				if commit(q, m, string(body2K)) == nil {
					sent++
				}
				worst = max(worst, time.Since(began))
			}
		})
		time.Sleep(time.Second)
		before := sent
		began := time.Now()
		done, err := q.Cancel(Selector{Filter: Filter{Tenant: "acme", Campaign: "spring"}})
		took := time.Since(began)
		during := sent - before
		stop()
		under.Wait()
		if err != nil || done.Cancelled != n {
			b.Fatal(done, err)
		}
		b.ReportMetric(took.Seconds(), "s/cancel")
		b.ReportMetric(float64(before), "submitted/s-before")
		b.ReportMetric(float64(during)/took.Seconds(), "submitted/s-during")
		b.ReportMetric(float64(worst.Milliseconds()), "ms-longest-commit")
		shut(b, q)
	}
}

var campaign = flag.Int("campaign", 20_000, "messages in the campaign of BenchmarkCancelCampaign")

// fillCampaigns queues n messages of each of two campaigns.
func fillCampaigns(b *testing.B, q *Queue, n int) {
	var all sync.WaitGroup
	for w := range 64 {
		all.Go(func() {
			for i := w; i < 2*n; i += 64 {
				m := message(1, "example.net")
				m.Campaign, m.Release, m.Tags = []string{"spring", "summer"}[i%2], time.Now().Add(time.Hour), []string{"news"}
				if err := commit(q, m, string(body2K)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// TestDeliveredIsNeitherCancelledNorExported: a recipient whose last reply is a positive one waits only for the report
// to its sender.
func TestDeliveredIsNeitherCancelledNorExported(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		m := accept(t, q, message(2, "example.net"), "x")
		next(t, q)
		later := time.Now().Add(time.Hour)
		q.Defer(m.ID, []int{0}, later, Attempt{Reply: reply.Reply{Code: 250, Text: "ok"}, Via: "mx.example"}, site("mx.example"))
		q.Defer(m.ID, []int{1}, later, Attempt{Reply: greylisted}, site("mx.example"))
		for range 2 { // the second time the reply is read from the disk
			if all, withheld := exportAll(t, q); len(all) != 1 || !slices.Equal(all[0].Recipients, []int{1}) || withheld != (Withheld{Ending: 1}) {
				t.Errorf("exported: %+v, %+v", all, withheld)
			}
			shut(t, q)
			q = open(t, small(t, fs))
		}
		defer shut(t, q)
		done, err := q.Cancel(Selector{IDs: []envelope.ID{m.ID}})
		if err != nil || done.Cancelled != 1 || len(done.Gone) != 1 || done.Gone[0].Recipient != 1 {
			t.Errorf("%+v, %v", done, err)
		}
		if it, err := q.Get(m.ID); err != nil || len(it.Recipients) != 1 || it.Recipients[0].Index != 0 {
			t.Errorf("%+v, %v", it, err)
		}
	})
}
