package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/vfs/vfstest"
)

// inState brings a new message with one recipient into a state.
func inState(t *testing.T, q *Queue, s State) envelope.ID {
	t.Helper()
	m := accept(t, q, message(1, "example.net"), "x")
	if s == StateDue {
		return m.ID
	}
	for {
		l := next(t, q)
		if l.Message.ID != m.ID {
			q.Return(l.Message.ID, indexes(l))
			continue
		}
		break
	}
	switch s {
	case StateDeferred:
		q.Defer(m.ID, []int{0}, time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("site"))
	case StateParked:
		q.Park(m.ID, []int{0}, siteLine("site"), time.Time{})
	case StateHeld:
		q.Return(m.ID, []int{0})
		q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false)
	}
	return m.ID
}

func stateOf(t *testing.T, q *Queue, id envelope.ID) State {
	t.Helper()
	it, err := q.Get(id)
	if errors.Is(err, ErrUnknown) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return it.Recipients[0].State
}

var waitingStates = []State{StateDue, StateDeferred, StateParked, StateHeld}

// TestExpiryInEveryState: what is too old is handed out as expired, whatever it waits for.
func TestExpiryInEveryState(t *testing.T) {
	for _, s := range waitingStates {
		t.Run(s.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				cfg := small(t, vfstest.Memory())
				cfg.MaxAge = func() time.Duration { return 10 * time.Hour }
				q := open(t, cfg)
				defer shut(t, q)
				began := time.Now()
				id := inState(t, q, s)
				if s == StateDue { // else it would be handed out at once
					q.Change(Selector{IDs: []envelope.ID{id}}, Hold, false)
					time.Sleep(9 * time.Hour)
					q.Change(Selector{IDs: []envelope.ID{id}}, Unhold, false)
					time.Sleep(time.Hour + time.Minute)
				}
				l := next(t, q)
				if age := time.Since(began); l.Why != Expired || l.Message.ID != id || age < 10*time.Hour || age > 10*time.Hour+2*time.Minute {
					t.Fatalf("%v lease of %s at the age of %v", l.Why, l.Message.ID, age)
				}
				if s == StateDeferred && l.Recipients[0].Last != greylisted {
					t.Fatalf("last reply %+v", l.Recipients[0].Last)
				}
				q.Settle(id, []int{0}, Expired)
				if s := balanced(t, q); s.Expired != 1 || s.Queued != 0 {
					t.Fatalf("%+v", s)
				}
			})
		})
	}
}

// TestMaxAgeIsAskedAgain: a new limit acts on what waits already.
func TestMaxAgeIsAskedAgain(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		limit := 100 * time.Hour
		cfg.MaxAge = func() time.Duration { return limit }
		q := open(t, cfg)
		defer shut(t, q)
		id := inState(t, q, StateParked)
		time.Sleep(40 * time.Hour)
		other := inState(t, q, StateHeld)
		time.Sleep(10 * time.Hour)
		nothing(t, q)
		limit = 20 * time.Hour
		if l := next(t, q); l.Why != Expired || l.Message.ID != id {
			t.Fatalf("%+v", l)
		}
		if s := stateOf(t, q, other); s != StateHeld {
			t.Fatalf("what is not as old is %v", s)
		}
	})
}

// TestFailedReportWaits: what expired, or is to be bounced, and can't be reported is handed out again
// when its holder wants it, and no sooner: a full disk would be written full otherwise.
func TestFailedReportWaits(t *testing.T) {
	for _, why := range []Why{Expired, BounceAsked} {
		t.Run(why.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				cfg := small(t, vfstest.Memory())
				cfg.MaxAge = func() time.Duration { return 10 * time.Hour }
				q := open(t, cfg)
				id := inState(t, q, StateDeferred)
				if why == BounceAsked {
					q.Change(Selector{IDs: []envelope.ID{id}}, Bounce, false)
				}
				for range 10 {
					l := next(t, q)
					if l.Why != why || l.Message.ID != id {
						t.Fatalf("%v lease of %s", l.Why, l.Message.ID)
					}
					failed := time.Now()
					if err := q.Defer(id, []int{0}, failed.Add(5*time.Minute), Attempt{Reply: greylisted, Untried: true}, site("site")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(4 * time.Minute)
					nothing(t, q)
					if s := stateOf(t, q, id); s != StateDeferred {
						t.Fatalf("is %v", s)
					}
				}
				shut(t, q)
				q = open(t, cfg)
				defer shut(t, q)
				if l := next(t, q); l.Why != why {
					t.Fatalf("after a restart: %v", l.Why)
				}
				q.Settle(id, []int{0}, Bounced)
				balanced(t, q)
			})
		})
	}
}

