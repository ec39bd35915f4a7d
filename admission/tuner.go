package admission

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Tuner finds how many slots serve best: as TCP Vegas does, by how much longer work takes than it
// did at its best; by whether more slots have made less leave; and by an absolute bound on the
// latency, since what counts as "best" drifts under a load that stays. (Netflix's and Uber's
// limiters have the first two.)
type Tuner struct {
	Least, Most float64       // the range of the limit; 1 and 1,024 when 0
	Start       float64       // the first limit; 20 when 0
	Ceiling     time.Duration // latency above which the limit falls; 100 ms when 0
	// Good is the latency up to which fewer slots would gain nothing. Work that shares its cost, as
	// commits that share a sync, takes longer when more is done at once and yet more of it is done:
	// below Good the limit only rises. 0: there is none.
	Good time.Duration
	// Blind reports whether CPU is what lacks: work waits for it, and fewer slots would let it wait in line. The
	// limit is twice Start at least meanwhile, and stays. Nil: it never lacks.
	Blind func() bool

	limit  float64
	began  time.Time // of the interval
	last   time.Time // call of Tune
	area   float64   // slot-seconds in use since began
	before struct {  // the limit began to fall for a latency above the ceiling
		limit, p90 float64
		excused    float64 // latency that fewer slots did not lower, s
		patience   int     // intervals for which it is excused
	}
	why       string
	settling  bool // the limit fell a moment ago
	latencies histogram
	p90s      [5]float64
	smooth    float64 // seconds
	target    float64 // the least smooth latency since it was last learnt anew
	intervals int
	busy      series
	left      series
}

const (
	firstLimit     = 20
	interval       = time.Second
	enoughLatency  = 50 // of them make an interval
	relearn        = 50 // intervals
	latencySmooth  = .3
	shortQueue     = 3 // times log10 of the limit
	longQueue      = 5
	variedBy       = .5 // slots: less than that says nothing about cause
	overCeiling    = .9
	farOver        = 1.5 // times the ceiling: the limit is far too high
	largestCut     = .25 // of the limit, in one interval
	settled        = 1.1 // times the limit that is in use when what was above it has ended
	halved         = .55 // of the slots are left: time to judge whether that helped
	noFaster       = .75 // of the latency with twice the slots
	excuse         = 1.5 // times the latency that fewer slots did not lower
	excusedFor     = 10 * relearn
	underGood      = 1.25 // how fast the limit rises while latency is good
	notUsedEnough  = .5   // of the slots in use: the limit is not what limits
	defaultCeiling = 100 * time.Millisecond
)

// Limit returns how many slots there should be now.
func (t *Tuner) Limit() float64 {
	if t.limit == 0 {
		first := t.Start
		first = cmp.Or(first, firstLimit)
		t.limit = min(max(first, t.least()), t.most())
	}
	return t.limit
}

func (t *Tuner) least() float64 { return max(t.Least, 1) }

func (t *Tuner) most() float64 {
	if t.Most == 0 {
		return 1024
	}
	return t.Most
}

func (t *Tuner) ceiling() float64 {
	ceiling := cmp.Or(t.Ceiling, defaultCeiling)
	return max(ceiling.Seconds(), t.before.excused)
}

// Why returns why the limit is what it is.
func (t *Tuner) Why() string {
	if t.why == "" {
		return "as at the start: too little was done to judge"
	}
	return t.why
}

// Observe counts how long one piece of work held its slot.
func (t *Tuner) Observe(d time.Duration) { t.latencies.add(d) }

// Tune ends an interval, if it has lasted and seen enough, and adapts the limit. busy is the average
// of slots in use since the last call.
func (t *Tuner) Tune(now time.Time, busy float64) {
	if t.began.IsZero() || now.Before(t.last) { // the clock was set back
		t.began, t.last, t.area = now, now, 0
	}
	t.area += busy * now.Sub(t.last).Seconds()
	t.last = now
	d := now.Sub(t.began)
	if d < interval || t.latencies.n < enoughLatency {
		return
	}
	busy = t.area / d.Seconds()
	t.busy.add(busy)
	t.left.add(float64(t.latencies.n) / d.Seconds())
	p90 := t.latencies.quantile(.9)
	t.latencies, t.began, t.area = histogram{}, now, 0
	if t.Blind != nil && t.Blind() {
		t.limit = min(max(t.Limit(), 2*t.Start), t.most()) // it may have fallen before that was known
		t.why = "stays: CPU is what lacks"
		return
	}
	if t.settling { // what ended in this interval may have begun under the old limit
		t.settling = busy > t.limit*settled
		return
	}
	if t.Good > 0 && t.futile(p90) {
		return
	}
	if t.Good > 0 && p90 > farOver*t.ceiling() {
		t.fall(p90)
		return
	}
	t.learn(p90)
	t.limit = min(max(t.next(busy), t.least()), t.most())
}

