package queue

import (
	"errors"
	"math/rand"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/vfs/vfstest"
)

var backup = envelope.Detour{Pool: "backup", Route: "smarthost.example"}

// detourOf is that of a message's first recipient, by a listing.
func detourOf(t *testing.T, q *Queue, id envelope.ID) envelope.Detour {
	t.Helper()
	it, err := q.Get(id)
	if err != nil {
		t.Fatal(err)
	}
	return it.Recipients[0].Detour
}

// TestRerouteInEveryState: it outlives a restart and further attempts, what waits is due, what is held stays held, and
// the last reply stays.
func TestRerouteInEveryState(t *testing.T) {
	for _, s := range waitingStates {
		t.Run(s.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				cfg := small(t, vfstest.Memory())
				q := open(t, cfg)
				id := inState(t, q, s)
				one := Selector{IDs: []envelope.ID{id}}
				if n, err := q.Reroute(one, backup, true); n != 1 || err != nil || !detourOf(t, q, id).IsZero() {
					t.Fatalf("dry run: %d, %v", n, err)
				}
				if n, err := q.Reroute(one, backup, false); n != 1 || err != nil {
					t.Fatal(n, err)
				}
				if s == StateHeld {
					nothing(t, q)
					q.Change(one, Unhold, false)
				}
				l := next(t, q)
				if l.Message.ID != id || l.Recipients[0].Detour != backup {
					t.Fatalf("%+v", l.Recipients)
				}
				attempts := 0
				if s == StateDeferred {
					attempts = 1
					if l.Recipients[0].Last != greylisted || l.Recipients[0].Attempts != 1 {
						t.Errorf("the last attempt is forgotten: %+v", l.Recipients[0])
					}
				}
				q.Defer(id, []int{0}, time.Now().Add(time.Hour), Attempt{Reply: greylisted, Via: "out1"}, site("site"))
				shut(t, q)
				q = open(t, cfg)
				defer shut(t, q)
				if d := detourOf(t, q, id); d != backup {
					t.Fatalf("after a restart: %+v", d)
				}
				time.Sleep(2 * time.Hour)
				if l = next(t, q); l.Recipients[0].Detour != backup || l.Recipients[0].Via != "out1" || l.Recipients[0].Attempts != attempts+1 {
					t.Fatalf("%+v", l.Recipients)
				}
				q.Return(id, []int{0})
				if n, err := q.Reroute(one, envelope.Detour{}, false); n != 1 || err != nil || !detourOf(t, q, id).IsZero() {
					t.Fatalf("back to its own way: %d, %v", n, err)
				}
				if n, err := q.Reroute(one, envelope.Detour{}, true); n != 0 || err != nil {
					t.Errorf("again: %d, %v", n, err)
				}
			})
		})
	}
}

// TestRerouteOfWhatIsLeased: it is due at once when it comes back, by its detour, whatever its holder knew of it.
func TestRerouteOfWhatIsLeased(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		m := accept(t, q, message(2, "example.net"), "x")
		next(t, q)
		if n, err := q.Reroute(Selector{All: true}, backup, false); n != 2 || err != nil {
			t.Fatal(n, err)
		}
		q.Defer(m.ID, []int{0}, time.Now().Add(time.Hour), Attempt{Reply: greylisted}, site("site"))
		l := next(t, q)
		if len(l.Recipients) != 1 || l.Recipients[0].Detour != backup || l.Recipients[0].Attempts != 1 {
			t.Fatalf("%+v", l.Recipients)
		}
		q.Park(m.ID, []int{1}, siteLine("site"), time.Time{})
		if l = next(t, q); len(l.Recipients) != 1 || l.Recipients[0].Index != 1 || l.Recipients[0].Detour != backup {
			t.Fatalf("%+v", l.Recipients)
		}
		q.Settle(m.ID, []int{0}, Delivered)
		q.Settle(m.ID, []int{1}, Bounced)
		if len(q.rcpts.detours) != 0 || len(q.rcpts.replies) != 0 {
			t.Errorf("left behind: %v, %v", q.rcpts.detours, q.rcpts.replies)
		}
		balanced(t, q)
		shut(t, q)
	})
}

// TestRerouteIsDurable: what was rerouted when the power fails is so after it, held, leased or due.
// TestRerouteWhileMailIsHandedOut: mail that is filed after its reroute is on its old way, and comes back; before it was
// taken for the retry that was asked for, and waited there as long as that way was closed.
func TestRerouteWhileMailIsHandedOut(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		id := accept(t, q, message(1, "box.example"), "x").ID
		next(t, q)
		if n, err := q.Reroute(Selector{IDs: []envelope.ID{id}}, backup, false); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		if !q.File(id, []int{0}, parking.Line{Key: site("box")}) {
			t.Error("the old way may go on")
		}
		q.Park(id, []int{0}, siteLine("box"), time.Time{})
		if it, err := q.Get(id); err != nil || it.Recipients[0].State != StateDue {
			t.Fatalf("%+v, %v", it, err)
		}
		l := next(t, q)
		if l.Recipients[0].Detour != backup {
			t.Fatalf("%+v", l.Recipients)
		}
		if q.File(id, []int{0}, parking.Line{Key: site("backup")}) {
			t.Error("the new way may not go on")
		}
	})
}

func TestRerouteIsDurable(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := vfstest.NewDisk(rand.New(rand.NewSource(1)))
		cfg := small(t, disk)
		q := open(t, cfg)
		var ids []envelope.ID
		for _, s := range waitingStates {
			ids = append(ids, inState(t, q, s))
		}
		leased := accept(t, q, message(1, "example.net"), "x")
		for l := next(t, q); l.Message.ID != leased.ID; l = next(t, q) {
		}
		ids = append(ids, leased.ID)
		if n, err := q.Reroute(Selector{All: true}, backup, false); n != len(ids) || err != nil {
			t.Fatal(n, err)
		}
		disk.CutAt(disk.Ops() + 1)
		q.Close()
		cfg.FS = disk.Reboot()
		q = open(t, cfg)
		defer shut(t, q)
		for _, id := range ids {
			if d := detourOf(t, q, id); d != backup {
				t.Errorf("message %s: %+v", id, d)
			}
		}
		if _, err := q.Reroute(Selector{IDs: []envelope.ID{1}}, backup, false); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
		if _, err := q.Reroute(Selector{}, backup, false); err == nil {
			t.Error("nothing was selected, and it was rerouted")
		}
	})
}