// TestExpiredTakeTurns: what expired, or is to be bounced, is not behind what is due, nor before all
// of it: there can be a million that end at once, and each takes a report.
func TestExpiredTakeTurns(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.MaxAge = func() time.Duration { return time.Hour }
		q := open(t, cfg)
		defer shut(t, q)
		old := inState(t, q, StateHeld)
		time.Sleep(2 * time.Hour)
		for range 10 {
			accept(t, q, message(1, "example.net"), "x")
		}
		asked := accept(t, q, message(1, "example.net"), "x").ID
		q.Change(Selector{IDs: []envelope.ID{asked}}, Bounce, false)
		if l := next(t, q); l.Why != Expired || l.Message.ID != old {
			t.Fatalf("first %v", l.Why)
		}
		if l := next(t, q); l.Why != Due {
			t.Fatalf("second %v", l.Why)
		}
		if l := next(t, q); l.Why != BounceAsked || l.Message.ID != asked {
			t.Fatalf("third %v", l.Why)
		}
		for range 9 {
			if l := next(t, q); l.Why != Due {
				t.Fatalf("then %v", l.Why)
			}
		}
		nothing(t, q)
	})
}

// TestDelayWarning: the sender of what waits long is to be told once, whatever it waits for, and
// it stays where it is.
func TestDelayWarning(t *testing.T) {
	for _, s := range waitingStates[1:] {
		t.Run(s.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				fs := vfstest.Memory()
				cfg := small(t, fs)
				cfg.DelayAfter = func() time.Duration { return 4 * time.Hour }
				q := open(t, cfg)
				began := time.Now()
				id := inState(t, q, s)
				l := next(t, q)
				if l.Why != DelayWarning || l.Message.ID != id || len(l.Recipients) != 1 || time.Since(began) < 4*time.Hour {
					t.Fatalf("%+v after %v", l, time.Since(began))
				}
				if got := stateOf(t, q, id); got != s {
					t.Fatalf("state %v, want %v", got, s)
				}
				if got := bodyOf(t, q, id); got != "x" {
					t.Fatalf("body %q", got)
				}
				time.Sleep(time.Minute) // as long as that takes
				nothing(t, q)
				q.Warned(id, []int{0})
				time.Sleep(time.Minute)
				nothing(t, q)
				shut(t, q)
				q = open(t, cfg)
				defer shut(t, q)
				time.Sleep(time.Minute)
				for q.Stats().Due > 0 {
					if l := next(t, q); l.Why == DelayWarning {
						t.Fatal("warned again after a restart")
					}
				}
				nothing(t, q)
			})
		})
	}
}

// TestDelayWarningThatCouldNotBeSent: a sender who could not be told of a delay is told later, and once;
// of what was delivered, or given up, meanwhile nothing is told.
func TestDelayWarningThatCouldNotBeSent(t *testing.T) {
	inTime(t, func(t *testing.T) {
		const pause = 5 * time.Minute
		cfg := small(t, vfstest.Memory())
		cfg.DelayAfter = func() time.Duration { return 4 * time.Hour }
		q := open(t, cfg)
		id := accept(t, q, message(4, "example.net"), "x").ID
		next(t, q)
		q.Park(id, []int{0}, siteLine("site"), time.Time{})
		q.Park(id, []int{1}, siteLine("soon"), time.Time{})
		q.Park(id, []int{2}, siteLine("late"), time.Time{})
		q.Defer(id, []int{3}, time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("late"))
		if l := next(t, q); l.Why != DelayWarning || !slices.Equal(indexes(l), []int{0, 1, 2, 3}) {
			t.Fatalf("%v of %v", l.Why, indexes(l))
		}
		q.WarnLater(id, []int{3, 2, 1, 0, 3}, time.Now().Add(pause))
		failed := time.Now()
		q.Take(siteLine("site"), 1)
		q.Settle(id, []int{0}, Delivered)
		q.Change(Selector{Filter: Filter{Key: site("soon")}}, Bounce, false)
		if l := next(t, q); l.Why != BounceAsked || !slices.Equal(indexes(l), []int{1}) {
			t.Fatalf("%v of %v", l.Why, indexes(l))
		}
		q.Defer(id, []int{1}, time.Now().Add(50*time.Hour), Attempt{Untried: true}, site("soon")) // can't be reported either
		for range 20 {
			l := next(t, q)
			if waited := time.Since(failed); l.Why != DelayWarning || !slices.Equal(indexes(l), []int{2, 3}) || waited < pause || waited > pause+2*time.Second {
				t.Fatalf("%v of %v after %v", l.Why, indexes(l), waited)
			}
			failed = time.Now()
			q.WarnLater(id, indexes(l), failed.Add(pause))
		}
		q.Warned(id, indexes(next(t, q)))
		time.Sleep(time.Hour)
		nothing(t, q)
		shut(t, q)
		q = open(t, cfg)
		defer shut(t, q)
		time.Sleep(time.Hour)
		for q.Stats().Due > 0 {
			if l := next(t, q); l.Why == DelayWarning {
				t.Fatalf("told again of %v after a restart", indexes(l))
			}
		}
		nothing(t, q)
	})
}

