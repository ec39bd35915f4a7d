package schedule

import (
	"flag"
	"math/rand"
	"testing"
)

var held = flag.Int("schedule.held", 100_000, "entries in TestT2_ReleaseLooksAtNoOther; 3000000 takes 120 MB")

// What is held for later costs nothing until its time comes: an entry is moved three times at
// most before it is handed out, and those that are not due are not looked at.
func TestT2_ReleaseLooksAtNoOther(t *testing.T) {
	const now = 1_700_000_000
	tab, rng := New(), rand.New(rand.NewSource(1))
	w := NewWheel(tab, now)
	const soon = 1800 // seconds in which a hundredth of them is released; the others wait for days
	released, want := 0, *held/100
	for id := range *held {
		due := uint32(now + 86400 + rng.Intn(6*86400))
		if id < want {
			due = uint32(now + 1 + rng.Intn(soon))
		}
		w.Add(tab.Append(Entry{ID: uint64(id), Due: due}, Names{}, Deferred))
	}
	looks := 0
	for second := uint32(now + 1); second <= now+soon; second++ {
		for w.Advance(second, 1, func(s Slot, e *Entry) {
			if e.Due != second {
				t.Fatalf("entry %d, due in second %d, came out in second %d", e.ID, e.Due-now, second-now)
			}
			released++
			tab.Free(s)
		}) {
			looks++
		}
	}
	if released != want {
		t.Errorf("%d released, want %d", released, want)
	}
	// Three moves and the release for each, a look at each second, and at each list of the wheel
	// that was passed.
	if limit := 4*want + 3*soon; looks > limit {
		t.Errorf("%d looks for %d releases among %d entries, want at most %d", looks, want, *held, limit)
	}
	t.Logf("%d entries held, %d released in %d s with %d looks", *held, released, soon, looks)
}
