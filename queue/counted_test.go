package queue

import (
	"slices"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs/vfstest"
)

// TestCounted: an action on what was counted touches nothing that has come, or has got into the state that was asked for,
// since; and of what was counted not what is no longer there.
func TestCounted(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		deferred := Selector{Filter: Filter{States: []State{StateDeferred}}}
		held := inState(t, q, StateHeld)
		var ids []envelope.ID
		for range 5 {
			ids = append(ids, inState(t, q, StateDeferred))
		}
		big := accept(t, q, message(300, "example.net"), "x").ID
		l := next(t, q)
		q.Defer(big, indexes(l), time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("site"))

		counted, err := q.Count(deferred, Hold)
		if err != nil || counted.Len() != 305 {
			t.Fatalf("counted %d, %v", counted.Len(), err)
		}
		var named []envelope.ID
		counted.IDs(func(some []envelope.ID) { named = append(named, some...) })
		if want := append(slices.Clone(ids), big); !slices.Equal(named, want) {
			t.Errorf("counted %v, want %v", named, want)
		}

		late := inState(t, q, StateDeferred)
		q.Change(Selector{IDs: []envelope.ID{held}}, Unhold, false)
		l = next(t, q)
		q.Defer(held, indexes(l), time.Now().Add(100*time.Hour), Attempt{Reply: greylisted}, site("site"))
		q.Change(Selector{IDs: ids[:1]}, Remove, false)
		q.Change(Selector{IDs: ids[1:2]}, Hold, false)

		n, err := q.Change(Selector{Counted: counted}, Hold, false)
		if err != nil || n != 303 {
			t.Errorf("held %d, %v", n, err)
		}
		for id, want := range map[envelope.ID]State{late: StateDeferred, held: StateDeferred, ids[0]: 0, ids[1]: StateHeld, ids[4]: StateHeld, big: StateHeld} {
			if got := stateOf(t, q, id); got != want {
				t.Errorf("%v is %v, want %v", id, got, want)
			}
		}
		rerouted, err := q.CountReroute(Selector{Filter: Filter{States: []State{StateHeld}}}, envelope.Detour{Pool: "other"})
		if err != nil || rerouted.Len() != 304 {
			t.Fatalf("counted %d, %v", rerouted.Len(), err)
		}
		if n, err := q.Reroute(Selector{Counted: rerouted}, envelope.Detour{Pool: "other"}, false); err != nil || n != 304 {
			t.Errorf("rerouted %d, %v", n, err)
		}
		if _, err := q.Change(Selector{}, Hold, false); err == nil {
			t.Error("nothing was selected, and that was no error")
		}
	})
}
