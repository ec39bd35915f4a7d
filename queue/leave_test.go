package queue

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/vfs/vfstest"
)

func none(envelope.ID) bool { return false } // none is skipped
func nobody(envelope.ID)    {}               // who is asked gives nothing back

// TestLeave withholds a message whose recipients are in every state: nobody attempts, changes, cancels or expires it
// meanwhile, and it comes back as it was, also after compaction and a restart; or it goes.
func TestLeave(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		var asked []Action
		cfg.OnRemoved = func(items []Item, recorded func()) {
			for i := range items {
				for _, r := range items[i].Recipients {
					asked = append(asked, r.Asked)
				}
			}
			recorded()
		}
		q := open(t, cfg)
		m := message(6, "example.net")
		m.Expires = time.Now().Add(3 * time.Hour)
		accept(t, q, m, "x")
		next(t, q)
		q.Defer(m.ID, []int{0, 1}, time.Now().Add(time.Hour), Attempt{Reply: greylisted, Via: "source1"}, site("mx.example"))
		q.Return(m.ID, []int{2})
		q.Park(m.ID, []int{3}, siteLine("mx.example"), time.Time{})
		q.Return(m.ID, []int{4})
		for _, r := range []string{"r1@example.net", "r4@example.net"} {
			if _, err := q.Change(Selector{Filter: Filter{Recipient: r}}, Hold, false); err != nil {
				t.Fatal(err)
			}
		}
		before, _ := exportAll(t, q)
		leave := func() *Exported {
			t.Helper()
			var all []*Exported
			w, err := q.Leave(Selector{All: true}, none, nobody, func(x *Exported) error { all = append(all, x); return nil })
			if err != nil || len(all) != 1 || w != (Withheld{InDelivery: 1}) && q.Stats().Leased == 1 {
				t.Fatalf("%+v, %+v, %v", all, w, err)
			}
			return all[0]
		}
		x := leave()
		if !slices.Equal(x.Recipients, []int{0, 1, 2, 3, 4}) || !reflect.DeepEqual(x.Standings, before[0].Standings) {
			t.Errorf("%+v\nwant %+v", x, before[0])
		}
		if _, err := q.Leave(Selector{All: true}, none, nobody, func(*Exported) error { t.Error("it leaves twice"); return nil }); err != nil {
			t.Error(err)
		}
		if _, err := q.Leave(Selector{All: true}, func(id envelope.ID) bool { return id == m.ID }, nil, nil); err != nil {
			t.Error(err)
		}
		if again, err := q.Withheld(m.ID, []int{0, 2, 5}); err != nil || !slices.Equal(again.Recipients, []int{0, 2}) || !reflect.DeepEqual(again.Standings[1], x.Standings[2]) {
			t.Errorf("%+v", again)
		}
		for id, rcpt := range map[envelope.ID]int{m.ID: 5, m.ID + 1: 0} {
			if again, err := q.Withheld(id, []int{rcpt}); again != nil || err != nil {
				t.Errorf("%+v, %v", again, err)
			}
		}
		for _, a := range []Action{Hold, Unhold, RetryNow, RetryHeld, Bounce, Remove} {
			if n, err := q.Change(Selector{Filter: Filter{Recipient: "r0@example.net"}}, a, false); n != 0 || err != nil {
				t.Errorf("%v changes %d, %v", a, n, err)
			}
		}
		if c, err := q.Cancel(Selector{Filter: Filter{Recipient: "r0@example.net"}}); err != nil || c.Cancelled != 0 || len(c.Leased) != 0 || c.Withheld != 1 {
			t.Errorf("cancelled: %+v, %v", c, err)
		}
		if it, err := q.Get(m.ID); err != nil || it.Recipients[0].State != StateEnding || it.Recipients[0].Asked != Transfer {
			t.Errorf("%+v, %v", it, err)
		}
		moved := q.Stats().Moved
		for range 200 {
			accept(t, q, message(1, "churn.example"), strings.Repeat("x", 500))
			l := next(t, q)
			if l.Message.ID == m.ID {
				t.Fatal("it is handed out")
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if time.Sleep(time.Minute); q.Stats().Moved == moved {
			t.Fatal("compaction moved nothing")
		}
		q.Return(m.ID, []int{5})
		q.Stay(m.ID, x.Recipients)
		restarts := func() {
			t.Helper()
			shut(t, q)
			q = open(t, cfg)
		}
		check := func(when string) {
			t.Helper()
			after, _ := exportAll(t, q)
			if len(after) != 1 || !reflect.DeepEqual(after[0].Standings[:5], before[0].Standings) {
				t.Fatalf("%s: %+v\nwant %+v", when, after[0].Standings, before[0].Standings)
			}
			if s := balanced(t, q); s.Held != 2 || s.Ending != 0 {
				t.Errorf("%s: %+v", when, s)
			}
		}
		check("it stays")
		restarts()
		check("after a restart")
		leave()
		restarts()
		check("the process ended while it was leaving")
		if n := q.Withhold(m.ID, []int{0, 1, 9}); n != 2 || q.Stats().Ending != 2 {
			t.Errorf("%d are withheld", n)
		}
		q.Stay(m.ID, []int{0, 1})
		check("withheld after a restart")

		leave()
		if time.Sleep(4 * time.Hour); q.Stats().Ending != 6 || q.Stats().Queued != 6 {
			t.Errorf("it has expired: %+v", q.Stats())
		}
		var c Counted
		c.Add(m.ID, []int{0, 1, 2, 3})
		if n, err := q.Change(Selector{Counted: &c}, Transfer, false); n != 4 || err != nil || !slices.Equal(asked, []Action{Transfer, Transfer, Transfer, Transfer}) {
			t.Errorf("%d, %v, %v", n, err, asked)
		}
		q.Stay(m.ID, []int{0, 4, 5})
		restarts()
		if s := balanced(t, q); s.Queued != 2 {
			t.Errorf("%+v", s)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestWhatCannotLeaveStays: a message whose envelope is damaged is not withheld.
func TestWhatCannotLeaveStays(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		accept(t, q, message(1, "example.net"), "x")
		next(t, q)
		w, err := q.Leave(Selector{All: true}, none, nobody, func(*Exported) error { t.Error("it leaves"); return nil })
		if err != nil || w != (Withheld{InDelivery: 1}) {
			t.Errorf("%+v, %v", w, err)
		}
		if n := q.Withhold(envelope.ID(7), []int{0, -1, 1 << 20}); n != 0 {
			t.Errorf("%d are withheld", n)
		}
	})
}

// TestWhatHasExpiredIsWithheld: mail that has expired before it is withheld again after a restart is reported to nobody.
func TestWhatHasExpiredIsWithheld(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		m := message(2, "example.net")
		m.Expires = time.Now().Add(time.Hour)
		accept(t, q, m, "x")
		if _, err := q.Leave(Selector{All: true}, none, nobody, func(*Exported) error { return nil }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if s := q.Stats(); s.Queued != 2 {
			t.Fatalf("%+v", s)
		}
		if err := q.Close(); err != nil {
			t.Fatal(err)
		}
		q = open(t, cfg)
		time.Sleep(time.Minute) // the queue has looked for what has expired
		if n := q.Withhold(m.ID, []int{0, 1}); n != 2 {
			t.Errorf("%d recipients are withheld", n)
		}
		handedOut := func() *Lease {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l, _ := q.Next(ctx)
			return l
		}
		if l := handedOut(); l != nil {
			t.Fatalf("%+v is handed out", l)
		}
		q.Stay(m.ID, []int{0, 1})
		time.Sleep(time.Hour)
		if l := handedOut(); l == nil || l.Why != Expired || len(l.Recipients) != 2 {
			t.Errorf("%+v is handed out when it stays", l)
		}
	})
}

// TestAllLeaves: from the queue of a process that has ended, what an operator has bounced and what has expired leaves, too.
func TestAllLeaves(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		m := message(3, "example.net")
		m.Expires = time.Now().Add(time.Hour)
		accept(t, q, m, "x")
		next(t, q)
		q.Defer(m.ID, []int{0, 1, 2}, time.Now().Add(30*time.Minute), Attempt{Reply: greylisted, Via: "source1"}, site("mx.example"))
		if n, err := q.Change(Selector{Filter: Filter{Recipient: "r1@example.net"}}, Bounce, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		shut(t, q)
		time.Sleep(2 * time.Hour)
		given := reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "given up")
		cfg.Leaving, cfg.MaxAge = &given, func() time.Duration { return time.Minute }
		for range 2 { // also after another crash
			q = open(t, cfg)
			time.Sleep(time.Hour)
			var all []*Exported
			w, err := q.Leave(Selector{All: true}, none, nobody, func(x *Exported) error { all = append(all, x); return nil })
			if err != nil || w != (Withheld{}) || len(all) != 1 || !slices.Equal(all[0].Recipients, []int{0, 1, 2}) {
				t.Fatalf("%+v, %+v, %v", all, w, err)
			}
			for i, want := range []reply.Reply{greylisted, given, greylisted} {
				if s := all[0].Standings[i]; s.Last.Reply.Text != want.Text || s.Attempts != 1 || !s.Due.IsZero() {
					t.Errorf("recipient %d: %+v", i, s)
				}
			}
			if i := q.Stats().Ending; i != 3 {
				t.Errorf("%d are withheld", i)
			}
			if w, err := q.Withheld(m.ID, []int{1}); err != nil || w.Standings[0].Last.Reply.Text != given.Text {
				t.Errorf("%+v, %v", w, err)
			}
			shut(t, q)
		}
	})
}

