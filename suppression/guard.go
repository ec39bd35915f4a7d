package suppression

import (
	"math"
	"time"
)

// Flood says when a provider calls so many recipients unknown that it must be wrong.
type Flood struct {
	Factor float64 // times its usual share; 0: the guard is off
	Share  float64 // at least, from 0 to 1
	Min    int     // unknown recipients within a day, at least
}

const (
	// evidence is the logarithm of the likelihood ratio that decides: a provider with its usual share
	// passes for a flood less often than once in a million recipients (Lorden, 1971).
	evidence = 13.8
	// longestRise is the age at which evidence for a flood is too old: floods come within hours.
	longestRise = 24 * time.Hour
	// young is the age of entries that are doubted with those since the beginning of a flood: a flood of a part of the
	// recipients may begin unseen.
	young = time.Hour
	// halfLife is that of what the usual share is learned from.
	halfLife = 7 * 24 * time.Hour

	// The usual share of a provider of which nothing is known, and the weight of that, in recipients.
	priorShare, priorWeight = 0.02, 100
	// leastUsual keeps the best lists from making a handful of refusals a flood.
	leastUsual = 0.005
)

// guard watches the share of a provider's recipients that it calls unknown. It is Page's CUSUM test: each
// recipient adds the logarithm of how much likelier its outcome is in a flood than usually, and the sum
// never falls below zero. When the sum has risen by enough, there is a flood, which began when the sum last left
// zero; and when it has fallen by as much, the flood is over.
type guard struct {
	// The usual share, learned from recipients outside of floods, the older the less.
	known, unknown float64
	learned        time.Time

	sum    float64 // evidence for a flood; in one, for its end
	rise   heard   // since sum left zero; in a flood, since it began
	flood  bool
	moved  bool  // in a flood: what was listed since its begin is set aside
	last   heard // of the last flood that is over
	ended  time.Time
	better float64 // what a known recipient takes from sum,
	worse  float64 // and an unknown one adds
}

// heard counts recipients.
type heard struct {
	Began   time.Time `json:"began,omitzero"`
	Known   int64     `json:"known,omitempty"`
	Unknown int64     `json:"unknown,omitempty"`
}

// usual is the share that is usual now.
func (g *guard) usual(now time.Time) float64 {
	w := g.weight(now)
	share := (w*g.unknown + priorShare*priorWeight) / (w*(g.known+g.unknown) + priorWeight)
	return max(share, leastUsual)
}

// weight is what is left of what was learned.
func (g *guard) weight(now time.Time) float64 {
	if g.learned.IsZero() || !now.After(g.learned) {
		return 1
	}
	return math.Exp2(-float64(now.Sub(g.learned)) / float64(halfLife))
}

// learn takes recipients for usual.
func (g *guard) learn(now time.Time, t heard) {
	w := g.weight(now)
	g.known, g.unknown = w*g.known+float64(t.Known), w*g.unknown+float64(t.Unknown)
	if now.After(g.learned) {
		g.learned = now
	}
}

// watch begins anew, with evidence for nothing. Recipients of a rise that came to nothing are usual ones.
func (g *guard) watch(now time.Time, f *Flood) {
	g.learn(now, g.rise)
	g.sum, g.rise, g.flood, g.moved = 0, heard{Began: now}, false, false
	g.weigh(now, f)
}

// weigh sets what a recipient counts.
func (g *guard) weigh(now time.Time, f *Flood) {
	usual := g.usual(now)
	flood := min(max(f.Factor*usual, f.Share), (1+usual)/2)
	if flood <= usual {
		flood = (1 + usual) / 2
	}
	g.worse, g.better = math.Log(flood/usual), math.Log((1-usual)/(1-flood))
}

// saw takes in recipients that the provider knew.
func (g *guard) saw(now time.Time, known int64, f *Flood) {
	switch {
	case g.flood:
		g.rise.Known += known
		if g.sum += float64(known) * g.better; g.sum >= evidence || f.Factor <= 0 {
			g.last, g.ended = g.rise, now
			g.rise = heard{} // nothing of a flood is usual
			g.watch(now, f)
		}
	case g.sum <= float64(known)*g.better:
		g.rise.Known += known
		g.watch(now, f)
	default:
		g.rise.Known += known
		g.sum -= float64(known) * g.better
	}
}

// sawUnknown takes in a recipient that it didn't know, and reports whether a flood begins.
func (g *guard) sawUnknown(now time.Time, f *Flood) (begins bool) {
	if g.flood {
		g.rise.Unknown++
		g.sum = max(0, g.sum-g.worse)
		return false
	}
	if g.sum == 0 || now.Sub(g.rise.Began) > longestRise {
		g.watch(now, f)
	}
	g.rise.Unknown++
	g.sum += g.worse
	if f.Factor <= 0 || g.sum < evidence || g.rise.Unknown < int64(f.Min) {
		return false
	}
	g.flood, g.sum = true, 0
	return true
}

// believe ends a flood that was a mistake: the share is the usual one from now on.
func (g *guard) believe(now time.Time, f *Flood) {
	if g.flood {
		g.last, g.ended = g.rise, now
		g.watch(now, f)
	}
}