// fall lowers the limit at once, as far as one interval can prove that it is too high. What was
// measured under the old limit no longer counts.
func (t *Tuner) fall(p90 float64) {
	t.limit = max(t.Limit()*max(t.ceiling()/p90, largestCut), t.least())
	t.smooth, t.intervals, t.settling = 0, 0, true
	t.why = "falls fast: the latency is far above the ceiling"
}

// futile reports whether half of the slots made no difference to the latency: then it is not due to
// their number, and they come back. A disk that takes 200 ms for each sync is not faster for being
// given less.
func (t *Tuner) futile(p90 float64) bool {
	limit, before := t.Limit(), &t.before
	if before.patience--; before.patience <= 0 {
		before.excused = 0
	}
	switch {
	case p90 <= t.ceiling():
		before.limit = 0
	case before.limit == 0:
		before.limit, before.p90 = limit, p90
	case limit <= before.limit*halved:
		futile := p90 > noFaster*before.p90
		if futile {
			before.excused, before.patience = excuse*p90, excusedFor
			t.limit, t.smooth, t.intervals = before.limit, 0, 0
			t.why = "restored: half as many made no difference to the latency"
		}
		before.limit = 0
		return futile
	}
	return false
}

// learn takes in the 90th percentile of an interval.
func (t *Tuner) learn(p90 float64) {
	t.p90s[t.intervals%len(t.p90s)] = p90
	known := t.p90s[:min(t.intervals+1, len(t.p90s))]
	sorted := slices.Sorted(slices.Values(known))
	median := sorted[len(sorted)/2]
	t.smooth = cmp.Or(t.smooth, median)
	t.smooth += latencySmooth * (median - t.smooth)
	if t.intervals%relearn == 0 {
		t.target = t.smooth
	}
	t.target = min(t.target, t.smooth)
	t.intervals++
}

// next returns the limit for the next interval.
func (t *Tuner) next(busy float64) float64 {
	limit := t.Limit()
	step := max(math.Log10(limit), .5)
	queue := limit * (1 - t.target/t.smooth)
	used := busy >= limit*notUsedEnough
	switch {
	case t.smooth > t.ceiling():
		t.why = "falls: the latency is above the ceiling"
		return limit * overCeiling
	case t.smooth < t.Good.Seconds() && used:
		t.why = "rises: the latency is good, and the slots are used"
		return limit * underGood
	case t.smooth < t.Good.Seconds():
		t.why = "stays: the latency is good, and most slots are free"
		return limit
	case t.busy.full() && t.busy.deviation() > variedBy && covariance(&t.busy, &t.left) < 0:
		t.why = "falls: with more slots in use less was done"
		return limit - step
	case queue > longQueue*step:
		t.why = "falls: work takes much longer than at its best"
		return limit - step
	case queue < shortQueue*step && used:
		t.why = "rises: work takes hardly longer than at its best"
		return limit + step
	}
	t.why = "stays: neither more nor fewer promise anything"
	return limit
}

// series holds the values of the last intervals.
type series struct {
	values [relearn]float64
	n      int
}

func (s *series) add(v float64) { s.values[s.n%relearn] = v; s.n++ }
func (s *series) full() bool    { return s.n >= relearn }

func (s *series) mean() float64 {
	sum := 0.
	for _, v := range s.values {
		sum += v
	}
	return sum / relearn
}

func (s *series) deviation() float64 { return math.Sqrt(max(covariance(s, s), 0)) }

// covariance is of two series that are full and were filled together.
func covariance(a, b *series) float64 {
	ma, mb, sum := a.mean(), b.mean(), 0.
	for i := range a.values {
		sum += (a.values[i] - ma) * (b.values[i] - mb)
	}
	return sum / relearn
}

// histogram counts latencies in steps of 5 %, from 10 us up to a minute: a quantile is exact to
// that, at a cost that does not grow.
type histogram struct {
	counts [322]int
	n      int
}

const (
	leastLatency = 10e-6 // s
	latencyStep  = 1.05
)

func (h *histogram) add(d time.Duration) {
	i := int(math.Log(max(d.Seconds(), leastLatency)/leastLatency) / math.Log(latencyStep))
	h.counts[min(i, len(h.counts)-1)]++
	h.n++
}

func (h *histogram) quantile(q float64) float64 {
	rank := int(q * float64(h.n))
	for i, c := range h.counts {
		if rank -= c; rank < 0 {
			return leastLatency * math.Pow(latencyStep, float64(i)+.5)
		}
	}
	return 0
}
