package warmup_test

import (
	"context"
	"testing"
	"testing/synctest"

	"example.org/mta/internal/bubble"
	"example.org/mta/warmup"
)

// atWrite is a store that calls a function in its next Write.
type atWrite struct {
	*warmup.Memory
	then func()
}

func (s *atWrite) Write(ctx context.Context, changes []warmup.Change, dst []bool) ([]bool, error) {
	if f := s.then; f != nil {
		s.then = nil
		f()
	}
	return s.Memory.Write(ctx, changes, dst)
}

// TestAnActionDuringAWrite: an action that comes while another one is being written is the next round's, without
// waiting for the address's period.
func TestAnActionDuringAWrite(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, 100, 1000)
		store := &atWrite{Memory: w.store}
		c := w.node("a", func(cfg *warmup.Config) { cfg.Store = store })
		ctx, stop := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer stop()
		first, second := make(chan error, 1), make(chan error, 1)
		do := func(done chan error, a warmup.Action) {
			go func() { done <- c.Do(ctx, "ip", a) }()
			synctest.Wait()
		}
		do(first, warmup.Pause())
		store.then = func() { do(second, warmup.Resume()) }
		c.Step(ctx)
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if !c.Asking() {
			t.Fatal("the second action waits for the address's period")
		}
		c.Step(ctx)
		if err := <-second; err != nil {
			t.Fatal(err)
		}
	})
}