// TestWarningsThatCanNotBeSentAreBounded: while no sender can be told, so many are tried in each pause
// and no more; when it is over, all are told.
func TestWarningsThatCanNotBeSentAreBounded(t *testing.T) {
	inTime(t, func(t *testing.T) {
		const all, pause = maxWarnings + 100, 5 * time.Minute
		cfg := small(t, vfstest.Memory())
		cfg.DelayAfter = func() time.Duration { return 4 * time.Hour }
		cfg.SegmentSize = 1 << 20
		q := open(t, cfg)
		defer shut(t, q)
		for range all {
			id := accept(t, q, message(1, "example.net"), "x").ID
			q.Change(Selector{IDs: []envelope.ID{id}}, Hold, false)
		}
		time.Sleep(4*time.Hour - 5*time.Second)
		const quiet = 10 * time.Second
		tell := func(full bool) (tried map[envelope.ID]int) {
			tried = map[envelope.ID]int{}
			for {
				ctx, cancel := context.WithTimeout(t.Context(), quiet)
				l, err := q.Next(ctx)
				cancel()
				if err != nil {
					return tried
				}
				if tried[l.Message.ID]++; full {
					q.WarnLater(l.Message.ID, []int{0}, time.Now().Add(pause))
				} else {
					q.Warned(l.Message.ID, []int{0})
				}
			}
		}
		for range 3 {
			if n := len(tell(true)); n < maxWarnings || n > maxWarnings+1 { // one was out when the sweep counted
				t.Fatalf("%d were tried, want %d", n, maxWarnings)
			}
			time.Sleep(pause - quiet - 5*time.Second)
		}
		for id, n := range tell(false) {
			if n != 1 {
				t.Errorf("told %d times of %s", n, id)
			}
		}
		time.Sleep(time.Hour)
		nothing(t, q)
		l, err := q.List(Filter{}, Page{Limit: all})
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range l.Items {
			if !it.Recipients[0].Warned {
				t.Fatalf("nobody was told of %s", it.ID)
			}
		}
	})
}

// TestDelayWarningAndAnAttempt: an attempt that was none is no reason to warn twice while the sender
// is being told.
func TestDelayWarningAndAnAttempt(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.DelayAfter = func() time.Duration { return 4 * time.Hour }
		q := open(t, cfg)
		defer shut(t, q)
		id := inState(t, q, StateParked)
		if l := next(t, q); l.Why != DelayWarning {
			t.Fatalf("%v", l.Why)
		}
		if l := q.Take(siteLine("site"), 1); len(l) != 1 {
			t.Fatalf("took %v", l)
		}
		q.Return(id, []int{0})
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
			if l := next(t, q); l.Why != Due {
				t.Fatalf("handed out for a %v", l.Why)
			}
			q.Return(id, []int{0})
		}
		q.Warned(id, []int{0})
	})
}

// TestActionsInEveryState does each action to a recipient in each state, also while it is
// leased, and looks what becomes of it, before and after a restart.
func TestActionsInEveryState(t *testing.T) {
	states := append([]State{StateLeased}, waitingStates...)
	for _, s := range states {
		for _, a := range []Action{Hold, Unhold, RetryNow, RetryHeld, Bounce, Remove} {
			t.Run(fmt.Sprint(s, "/", a, uint8(a)), func(t *testing.T) {
				inTime(t, func(t *testing.T) { actionInState(t, s, a) })
			})
		}
	}
}

