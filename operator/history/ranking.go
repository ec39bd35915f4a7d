package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

const (
	// halfLife is after how many samples a recipient counts half: an hour.
	halfLife = 1800
	// candidates is how many names have a rank, at most, when they are weeded.
	candidates = 500
	// busier is how much more than another a subject must have for its place: figures of two weeks are thrown away.
	busier = 2
)

// ranking finds the busiest names: each has the recipients that it had, of which the older count less.
type ranking struct {
	busy   map[string]float64
	chosen map[string]bool
	weight float64 // of a recipient now; it grows in the place of all others' decay
}

func newRanking() ranking {
	return ranking{busy: make(map[string]float64), chosen: make(map[string]bool), weight: 1}
}

func (r *ranking) add(name string, n int64) { r.busy[name] += float64(n) * r.weight }

// choose gives the names that join the most that are chosen, and those that leave.
func (r *ranking) choose(most int) (in, out []string) {
	r.age()
	if len(r.busy) > len(r.chosen) {
		in, out = r.change(most)
	}
	if len(r.busy) > 2*candidates {
		r.weed()
	}
	return in, out
}

// age makes what was counted so far worth less than what comes.
func (r *ranking) age() {
	const tooHeavy = 1e100
	if r.weight *= math.Exp2(1. / halfLife); r.weight > tooHeavy {
		for name := range r.busy {
			r.busy[name] /= r.weight
		}
		r.weight = 1
	}
}

func (r *ranking) change(most int) (in, out []string) {
	chosen := slices.SortedFunc(maps.Keys(r.chosen), r.busiestFirst)
	enough := -1. // for a place
	if len(chosen) >= most {
		enough = busier * r.busy[chosen[most-1]]
	}
	var waiting []string
	for name, n := range r.busy {
		if n > enough && !r.chosen[name] {
			waiting = append(waiting, name)
		}
	}
	slices.SortFunc(waiting, r.busiestFirst)
	for _, name := range waiting {
		if last := len(chosen) - 1; len(r.chosen) >= most {
			if last < 0 || r.busy[name] <= busier*r.busy[chosen[last]] {
				break
			}
			delete(r.chosen, chosen[last])
			out, chosen = append(out, chosen[last]), chosen[:last]
		}
		r.chosen[name] = true
		in = append(in, name)
	}
	return in, out
}

func (r *ranking) busiestFirst(a, b string) int {
	return cmp.Or(cmp.Compare(r.busy[b], r.busy[a]), cmp.Compare(a, b))
}

// weed forgets the least busy of those that aren't chosen.
func (r *ranking) weed() {
	names := slices.SortedFunc(maps.Keys(r.busy), r.busiestFirst)
	for _, name := range names[candidates:] {
		if !r.chosen[name] {
			delete(r.busy, name)
		}
	}
}
