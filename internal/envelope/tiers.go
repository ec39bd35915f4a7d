package envelope

// Turns between mail of different tiers: the first tier that has something goes first, and each of the others has a
// share, so that none starves. The owner of a value guards it.

import "math/bits"

// TierCount is how many tiers there are: 0 matters most, TierCount-1 least.
const TierCount = 6

// TierShare bounds the wait of a tier: while it waits, it gets about one turn in TierShare.
const TierShare = 20

// TierOf returns tier, or the last one for a number that no tier has.
func TierOf(tier uint8) uint8 { return min(tier, TierCount-1) }

// TierSet is some of the tiers.
type TierSet uint8

// With gives s with a tier.
func (s TierSet) With(tier uint8) TierSet { return s | 1<<tier }

// Without gives s without a tier.
func (s TierSet) Without(tier uint8) TierSet { return s &^ (1 << tier) }

// First returns the tier of s that matters most; s must not be empty.
func (s TierSet) First() uint8 { return uint8(bits.TrailingZeros8(uint8(s))) }

// TierTurns keeps track of whose turn it is. The zero value is ready to use.
type TierTurns struct {
	passed [TierCount]uint8 // turns that others had while the tier waited
}

// Next returns the tier whose turn it is among those of waiting, which must not be empty: the first, unless
// others have waited for their share; then the one of these that has waited longest. It changes nothing.
func (t *TierTurns) Next(waiting TierSet) uint8 {
	next := waiting.First()
	longest := uint8(TierShare - 2)
	for tier := next + 1; tier < TierCount; tier++ {
		if waiting&(1<<tier) != 0 && t.passed[tier] > longest {
			next, longest = tier, t.passed[tier]
		}
	}
	return next
}

// Took notes that tier had a turn while the tiers of waiting had something.
func (t *TierTurns) Took(tier uint8, waiting TierSet) {
	for i := range t.passed {
		switch {
		case uint8(i) == tier || waiting&(1<<i) == 0:
			t.passed[i] = 0
		case t.passed[i] < 255:
			t.passed[i]++
		}
	}
}