func actionInState(t *testing.T, s State, a Action) {
	fs := vfstest.Memory()
	q := open(t, small(t, fs))
	id := inState(t, q, s)
	sel := Selector{IDs: []envelope.ID{id}}
	dry, err := q.Change(sel, a, true)
	if err != nil || stateOf(t, q, id) != s {
		t.Fatalf("a dry run: %v, state %v", err, stateOf(t, q, id))
	}
	n, err := q.Change(sel, a, false)
	if err != nil || n != dry {
		t.Fatalf("changed %d, %v; the dry run said %d", n, err, dry)
	}
	if s == StateLeased {
		if got := stateOf(t, q, id); got != s {
			t.Fatalf("a leased recipient is %v at once", got)
		}
		q.Defer(id, []int{0}, time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("site"))
		s = StateDeferred
	}
	want := s
	switch {
	case a == Hold:
		want = StateHeld
	case a == Unhold && s == StateHeld, a == RetryNow && s != StateHeld, a == RetryHeld:
		want = StateDue
	case a == Bounce:
		want = StateEnding
	case a == Remove:
		want = 0
	}
	if got := stateOf(t, q, id); got != want {
		t.Fatalf("%v of a %v recipient makes it %v, want %v", a, s, got, want)
	}
	wantN := 1
	if a == Unhold && s != StateHeld || a == Hold && s == StateHeld || a == RetryNow && (s == StateDue || s == StateHeld) || a == RetryHeld && s == StateDue {
		wantN = 0
	}
	if n != wantN {
		t.Fatalf("changed %d, want %d", n, wantN)
	}
	if again, _ := q.Change(sel, a, false); again != 0 && a != RetryNow {
		t.Fatalf("done twice, it changes %d", again)
	}
	balanced(t, q)
	shut(t, q)
	q = open(t, small(t, fs))
	defer shut(t, q)
	if want == StateParked { // in memory only
		want = StateDue
	}
	if got := stateOf(t, q, id); got != want {
		t.Fatalf("after a restart it is %v, want %v", got, want)
	}
	if want == StateEnding {
		if l := next(t, q); l.Why != BounceAsked {
			t.Fatalf("lease %v", l.Why)
		}
		q.Settle(id, []int{0}, Bounced)
	}
	balanced(t, q)
}

