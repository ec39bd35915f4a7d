package dispatch

import (
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/parking"
)

// tokens is the key of mail that waits for tokens that a pool's warming sources have for a provider.
func tokens(pool, provider string) parking.Key {
	return parking.Key{Kind: parking.Tokens, Name: pool, Provider: provider}
}

// throttledLines is the order in which mail leaves that waits for the same tokens: first what a source prefers;
// then tiers take turns, and in a tier tenants by their weight, each of whom has a line in the queue. Mail
// that had a source at the attempt before waits in a line from which only that source takes. Whoever owns
// it guards it.
type throttledLines struct {
	parking.Key
	turns  map[bool]*envelope.TierTurns
	known  map[parking.Line]*throttledLine
	rounds map[lineRound]*[envelope.TierCount]fair.Ring[*throttledLine]
}

// lineRound is the lines from which a source may take, or all of the pool's: "".
type lineRound struct {
	source string
	first  bool
}

func roundOf(l parking.Line) lineRound { return lineRound{l.Source, l.Preferred} }

// throttledLine is a line of the queue.
type throttledLine struct {
	fair.Member[*throttledLine]
	line  parking.Line
	until time.Time // its first message waits so long at least; nothing is to be decided before
}

func newThrottledLines(k parking.Key) *throttledLines {
	return &throttledLines{Key: k, turns: map[bool]*envelope.TierTurns{true: {}, false: {}},
		known:  make(map[parking.Line]*throttledLine),
		rounds: make(map[lineRound]*[envelope.TierCount]fair.Ring[*throttledLine])}
}

// line gives a line with what is known of it, adding that if need be.
func (h *throttledLines) line(at parking.Line, weight int) *throttledLine {
	l := h.known[at]
	if l == nil {
		l = &throttledLine{line: at.Clone()}
		l.Value = l
		h.known[l.line] = l
		round := roundOf(l.line)
		if h.rounds[round] == nil {
			h.rounds[round] = new([envelope.TierCount]fair.Ring[*throttledLine])
		}
		h.rounds[round][at.Tier].Join(&l.Member)
	}
	l.Weight = weight
	return l
}

// next gives the line whose turn it is of those that a source may take from, nil when none has mail.
// parked is how much a line has; lines without any are forgotten.
func (h *throttledLines) next(source string, parked func(parking.Line) int) *throttledLine {
	for _, preferred := range [...]bool{true, false} {
		var waiting envelope.TierSet
		var first [envelope.TierCount]*throttledLine
		for _, r := range [...]lineRound{{"", preferred}, {source, preferred}} { // its own come before those of all
			lines := h.rounds[r]
			for tier := range first {
				if lines == nil {
					break
				}
				if l := h.first(&lines[tier], parked); l != nil {
					first[tier], waiting = l, waiting.With(uint8(tier))
				}
			}
		}
		if waiting != 0 {
			turns := h.turns[preferred]
			tier := turns.Next(waiting)
			turns.Took(tier, waiting)
			return first[tier]
		}
	}
	return nil
}

func anyLine(*throttledLine) bool { return true }

// first gives the line of a round whose turn it is.
func (h *throttledLines) first(r *fair.Ring[*throttledLine], parked func(parking.Line) int) *throttledLine {
	for m := r.Pick(anyLine); m != nil; m = r.Pick(anyLine) {
		if parked(m.Value.line) > 0 {
			return m.Value
		}
		r.Leave(m)
		delete(h.known, m.Value.line)
	}
	return nil
}

// took notes that mail of a line has left.
func (h *throttledLines) took(l *throttledLine) {
	if h.known[l.line] == l {
		h.rounds[roundOf(l.line)][l.line.Tier].Took(&l.Member)
	}
}
