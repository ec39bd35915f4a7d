package mta

import (
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/drr"
	"example.org/mta/internal/tiers"
)

// heldAt is what mail waits for: tokens that a pool's warming sources have for a provider.
type heldAt struct{ pool, provider string }

// heldLines is the order in which mail leaves that waits for one of these: first what a source prefers;
// then tiers take turns, and in a tier tenants by their weight, each of whom has a line in the queue. Mail
// that had a source at the attempt before waits in a line from which only that source takes. Whoever owns
// it guards it.
type heldLines struct {
	heldAt
	key    string // of the queue
	turns  map[bool]*tiers.Turns
	known  map[heldFlow]*heldLine
	rounds map[heldRound]*[tiers.Count]drr.Ring[*heldLine]
}

// heldFlow is mail that waits in one line: its Site is the key, Source "" or the only one that may take it.
type heldFlow struct {
	delivery.Flow
	first bool // a source prefers it
}

// heldRound is the lines from which a source may take, or all of the pool's: "".
type heldRound struct {
	source string
	first  bool
}

func (f *heldFlow) round() heldRound { return heldRound{f.Source, f.first} }

// heldLine is a line of the queue.
type heldLine struct {
	drr.Member[*heldLine]
	heldFlow
	name  string
	until time.Time // its first message waits so long at least; nothing is to be decided before
}

func newHeldLines(at heldAt) *heldLines {
	return &heldLines{heldAt: at, key: heldKey(at.pool, at.provider), turns: map[bool]*tiers.Turns{true: {}, false: {}},
		known: make(map[heldFlow]*heldLine), rounds: make(map[heldRound]*[tiers.Count]drr.Ring[*heldLine])}
}

// line gives the line of a flow, adding it if need be.
func (h *heldLines) line(f heldFlow, weight int) *heldLine {
	f.Site = h.key
	l := h.known[f]
	if l == nil {
		l = &heldLine{heldFlow: f, name: lineOf(f.Flow)}
		if f.first {
			l.name += flowMark
		}
		l.Value = l
		h.known[f] = l
		if h.rounds[f.round()] == nil {
			h.rounds[f.round()] = new([tiers.Count]drr.Ring[*heldLine])
		}
		h.rounds[f.round()][f.Tier].Join(&l.Member)
	}
	l.Weight = weight
	return l
}

// next gives the line whose turn it is of those that a source may take from, nil when none has mail.
// parked is how much a line has; lines without any are forgotten.
func (h *heldLines) next(source string, parked func(line string) int) *heldLine {
	for _, preferred := range [...]bool{true, false} {
		var waiting tiers.Set
		var first [tiers.Count]*heldLine
		for _, r := range [...]heldRound{{"", preferred}, {source, preferred}} { // its own come before those of all
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

func anyLine(*heldLine) bool { return true }

// first gives the line of a round whose turn it is.
func (h *heldLines) first(r *drr.Ring[*heldLine], parked func(line string) int) *heldLine {
	for m := r.Pick(anyLine); m != nil; m = r.Pick(anyLine) {
		if parked(m.Value.name) > 0 {
			return m.Value
		}
		r.Leave(m)
		delete(h.known, m.Value.heldFlow)
	}
	return nil
}

// took notes that mail of a line has left.
func (h *heldLines) took(l *heldLine) {
	if h.known[l.heldFlow] == l {
		h.rounds[l.round()][l.Tier].Took(&l.Member)
	}
}