// TestSettledWhileAsked: the final reply comes first, and the action has nothing left to do.
func TestSettledWhileAsked(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		id := inState(t, q, StateLeased)
		q.Change(Selector{IDs: []envelope.ID{id}}, Bounce, false)
		q.Settle(id, []int{0}, Delivered)
		nothing(t, q)
		if s := balanced(t, q); s.Delivered != 1 || s.Queued != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestRemoveAskedBeforeACrash: a removal that waited for an attempt to end is done at start, and whoever hears of it hears
// why.
func TestRemoveAskedBeforeACrash(t *testing.T) {
	for _, why := range []Action{Remove, Cancel, Transfer} {
		inTime(t, func(t *testing.T) {
			fs := vfstest.Memory()
			q := open(t, small(t, fs))
			id := inState(t, q, StateLeased)
			sel := Selector{IDs: []envelope.ID{id}}
			if why == Cancel {
				q.Cancel(sel)
			} else {
				q.Change(sel, why, false)
			}
			if c, err := q.Cancel(sel); why == Transfer && (err != nil || c.Cancelled+len(c.Leased) != 0) {
				t.Errorf("what another relay has can be cancelled: %+v, %v", c, err)
			}
			shut(t, q)
			var told []Item
			cfg := small(t, fs)
			cfg.OnRemoved = func(items []Item, recorded func()) { told = append(told, items...); recorded() }
			q = open(t, cfg)
			defer shut(t, q)
			want := map[Action]Action{Remove: Cancel, Cancel: Cancel, Transfer: Transfer}[why] // a cancel comes after a removal
			if len(told) != 1 || told[0].ID != id || told[0].Recipients[0].Address != "r0@example.net" || told[0].Recipients[0].Asked != want {
				t.Errorf("%v: told of %+v", why, told)
			}
			removed, transferred := int64(1), int64(0)
			if why == Transfer {
				removed, transferred = 0, 1
			}
			if s := balanced(t, q); s.Recovered != 1 || s.Removed != removed || s.Transferred != transferred || s.Queued != 0 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// TestRemovedIsTold: of each recipient that is removed once, with what is known of it.
func TestRemovedIsTold(t *testing.T) {
	inTime(t, func(t *testing.T) {
		var told []string
		cfg := small(t, vfstest.Memory())
		var q *Queue
		cfg.OnRemoved = func(items []Item, recorded func()) {
			defer recorded()
			q.Stats() // with no lock held
			for _, r := range items[0].Recipients {
				told = append(told, fmt.Sprintf("%s %s %d", r.Address, r.Line, r.Attempts))
			}
		}
		q = open(t, cfg)
		defer shut(t, q)
		m := accept(t, q, message(4, "example.net"), "x")
		next(t, q)
		q.Defer(m.ID, []int{3}, q.now().Add(time.Hour), Attempt{Reply: greylisted}, site("site"))
		q.Park(m.ID, []int{1, 2}, siteLine("site"), time.Time{})
		for _, step := range []struct {
			sel  Selector
			dry  bool
			want []string
		}{
			{Selector{All: true}, true, nil},
			{Selector{Filter: Filter{Recipient: "r2@example.net"}}, false, []string{"r2@example.net site 0"}},
			{Selector{IDs: []envelope.ID{m.ID}}, false, []string{"r1@example.net site 0", "r3@example.net site 1"}}, // r0 is leased
			{Selector{All: true}, false, nil},
		} {
			told = nil
			if _, err := q.Change(step.sel, Remove, step.dry); err != nil || !slices.Equal(told, step.want) {
				t.Errorf("%+v: told %q, %v, want %q", step.sel, told, err, step.want)
			}
		}
		balanced(t, q)
	})
}

// TestRemovedWhileLeasedIsTold: whoever asked hears of it when the attempt is over, however it came
// back, and not when it ended otherwise.
func TestRemovedWhileLeasedIsTold(t *testing.T) {
	for what, back := range map[string]func(*Queue, envelope.ID){
		"deferred": func(q *Queue, id envelope.ID) {
			q.Defer(id, []int{1, 0}, q.now(), Attempt{Reply: greylisted}, site("site"))
		},
		"returned":  func(q *Queue, id envelope.ID) { q.Return(id, []int{0, 1}) },
		"parked":    func(q *Queue, id envelope.ID) { q.Park(id, []int{0, 1}, siteLine("site"), time.Time{}) },
		"delivered": func(q *Queue, id envelope.ID) { q.Settle(id, []int{0, 1}, Delivered) },
	} {
		t.Run(what, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				var told []Item
				cfg := small(t, vfstest.Memory())
				var q *Queue
				cfg.OnRemoved = func(items []Item, recorded func()) {
					defer recorded()
					q.Stats() // with no lock held
					told = append(told, items...)
				}
				q = open(t, cfg)
				defer shut(t, q)
				m := accept(t, q, message(3, "example.net"), "x")
				next(t, q)
				q.Change(Selector{IDs: []envelope.ID{m.ID}, Filter: Filter{Recipient: "r1@example.net"}}, Remove, false)
				if len(told) != 0 {
					t.Errorf("told at once: %+v", told)
				}
				back(q, m.ID)
				if what == "delivered" {
					if len(told) != 0 {
						t.Errorf("told %+v of what was delivered", told)
					}
					return
				}
				if len(told) != 1 || told[0].ID != m.ID || told[0].Sender != m.Sender || len(told[0].Recipients) != 1 || told[0].Recipients[0].Address != "r1@example.net" {
					t.Fatalf("told %+v", told)
				}
				if want := map[string]int{"deferred": 1}[what]; told[0].Recipients[0].Attempts != want {
					t.Errorf("told of %d attempts, want %d", told[0].Recipients[0].Attempts, want)
				}
				balanced(t, q)
			})
		})
	}
}

// TestRecipientsInAnyOrder: however often and in what order a caller names recipients, each comes back
// once.
func TestRecipientsInAnyOrder(t *testing.T) {
	named := []int{3, 1, 3, 0, 1, 0}
	for what, back := range map[string]func(*Queue, envelope.ID){
		"deferred": func(q *Queue, id envelope.ID) {
			q.Defer(id, named, q.now(), Attempt{Reply: greylisted}, site("site"))
		},
		"returned": func(q *Queue, id envelope.ID) { q.Return(id, named) },
		"parked":   func(q *Queue, id envelope.ID) { q.Park(id, named, siteLine("site"), time.Time{}) },
		"settled":  func(q *Queue, id envelope.ID) { q.Settle(id, named, Delivered) },
		"warned": func(q *Queue, id envelope.ID) {
			q.Warned(id, named)
			q.Return(id, []int{3, 1, 0})
		},
	} {
		t.Run(what, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				var removed []string
				cfg := small(t, vfstest.Memory())
				cfg.OnRemoved = func(items []Item, recorded func()) {
					defer recorded()
					for _, r := range items[0].Recipients {
						removed = append(removed, string(r.Address))
					}
				}
				q := open(t, cfg)
				m := accept(t, q, message(5, "example.net"), "x")
				next(t, q)
				for _, r := range []string{"r1@example.net", "r3@example.net"} {
					q.Change(Selector{Filter: Filter{Recipient: r}}, Remove, false)
				}
				back(q, m.ID)
				want, ended := []string{"r1@example.net", "r3@example.net"}, int64(2)
				if what == "settled" {
					want, ended = nil, 3
				}
				if !slices.Equal(removed, want) {
					t.Errorf("told that %q are removed, want %q", removed, want)
				}
				if s := balanced(t, q); s.Leased != 2 || s.Queued != 5-ended || s.Delivered+s.Removed != ended {
					t.Errorf("%+v", s)
				}
				if h := q.cache.hot[uint64(m.ID)]; h == nil || h.leases != 2 || h.living != int(5-ended) {
					t.Errorf("in memory: %+v, want 2 leases of %d recipients", h, 5-ended)
				}
				if it, _ := q.Get(m.ID); what == "deferred" && it.Recipients[0].Attempts != 1 {
					t.Errorf("%d attempts", it.Recipients[0].Attempts)
				}
				shut(t, q)
				q = open(t, cfg)
				defer shut(t, q)
				if s := balanced(t, q); s.Recovered != 5-ended {
					t.Errorf("after a restart: %+v", s)
				}
			})
		})
	}
}

