package warmup

// bucket holds tokens, one a recipient. It may go below zero when a message is larger than its
// depth: such a message leaves when the bucket is full and the flow then pauses for it.
type bucket struct {
	tokens, depth float64
}

func (b *bucket) fill(n float64) { b.tokens = min(b.depth, b.tokens+n) }

// allows reports whether n tokens may be taken at once.
func (b *bucket) allows(n int64) bool {
	// A millionth of a token is what sums of binary fractions lack.
	return b.tokens+1e-6 >= min(float64(n), b.depth)
}

// whole gives the tokens that can be handed out.
func (b *bucket) whole() int64 { return int64(max(0, b.tokens+1e-6)) }

// wait is how many seconds it takes until there is a token, at a rate of so many a second.
func (b *bucket) wait(rate float64) float64 {
	if b.tokens+1e-6 >= 1 {
		return 0
	}
	return (1 - b.tokens) / rate
}

// waterFill divides amount by weight so that nobody gets above its limit, and adds to share what
// each gets; who reaches its limit leaves the rest to the others. It returns what nobody could
// take.
func waterFill(amount float64, weights, limits, share []float64) float64 {
	for amount > 1e-9 {
		var open float64
		for i, w := range weights {
			if limits[i]-share[i] > 1e-9 {
				open += w
			}
		}
		if open == 0 {
			break
		}
		level, reached := amount/open, false
		for i, w := range weights { // those who would be over their limit are filled first
			if need := limits[i] - share[i]; need > 1e-9 && need <= level*w {
				share[i] += need
				amount -= need
				reached = true
			}
		}
		if reached {
			continue
		}
		for i, w := range weights {
			if limits[i]-share[i] > 1e-9 {
				share[i] += level * w
			}
		}
		return 0
	}
	return amount
}
