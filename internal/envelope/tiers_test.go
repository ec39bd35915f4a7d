package envelope

import "testing"

// turns counts who has the next n turns while all of waiting have something.
func turns(t *TierTurns, waiting TierSet, n int) (count [TierCount]int) {
	for range n {
		tier := t.Next(waiting)
		t.Took(tier, waiting)
		count[tier]++
	}
	return count
}

func TestTheFirstTierGoesFirst(t *testing.T) {
	var x TierTurns
	waiting := TierSet(0).With(1).With(4)
	for i := range TierShare - 1 {
		if tier := x.Next(waiting); tier != 1 {
			t.Fatalf("turn %d is tier %d's, want tier 1's", i, tier)
		}
		x.Took(1, waiting)
	}
	if tier := x.Next(waiting); tier != 4 {
		t.Errorf("after %d turns it is tier %d's, want the share of tier 4", TierShare-1, tier)
	}
	if tier := x.Next(waiting.Without(1)); tier != 4 {
		t.Errorf("alone tier 4 waits for tier %d", tier)
	}
}

func TestNoTierStarves(t *testing.T) {
	for waiting := TierSet(1); waiting < 1<<TierCount; waiting++ {
		var x TierTurns
		const rounds = 100
		count := turns(&x, waiting, rounds*TierShare)
		for tier := range uint8(TierCount) {
			switch has := waiting&(1<<tier) != 0; {
			case !has && count[tier] > 0:
				t.Fatalf("%06b: tier %d had %d turns with nothing waiting", waiting, tier, count[tier])
			case has && count[tier] < rounds-1:
				t.Fatalf("%06b: tier %d had %d of %d turns, want %d", waiting, tier, count[tier], rounds*TierShare, rounds)
			case tier == waiting.First() && count[tier] < rounds*(TierShare-TierCount):
				t.Fatalf("%06b: the first tier had %d of %d turns", waiting, count[tier], rounds*TierShare)
			}
		}
	}
}

// A tier that had nothing for a while has saved up no turns.
func TestNothingIsSavedUp(t *testing.T) {
	var x TierTurns
	both := TierSet(0).With(1).With(4)
	turns(&x, both, TierShare-2)
	turns(&x, both.Without(4), 100)
	if tier := x.Next(both); tier != 1 {
		t.Errorf("tier %d goes first, want tier 1", tier)
	}
}

func TestOf(t *testing.T) {
	for tier, want := range map[uint8]uint8{0: 0, 5: 5, 6: 5, 255: 5} {
		if got := TierOf(tier); got != want {
			t.Errorf("TierOf(%d) = %d, want %d", tier, got, want)
		}
	}
}
