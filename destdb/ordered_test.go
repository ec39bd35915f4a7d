package destdb

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A list that is sorted anew each time is the model.
func TestOrderedIsASortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &ordered[int, int]{key: func(x int) int { return x }, compare: cmp.Compare[int]}
		var model []int
		add := func(x int) {
			if !slices.Contains(model, x) {
				o.insert(x)
				model = append(model, x)
				slices.Sort(model)
			}
		}
		for x := range rapid.IntRange(0, 3*pieceMax).Draw(t, "many") { // so that there are pieces
			add(7 * x % 2000)
		}
		number := rapid.IntRange(-1, 2001)
		t.Repeat(map[string]func(*rapid.T){
			"insert": func(t *rapid.T) { add(number.Draw(t, "x")) },
			"remove some": func(t *rapid.T) {
				from, n := number.Draw(t, "from"), rapid.IntRange(1, pieceMax).Draw(t, "n")
				for x := from; x < from+n; x++ {
					o.remove(x)
				}
				model = slices.DeleteFunc(model, func(x int) bool { return x >= from && x < from+n })
			},
			"": func(t *rapid.T) {
				k, n := number.Draw(t, "after"), rapid.IntRange(0, 2*pieceMax).Draw(t, "n")
				at, found := slices.BinarySearch(model, k)
				if found {
					at++
				}
				want := model[at:min(at+n, len(model))]
				if got := o.after(k, n); !slices.Equal(got, want) {
					t.Fatalf("%d after %d: %v, want %v", n, k, got, want)
				}
				if o.n != len(model) {
					t.Fatalf("%d counted, want %d", o.n, len(model))
				}
				for _, p := range o.pieces {
					if len(p) == 0 || len(p) > pieceMax {
						t.Fatalf("a piece of %d", len(p))
					}
				}
			},
		})
	})
}
