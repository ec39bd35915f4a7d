package mta

import (
	"time"

	"mta/delivery"
	"mta/internal/drr"
	"mta/internal/tiers"
)

// heldAt is what mail waits for: tokens that a pool's warming sources have for a provider.
type heldAt struct{ pool, provider string }

// heldLines is the order in which mail leaves that waits for one of these: tiers take turns, and in a
// tier tenants by their weight, each of whom has a line in the queue. Mail that had a source at the
// attempt before waits in a line from which only that source takes. Whoever owns it guards it.
type heldLines struct {
	heldAt
	key    string // of the queue
	turns  tiers.Turns
	known  map[delivery.Flow]*heldLine
	rounds map[string]*heldRounds // by source; "" is any of the pool
}

// heldRounds is the lines of each tier.
type heldRounds [tiers.Count]drr.Ring[*heldLine]

// heldLine is a line of the queue.
type heldLine struct {
	drr.Member[*heldLine]
	delivery.Flow // Site is the key, Source "" or the only one that may take from it
	name          string
	until         time.Time // its first message waits so long at least; nothing is to be decided before
}

func newHeldLines(at heldAt) *heldLines {
	return &heldLines{heldAt: at, key: heldKey(at.pool, at.provider), known: make(map[delivery.Flow]*heldLine), rounds: make(map[string]*heldRounds)}
}

// line gives the line of a flow, adding it if need be.
func (h *heldLines) line(f delivery.Flow, weight int) *heldLine {
	f.Site = h.key
	l := h.known[f]
	if l == nil {
		l = &heldLine{Flow: f, name: lineOf(f)}
		l.Value = l
		h.known[f] = l
		if h.rounds[f.Source] == nil {
			h.rounds[f.Source] = new(heldRounds)
		}
		h.rounds[f.Source][f.Tier].Join(&l.Member)
	}
	l.Weight = weight
	return l
}

// next gives the line whose turn it is of those that a source may take from, nil when none has mail.
// parked is how much a line has; lines without any are forgotten.
func (h *heldLines) next(source string, parked func(line string) int) *heldLine {
	var waiting tiers.Set
	var first [tiers.Count]*heldLine
	for _, r := range [...]*heldRounds{h.rounds[""], h.rounds[source]} { // its own come before those of all
		for tier := range first {
			if r == nil {
				break
			}
			if l := h.first(&r[tier], parked); l != nil {
				first[tier], waiting = l, waiting.With(uint8(tier))
			}
		}
	}
	if waiting == 0 {
		return nil
	}
	tier := h.turns.Next(waiting)
	h.turns.Took(tier, waiting)
	return first[tier]
}

func anyLine(*heldLine) bool { return true }

// first gives the line of a round whose turn it is.
func (h *heldLines) first(r *drr.Ring[*heldLine], parked func(line string) int) *heldLine {
	for m := r.Pick(anyLine); m != nil; m = r.Pick(anyLine) {
		if parked(m.Value.name) > 0 {
			return m.Value
		}
		r.Leave(m)
		delete(h.known, m.Value.Flow)
	}
	return nil
}

// took notes that mail of a line has left.
func (h *heldLines) took(l *heldLine) {
	if h.known[l.Flow] == l {
		h.rounds[l.Source][l.Tier].Took(&l.Member)
	}
}