func TestChangeByFilter(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		for i := range 600 {
			m := message(2, []string{"a.example", "b.example"}[i%2])
			m.Recipients[1].Address = "second@c.example"
			m.Tenant = fmt.Sprint("tenant", i%3)
			if i%10 == 0 {
				m.Sender = ""
			}
			accept(t, q, m, "x")
		}
		for _, c := range []struct {
			f    Filter
			want int
		}{
			{Filter{Domain: "A.example"}, 300},
			{Filter{Domain: "c.example", Tenant: "tenant1"}, 200},
			{Filter{Sender: "<>"}, 120},
			{Filter{Sender: "SENDER@example.com"}, 1080},
			{Filter{Recipient: "r0@b.example"}, 300},
			{Filter{Tenant: "tenant9"}, 0},
			{Filter{Key: site("site")}, 0},
			{Filter{States: []State{StateHeld}}, 0},
		} {
			if n, err := q.Change(Selector{Filter: c.f}, Hold, true); err != nil || n != c.want {
				t.Errorf("%+v selects %d, %v; want %d", c.f, n, err, c.want)
			}
		}
		if n, err := q.Change(Selector{}, Remove, false); err == nil {
			t.Errorf("an empty selector removed %d", n)
		}
		if n, err := q.Change(Selector{Filter: Filter{Domain: "b.example"}}, Remove, false); n != 300 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
		if s := balanced(t, q); s.Removed != 300 || s.Due != 900 {
			t.Errorf("%+v", s)
		}
		if n, err := q.Change(Selector{All: true}, Hold, false); n != 900 || err != nil {
			t.Errorf("held %d, %v", n, err)
		}
		missing := envelope.ID(12345)
		if _, err := q.Change(Selector{IDs: []envelope.ID{missing}}, Hold, false); !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), missing.String()) {
			t.Errorf("an unknown id: %v", err)
		}
	})
}

