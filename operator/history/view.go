package history

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// Series is a figure over time.
type Series struct {
	Figure Figure
	Values []float64 // NaN: unknown
}

// Names gives those of a kind that have figures of their own, the busiest first, and Other.
func (h *History) Names(k Kind) []string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	var names []string
	for name := range h.rings[k] {
		if name != Other {
			names = append(names, name)
		}
	}
	ranks := h.ranks[k].busy
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(ranks[b], ranks[a]), cmp.Compare(a, b)) })
	if k != Relay {
		names = append(names, Other)
	}
	return names
}

// Get gives the figures of a subject, and when the step begins that their first values are for; false when it has
// none. The step of the last ones is under way.
func (h *History) Get(k Kind, name string, sp Span) (start time.Time, all []Series, ok bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s := h.rings[k][name]
	if s == nil {
		return start, nil, false
	}
	head, n := h.heads[sp], sp.Values()
	if head == 0 { // there was no sample
		head = stepOf(sp, h.Now())
	}
	first := head - int64(n) + 1
	list := figuresOf[k]
	for _, f := range list {
		all = append(all, Series{f, make([]float64, n)})
	}
	for i := range n {
		for j := range list {
			all[j].Values[i] = s.spans[sp].value(first+int64(i), len(list), j).float()
		}
	}
	return time.Unix(0, first*int64(sp.Step())).UTC(), all, true
}

// latestSamples are those of the last minute.
const latestSamples = 30

// Latest gives the figures of a subject now: of rates the mean of the last minute, of delays those of half a minute at
// least. It is nil when there are none.
func (h *History) Latest(k Kind, name string) map[Figure]float64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	s, list := h.rings[k][name], figuresOf[k]
	if s == nil {
		return nil
	}
	latest := make(map[Figure]float64, len(list))
	value := func(sp Span, back, i int) float64 {
		return s.spans[sp].value(max(h.heads[sp]-int64(back), 0), len(list), i).float()
	}
	for i, f := range list {
		switch {
		case int(f) < numCounts:
			latest[f] = meanOf(latestSamples, func(back int) float64 { return value(Minutes, back, i) })
		case f >= DelayP50:
			if latest[f] = value(Hours, 0, i); math.IsNaN(latest[f]) {
				latest[f] = value(Hours, 1, i)
			}
		default:
			latest[f] = value(Minutes, 0, i)
		}
	}
	return latest
}

// meanOf is the mean of those of n values that are known.
func meanOf(n int, value func(int) float64) float64 {
	sum, known := 0., 0
	for i := range n {
		if v := value(i); !math.IsNaN(v) {
			sum += v
			known++
		}
	}
	return sum / float64(known)
}

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
