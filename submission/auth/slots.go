package auth

import (
	"context"
	"runtime"
)

// slots bound how many passwords are hashed at once. Known users have theirs apart, so that a flood of
// guesses from everywhere holds them up by little more than the processor time that it takes.
type slots struct{ known, strange chan struct{} }

func newSlots() slots {
	n := max(1, runtime.GOMAXPROCS(0)/2)
	return slots{known: make(chan struct{}, n), strange: make(chan struct{}, n)}
}

// take waits for a slot. The caller gives it back.
func (s slots) take(ctx context.Context, known bool) (giveBack func(), err error) {
	of := s.strange
	if known {
		of = s.known
	}
	select {
	case of <- struct{}{}:
		return func() { <-of }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