// The last reply is known at every instant: from Defer on, while its record is on its way to the
// journal, also to a listing that is under way when it gets there, and to who takes the mail meanwhile.
func TestLastReplyIsNeverUnknown(t *testing.T) {
	for _, untried := range []bool{false, true} {
		t.Run(fmt.Sprint("untried ", untried), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				q := open(t, small(t, vfstest.Memory()))
				defer shut(t, q)
				m := accept(t, q, message(1, "example.net"), "x")
				next(t, q)
				if n, err := q.Change(Selector{IDs: []envelope.ID{m.ID}}, RetryNow, false); n != 1 || err != nil {
					t.Fatal(n, err) // it is due again as soon as it comes back
				}
				last := Attempt{Reply: greylisted, Via: "out1", Untried: untried}
				if err := q.Defer(m.ID, []int{0}, time.Now().Add(time.Hour), last, site("site")); err != nil {
					t.Fatal(err)
				}
				c, _ := q.LookUp(uint64(m.ID))
				if c.Rcpts[0].Note() != 0 {
					t.Fatal("the record is written already")
				}
				if p := next(t, q).Recipients[0]; p.Last != greylisted || p.Via != "out1" {
					t.Errorf("taken before the record is written: last reply %v, by way of %q", p.Last, p.Via)
				}
				time.Sleep(2 * noteDelay)
				if now, _ := q.LookUp(uint64(m.ID)); now.Rcpts[0].Note() == 0 {
					t.Fatal("the record is not written yet")
				}
				if r := q.Item(&c, nil).Recipients[0]; r.Last != greylisted || r.Via != "out1" {
					t.Errorf("listed while the record was written: last reply %v, by way of %q", r.Last, r.Via)
				}
			})
		})
	}
}

func TestList(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		var ids []envelope.ID
		due := map[envelope.ID]time.Time{}
		for i := range 250 {
			m := accept(t, q, message(1+i%3, "example.net"), "x")
			ids = append(ids, m.ID)
			time.Sleep(time.Second)
			l := next(t, q)
			if i%5 == 0 {
				q.Park(m.ID, indexes(l), siteLine("parked"), time.Time{})
				continue
			}
			due[m.ID] = time.Now().Add(time.Duration((i*7919)%3600+1000) * time.Second).Truncate(time.Second)
			q.Defer(m.ID, indexes(l), due[m.ID], Attempt{Reply: greylisted}, site(fmt.Sprint("site", i%4)))
		}
		list := func(f Filter, o Order, limit int) (all []Item) {
			for cursor := ""; ; {
				l, err := q.List(f, Page{Order: o, Limit: limit, Cursor: cursor})
				if err != nil || len(l.Items) > limit || !l.Complete {
					t.Fatalf("%d items, %v", len(l.Items), err)
				}
				all = append(all, l.Items...)
				if cursor = l.Next; cursor == "" {
					return all
				}
			}
		}
		for _, limit := range []int{1, 7, 250, 1000} {
			for i, it := range list(Filter{}, OldestFirst, limit) {
				if it.ID != ids[i] || len(it.Recipients) != 1+i%3 || it.Total != 1+i%3 || it.Size != 1 || it.Tenant != "acme" {
					t.Fatalf("item %d: %+v", i, it)
				}
			}
			newest := list(Filter{}, NewestFirst, limit)
			for i, it := range newest {
				if it.ID != ids[len(ids)-1-i] || it.Recipients[0].Index != 0 {
					t.Fatalf("item %d from the end: %+v", i, it)
				}
			}
			byTime := list(Filter{}, NextAttempt, limit)
			if len(newest) != 250 || len(byTime) != 250 {
				t.Fatalf("%d and %d items", len(newest), len(byTime))
			}
			for i, it := range byTime[:200] {
				if next := it.Recipients[0].Next; !next.Equal(due[it.ID]) || i > 0 && next.Before(byTime[i-1].Recipients[0].Next) {
					t.Fatalf("item %d by next attempt: %v, want %v", i, next, due[it.ID])
				}
			}
			if s := byTime[249].Recipients[0].State; s != StateParked {
				t.Fatalf("last by next attempt is %v", s)
			}
		}
		bySite := list(Filter{Key: site("site3")}, OldestFirst, 10)
		for _, it := range bySite {
			if r := it.Recipients[0]; r.Line.Key != site("site3") || r.Last != greylisted || r.Attempts != 1 || r.State != StateDeferred {
				t.Fatalf("%+v", it)
			}
		}
		if len(bySite) != 50 {
			t.Fatalf("%d under a key, want 50", len(bySite))
		}
		if n := len(list(Filter{OlderThan: 100 * time.Second}, OldestFirst, 30)); n != 151 {
			t.Fatalf("%d are older than 100 s, want 151", n)
		}
		if n := len(list(Filter{NewerThan: 100 * time.Second}, NewestFirst, 30)); n != 100 {
			t.Fatalf("%d are newer than 100 s, want 100", n)
		}
		if _, err := q.List(Filter{}, Page{Cursor: "nonsense"}); err == nil {
			t.Fatal("a wrong cursor is taken")
		}
		summary := q.Summary(Filter{})
		if len(summary) != 5 || summary[0].Total < summary[4].Total {
			t.Fatalf("%+v", summary)
		}
		total, young := 0, 0
		for _, s := range summary {
			total += s.Total
			young += s.Ages[0]
			if s.Key == site("parked") && s.States[StateParked] != s.Total {
				t.Fatalf("%+v", s)
			}
		}
		if int64(total) != q.Stats().Queued || young != total {
			t.Fatalf("%d in the summary, %d of them young", total, young)
		}
	})
}

