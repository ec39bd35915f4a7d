package minheap_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"example.org/mta/internal/minheap"
)

type item struct{ rank, at int }

// TestHeapIsAsASortedList does what may be done to a heap, at random, to a list, too.
func TestHeapIsAsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := minheap.New(func(a, b *item) bool { return a.rank < b.rank }, func(i *item, at int) { i.at = at })
		var list []*item
		some := func() *item { return list[rapid.IntRange(0, len(list)-1).Draw(t, "which")] }
		drop := func(i *item) {
			list = slices.DeleteFunc(list, func(x *item) bool { return x == i })
			if i.at != -1 {
				t.Fatalf("what is out is at %d", i.at)
			}
		}
		least := func() int { return slices.MinFunc(list, func(a, b *item) int { return a.rank - b.rank }).rank }
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				i := &item{rank: rapid.IntRange(0, 9).Draw(t, "rank")}
				list = append(list, i)
				h.Push(i)
			},
			"pop": func(t *rapid.T) {
				if len(list) == 0 {
					t.Skip()
				}
				want := least()
				i := h.Pop()
				if i.rank != want {
					t.Fatalf("popped %d, the least is %d", i.rank, want)
				}
				drop(i)
			},
			"fix": func(t *rapid.T) {
				if len(list) == 0 {
					t.Skip()
				}
				i := some()
				i.rank = rapid.IntRange(0, 9).Draw(t, "rank")
				h.Fix(i.at)
			},
			"remove": func(t *rapid.T) {
				if len(list) == 0 {
					t.Skip()
				}
				i := some()
				h.Remove(i.at)
				drop(i)
			},
			"": func(t *rapid.T) {
				if h.Len() != len(list) || len(list) > 0 && h.Top().rank != least() {
					t.Fatalf("%d in the heap, %d in the list", h.Len(), len(list))
				}
				for at, i := range h.Values() {
					if i.at != at {
						t.Fatalf("the value at %d takes itself to be at %d", at, i.at)
					}
				}
			},
		})
	})
}
