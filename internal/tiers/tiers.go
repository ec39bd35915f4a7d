// Package tiers decides between mail of different tiers: the first tier that has something goes first,
// and each of the others has a share, so that none starves. Whoever owns a value guards it. It starts
// no goroutines.
package tiers

import "math/bits"

// Count is how many tiers there are: 0 matters most, Count-1 least.
const Count = 6

// Share bounds the wait of a tier: while it waits, it gets about one turn in Share.
const Share = 20

// Of returns tier, or the last one when there is none of that number.
func Of(tier uint8) uint8 { return min(tier, Count-1) }

// Set is some of the tiers.
type Set uint8

// With gives s with a tier.
func (s Set) With(tier uint8) Set { return s | 1<<tier }

// Without gives s without a tier.
func (s Set) Without(tier uint8) Set { return s &^ (1 << tier) }

// First returns the tier of s that matters most; s must not be empty.
func (s Set) First() uint8 { return uint8(bits.TrailingZeros8(uint8(s))) }

// Turns keeps track of whose turn it is. The zero value is ready to use.
type Turns struct {
	passed [Count]uint8 // turns that others had while the tier waited
}

// Next returns the tier whose turn it is among those of waiting, which must not be empty: the first, unless
// others have waited for their share; then the one of these that has waited longest. It changes nothing.
func (t *Turns) Next(waiting Set) uint8 {
	next := waiting.First()
	longest := uint8(Share - 2)
	for tier := next + 1; tier < Count; tier++ {
		if waiting&(1<<tier) != 0 && t.passed[tier] > longest {
			next, longest = tier, t.passed[tier]
		}
	}
	return next
}

// Took notes that tier had a turn while the tiers of waiting had something.
func (t *Turns) Took(tier uint8, waiting Set) {
	for i := range t.passed {
		switch {
		case uint8(i) == tier || waiting&(1<<i) == 0:
			t.passed[i] = 0
		case t.passed[i] < 255:
			t.passed[i]++
		}
	}
}