// What a page by next attempt leaves out early must not be missed on it: many at one second,
// recipients of a message at several times, and filters that need the envelope.
func TestListByNextAttemptIsAWholeOrder(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		rng := rand.New(rand.NewPCG(1, 2))
		start := time.Now().Add(time.Hour)
		for i := range 400 {
			m := message(3, fmt.Sprintf("d%d.example", i%3))
			m.Tenant = []string{"a", "b"}[i%2]
			accept(t, q, m, "x")
			l := next(t, q)
			if rng.IntN(10) == 0 {
				q.Park(m.ID, indexes(l), siteLine("parked"), time.Time{})
				continue
			}
			for _, rcpt := range indexes(l) {
				at := start.Add(time.Duration(rng.IntN(20)) * time.Second)
				q.Defer(m.ID, []int{rcpt}, at, Attempt{Reply: greylisted}, site(fmt.Sprint("site", rng.IntN(3))))
			}
		}
		for _, f := range []Filter{{}, {Key: site("site1")}, {Tenant: "b", Domain: "d2.example"}, {States: []State{StateDeferred}}} {
			sorted, err := q.List(f, Page{Limit: 10_000})
			want := sorted.Items
			if err != nil || len(want) < 50 {
				t.Fatalf("%+v: %d items, %v", f, len(want), err)
			}
			slices.SortStableFunc(want, func(a, b Item) int { return cmp.Compare(soonest(a), soonest(b)) })
			for _, limit := range []int{1, 6, 90, 10_000} {
				var got []Item
				for cursor := ""; ; {
					l, err := q.List(f, Page{Order: NextAttempt, Limit: limit, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, l.Items...)
					if cursor = l.Next; cursor == "" {
						break
					}
				}
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%+v, pages of %d: %d items in another order than %d sorted", f, limit, len(got), len(want))
				}
			}
		}
	})
}

// soonest is the earliest next attempt of a message's recipients; what waits for none is last.
func soonest(it Item) int64 {
	at := int64(math.MaxInt64)
	for _, r := range it.Recipients {
		if !r.Next.IsZero() {
			at = min(at, r.Next.Unix())
		}
	}
	return at
}

// Whoever files mail that is out learns what an operator has asked for meanwhile.
func TestFileSaysWhatWasAskedFor(t *testing.T) {
	q := open(t, small(t, vfstest.Memory()))
	defer shut(t, q)
	m := accept(t, q, message(1, "example.net"), "x")
	next(t, q)
	if q.File(m.ID, []int{0}, parking.Line{Key: site("site")}) {
		t.Error("nobody has asked for anything")
	}
	if _, err := q.Change(Selector{IDs: []envelope.ID{m.ID}}, RetryNow, false); err != nil {
		t.Fatal(err)
	}
	if q.File(m.ID, []int{0}, parking.Line{Key: site("site")}) {
		t.Error("a retry takes back mail that is about to be tried")
	}
	if q.Park(m.ID, []int{0}, siteLine("site"), time.Time{}); q.Stats().Parked != 1 {
		t.Error("it is retried twice")
	}
	if got := q.Take(siteLine("site"), 1); len(got) != 1 {
		t.Fatal("it is not parked")
	}
	if _, err := q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false); err != nil {
		t.Fatal(err)
	}
	if !q.File(m.ID, []int{0}, parking.Line{Key: site("site")}) {
		t.Error("the message is to be held")
	}
}
