package delivery

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.org/mta/internal/envelope"
)

func nobodyHeld(*tenant) bool { return false }

// waiter makes a part of message m of a tenant, that came at that second.
func waiter(m *message, tenant string, second int) *part {
	w := &work{Job: &Job{Message: &envelope.Message{ID: m.id, Tenant: tenant}}, message: m, since: t0.Add(time.Duration(second) * time.Second)}
	return &part{work: w}
}

func TestLeastRunningFirst(t *testing.T) {
	w := newWaitlist()
	big, small := &message{id: 1}, &message{id: 2}
	for range 5 {
		w.add(waiter(big, "", 0), false)
	}
	g := w.pick(t0, nobodyHeld)
	if w.take(g); g.message != big {
		t.Fatal("the oldest of those with nothing running comes first")
	}
	w.add(waiter(small, "", 9), false)
	if g := w.pick(t0, nobodyHeld); g.message != small {
		t.Error("a message with one part running came before one with none")
	} else {
		w.take(g)
	}
	if g := w.pick(t0, nobodyHeld); g.message != big {
		t.Error("with the same number running, what waits comes next")
	}
}

func TestTenantsTakeTurnsByWeight(t *testing.T) {
	w := newWaitlist()
	for i := range 300 {
		p := waiter(&message{id: envelope.ID(i)}, "heavy", i)
		p.work.Weight = 3
		w.add(p, false)
	}
	for i := range 100 {
		w.add(waiter(&message{id: envelope.ID(1000 + i)}, "light", i), false)
	}
	count := map[string]int{}
	for range 200 {
		g := w.pick(t0, nobodyHeld)
		w.take(g)
		count[g.tenant.name]++
	}
	if count["heavy"] != 150 || count["light"] != 50 {
		t.Errorf("of 200 turns: %v, want 150 and 50", count)
	}
}

// Within a tenant the first tier goes first, and the others have their share.
func TestTiersTakeTurns(t *testing.T) {
	w := newWaitlist()
	add := func(id int, tier uint8) {
		p := waiter(&message{id: envelope.ID(id)}, "", id)
		p.work.Message.Tier = tier
		w.add(p, false)
	}
	for i := range 200 {
		add(i, 4)
	}
	for i := range 200 {
		add(1000+i, 1)
	}
	count := map[uint8]int{}
	for i := range 100 {
		g := w.pick(t0, nobodyHeld)
		w.take(g)
		if count[g.tier]++; i == 0 && g.tier != 1 {
			t.Error("what came first goes before a tier that matters more")
		}
	}
	if count[1] != 95 || count[4] != 5 {
		t.Errorf("of 100 turns: %v, want 95 of tier 1 and 5 of tier 4", count)
	}
}

func TestHeldTenantDoesNotHoldOthers(t *testing.T) {
	w := newWaitlist()
	for i := range 10 {
		w.add(waiter(&message{id: envelope.ID(i)}, "a", i), false)
		w.add(waiter(&message{id: envelope.ID(100 + i)}, "b", i), false)
		w.add(waiter(&message{id: envelope.ID(200 + i)}, "c", i), false)
	}
	count := map[string]int{}
	for range 20 {
		g := w.pick(t0, func(t *tenant) bool { return t.name == "a" })
		w.take(g)
		count[g.tenant.name]++
	}
	if count["b"] != 10 || count["c"] != 10 {
		t.Errorf("turns: %v", count)
	}
	if g := w.pick(t0, func(t *tenant) bool { return t.name == "a" }); g != nil {
		t.Error("a held tenant got a turn")
	}
}

// A big old message never gets a turn by least-running alone while small ones keep coming.
func TestStarvationGuard(t *testing.T) {
	w := newWaitlist()
	old := &message{id: 1}
	for range 50 {
		w.add(waiter(old, "", 0), false)
	}
	w.take(w.pick(t0, nobodyHeld)) // one runs, and never ends
	turns := func(now time.Time) (n int) {
		for i := range 200 {
			w.add(waiter(&message{id: envelope.ID(1000 + i)}, "", 1+i), false)
			g := w.pick(now, nobodyHeld)
			w.take(g)
			if g.message == old {
				n++
			} else {
				w.ended(g)
			}
		}
		return n
	}
	if n := turns(t0.Add(time.Minute)); n != 0 {
		t.Fatalf("%d turns within five minutes, want none", n)
	}
	if n := turns(t0.Add(guardAge + time.Second)); n != 20 {
		t.Errorf("%d of 200 turns when it has waited too long, want one in ten", n)
	}
}