// TestLeavesFromDelivery: what is handed out and given back leaves with the next pass, as it was, unless an operator or
// an attempt has decided otherwise. It is handed out again when no pass comes.
func TestLeavesFromDelivery(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := message(4, "example.net")
		accept(t, q, m, "x")
		pass := func(recall func(envelope.ID)) (left []int, w Withheld) {
			t.Helper()
			w, err := q.Leave(Selector{All: true}, none, recall, func(x *Exported) error {
				for i, s := range x.Standings {
					if r := x.Recipients[i]; s.Held || s.Due.IsZero() != (r != 2) || s.Attempts != r/2 {
						t.Errorf("recipient %d has become %+v", x.Recipients[i], s)
					}
				}
				left = x.Recipients
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return left, w
		}
		next(t, q)
		q.File(m.ID, []int{0, 1, 2, 3}, siteLine("mx.example"))
		if n, err := q.Change(Selector{Filter: Filter{Recipient: "r3@example.net"}}, Hold, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		var asked []envelope.ID
		left, w := pass(func(id envelope.ID) {
			asked = append(asked, id)
			q.Return(id, []int{0, 1, 3})
		})
		if left != nil || w != (Withheld{InDelivery: 4}) || !slices.Equal(asked, []envelope.ID{m.ID}) {
			t.Errorf("%v leave, %+v, asked %v", left, w, asked)
		}
		if !q.File(m.ID, []int{2}, siteLine("mx.example")) {
			t.Error("recipient 2 comes to delivery, and is not called back")
		}
		if it, err := q.Get(m.ID); err != nil || it.Recipients[0].State != StateParked || it.Recipients[0].Line.Site() != "mx.example" ||
			it.Recipients[2].State != StateLeased || it.Recipients[2].Asked != 0 || it.Recipients[3].State != StateHeld {
			t.Errorf("%+v, %v", it, err)
		}
		if n, err := q.Change(Selector{Filter: Filter{Recipient: "r3@example.net"}}, Remove, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		q.Defer(m.ID, []int{2}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("mx.example"))
		if s := balanced(t, q); s.Parked != 2 || s.Deferred != 1 || s.Leased != 0 {
			t.Errorf("%+v", s)
		}
		if left, _ = pass(nobody); !slices.Equal(left, []int{0, 1, 2}) {
			t.Errorf("%v leave", left)
		}
		q.Stay(m.ID, left)

		// What is asked for after the call back counts: it was handed out all the same.
		next(t, q)
		pass(nobody)
		if n, err := q.Change(Selector{Filter: Filter{Recipient: "r0@example.net"}}, RetryNow, false); n != 1 || err != nil {
			t.Errorf("a retry of mail that is called back changes %d, %v", n, err)
		}
		q.Return(m.ID, []int{0})
		if l := next(t, q); len(l.Recipients) != 1 || l.Recipients[0].Index != 0 {
			t.Errorf("%+v is handed out after a retry", l)
		}
		pass(nobody)
		if n, err := q.Reroute(Selector{Filter: Filter{Recipient: "r0@example.net"}}, envelope.Detour{Route: "relay.example"}, false); n != 1 || err != nil {
			t.Errorf("a reroute changes %d, %v", n, err)
		}
		asks := time.Now()
		q.Return(m.ID, []int{0})
		if l := next(t, q); len(l.Recipients) != 1 || l.Recipients[0].Index != 0 || time.Since(asks) > time.Second {
			t.Errorf("%+v is handed out %v after a reroute", l, time.Since(asks))
		}
		pass(nobody)
		if err := q.Hold(m.ID, []int{0}, Attempt{Reply: greylisted}); err != nil || q.Stats().Held != 1 {
			t.Errorf("%+v, %v", q.Stats(), err)
		}
		q.Return(m.ID, []int{1})
		if n, err := q.Change(Selector{Filter: Filter{Recipient: "r0@example.net"}}, Remove, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if left, _ = pass(nobody); !slices.Equal(left, []int{1}) {
			t.Errorf("%v leave", left)
		}
		q.Stay(m.ID, left)

		next(t, q)
		pass(func(id envelope.ID) { q.Return(id, []int{1}) })
		ctx, cancel := context.WithTimeout(t.Context(), leaveWithin-time.Second)
		defer cancel()
		if l, _ := q.Next(ctx); l != nil {
			t.Errorf("%+v is handed out before it can leave", l)
		}
		began := time.Now()
		if l := next(t, q); len(l.Recipients) != 1 || time.Since(began) > time.Minute {
			t.Errorf("%+v is handed out after %s", l, time.Since(began))
		}
	})
}

// TestWhatWasCalledBackIsDueByAWrongClock: what came back to leave, and does not, is handed out again within a minute,
// also while the clock is in doubt since it went ahead, in which nothing expires, and after it was set back.
func TestWhatWasCalledBackIsDueByAWrongClock(t *testing.T) {
	for _, by := range []time.Duration{240 * time.Hour, -240 * time.Hour} {
		for _, before := range []bool{true, false} {
			inTime(t, func(t *testing.T) {
				clock, cfg := new(wrongClock), small(t, vfstest.Memory())
				cfg.Now = clock.Now
				q := open(t, cfg)
				defer shut(t, q)
				accept(t, q, message(1, "example.net"), "x")
				next(t, q)
				leave := func() {
					if _, err := q.Leave(Selector{All: true}, none, func(id envelope.ID) { q.Return(id, []int{0}) },
						func(*Exported) error { return nil }); err != nil {
						t.Fatal(err)
					}
				}
				if !before {
					leave()
				}
				time.Sleep(2 * time.Second)
				clock.set(by)
				time.Sleep(2 * time.Second)
				if before {
					leave()
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if l, err := q.Next(ctx); err != nil || len(l.Recipients) != 1 {
					t.Errorf("set by %v: %+v, %v; %+v", by, l, err, q.Stats())
				}
			})
		}
	}
}
