package warmup

import "time"

// Patience is how long mail waits for tokens of warming IPs before it takes another.
type Patience struct {
	Hold  bool          // it waits for as long as it must
	Total time.Duration // otherwise so long at most
	Left  time.Duration // of that; 0 or less: it is over
	Turn  bool          // the mail waits already, and it is its turn
}

// Line is what warming IPs can take of a provider's mail, and what waits for them, without the mail in question.
type Line interface {
	// Left is what they can take within a time and today: of the provider's mail, and of all.
	Left(within time.Duration) (of, all int64)
	// Waiting is what waits: of the provider's mail, and of all.
	Waiting() (of, all int64)
}

// Fit is how many of n recipients the IPs can take within a time and today, after all that waits.
func Fit(l Line, n int64, within time.Duration) int64 {
	if within <= 0 || n <= 0 {
		return 0
	}
	of, all := l.Left(within)
	waiting, waits := l.Waiting()
	return max(0, min(n, of-waiting, all-waits))
}

// Whole reports whether all recipients of a message must get tokens at once, if any do.
func (p Patience) Whole() bool { return !p.Hold && (p.Left <= 0 || !p.Turn) }

// Join is how many of n recipients line up behind the mail that waits, and how much that is: see Ask.Behind.
func (p Patience) Join(l Line, n int64) (join, behind int64) {
	if p.Turn || !p.Hold && p.Left <= 0 {
		return 0, 0
	}
	if behind, _ = l.Waiting(); behind == 0 {
		return 0, 0
	}
	if !p.Hold {
		n = Fit(l, n, p.Left)
	}
	return n, behind
}

// Stay is how many of n recipients without tokens wait on; the others take another IP. While the warm-up's store is
// being asked for tokens, all do.
func (p Patience) Stay(l Line, n int64, asking bool) int64 {
	switch {
	case p.Hold || asking:
		return n
	case p.Turn && p.Left > 0: // what was let in stays so to the end, unless the IPs take less than they did
		return Fit(l, n, p.Total)
	}
	return Fit(l, n, p.Left)
}