func TestExpiredAreTakenOut(t *testing.T) {
	w := newWaitlist()
	for i := range 10 {
		p := waiter(&message{id: envelope.ID(i)}, "", i)
		if i%2 == 0 {
			p.work.Expires = t0.Add(time.Duration(i) * time.Second)
		}
		w.add(p, false)
	}
	if got := w.expired(t0.Add(4 * time.Second)); len(got) != 3 || w.n != 7 {
		t.Errorf("%d expired, %d left, want 3 and 7", len(got), w.n)
	}
	if got := w.expired(t0.Add(5 * time.Second)); len(got) != 0 {
		t.Errorf("%d expired again", len(got))
	}
	if got := w.expired(t0.Add(time.Hour)); len(got) != 2 {
		t.Errorf("%d expired, want the other 2", len(got))
	}
}

// While the lane drains, the newest of the fresh mail goes first, and of five turns one is the
// backlog's, the oldest first; when one of them has nothing, the other has it all.
func TestDrainPrefersFreshMail(t *testing.T) {
	w := newWaitlist()
	add := func(from, to int, backlog bool) {
		for i := from; i < to; i++ {
			p := waiter(&message{id: envelope.ID(i)}, "", i)
			p.work.space.backlog = backlog
			w.add(p, false)
		}
	}
	turns := func(n int) (ids []int) {
		for range n {
			g := w.pick(t0, nobodyHeld)
			w.take(g)
			w.ended(g)
			ids = append(ids, int(g.message.id))
		}
		return ids
	}
	add(0, 10, true)
	w.drain(true)
	if got := turns(2); !slices.Equal(got, []int{0, 1}) {
		t.Errorf("the backlog alone: %v", got)
	}
	add(100, 110, false)
	if got := turns(10); !slices.Equal(got, []int{109, 108, 107, 106, 2, 105, 104, 103, 102, 3}) {
		t.Errorf("both: %v", got)
	}
	if got := turns(8); !slices.Equal(got, []int{101, 100, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("to the end: %v", got)
	}
	add(10, 13, true)
	add(200, 203, false)
	w.drain(false)
	if got := turns(6); !slices.Equal(got, []int{10, 11, 12, 200, 201, 202}) {
		t.Errorf("after the drain: %v", got)
	}
}

// Whatever is added, taken, put back and removed: nothing is lost, nothing comes twice, and when all
// is over nothing is remembered.
func TestWaitlistKeepsItsBooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWaitlist()
		messages := make([]*message, 6)
		for i := range messages {
			messages[i] = &message{id: envelope.ID(i)}
		}
		waiting, running := map[*part]bool{}, map[*part]*group{}
		now := 0
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now++
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 5:
				w.drain(!w.draining)
			case 0, 1:
				i := rapid.IntRange(0, 5).Draw(t, "message")
				p := waiter(messages[i], fmt.Sprint(i%3), now)
				if rapid.Bool().Draw(t, "expires") {
					p.work.Expires = t0.Add(time.Duration(now+20) * time.Second)
				}
				p.work.space.backlog = rapid.Bool().Draw(t, "backlog")
				w.add(p, false)
				waiting[p] = true
			case 2:
				if g := w.pick(t0, nobodyHeld); g != nil {
					p := w.take(g)
					if !waiting[p] {
						t.Fatal("took what doesn't wait")
					}
					delete(waiting, p)
					running[p] = g
				} else if len(waiting) > 0 {
					t.Fatal("nobody's turn, while some wait")
				}
			case 3:
				for p, g := range running {
					delete(running, p)
					w.ended(g)
					if rapid.Bool().Draw(t, "again") {
						w.add(p, true)
						waiting[p] = true
					}
					break
				}
			case 4:
				for _, p := range w.expired(t0.Add(time.Duration(now) * time.Second)) {
					delete(waiting, p)
				}
			}
			if w.n != len(waiting) {
				t.Fatalf("says %d wait, %d do", w.n, len(waiting))
			}
			if n := waitingOf(messages); n != len(waiting) {
				t.Fatalf("%d are found by their messages, %d wait", n, len(waiting))
			}
		}
		for _, p := range w.all() {
			delete(waiting, p)
		}
		for _, g := range running {
			w.ended(g)
		}
		if len(waiting) != 0 || w.n != 0 || w.oldest != nil || !w.rounds[freshMail].Empty() || !w.rounds[backlogMail].Empty() {
			t.Fatalf("left: %d, n %d", len(waiting), w.n)
		}
		for _, m := range messages {
			if m.groups != nil {
				t.Fatalf("message %v still has groups", m.id)
			}
		}
		for _, tn := range w.tenants {
			if len(tn.known) != 0 {
				t.Fatalf("tenant %s still knows %d messages", tn.name, len(tn.known))
			}
		}
	})
}

// waitingOf counts the parts that are found by way of their messages.
func waitingOf(messages []*message) (n int) {
	for _, m := range messages {
		for g := m.groups; g != nil; g = g.next {
			for p := g.first; p != nil; p = p.next {
				n++
			}
		}
	}
	return n
}
