package warmup_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

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

// TestAnActionThatNobodyWaitsFor: what failed while the store was away is never carried out, so that it can be repeated.
func TestAnActionThatNobodyWaitsFor(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		w := newWorld(t, 1000, 64_000)
		store := &atWrite{Memory: w.store}
		c := w.node("a", func(cfg *warmup.Config) { cfg.Store = store })
		send(c, "google", 8)
		repeat := func(step func(context.Context)) error {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- c.Do(ctx, "ip", warmup.Complained("google", w.now(), 1)) }()
			synctest.Wait()
			step(ctx)
			stop()
			synctest.Wait()
			w.pass(time.Minute)
			return <-done
		}
		later := func() int64 {
			w.store.SetDown(false)
			c.Step(t.Context())
			w.pass(2 * time.Second)
			c.Step(t.Context())
			s := status(t, c)
			return s.Of("google").Complaints
		}
		w.store.SetDown(true)
		for range 60 {
			err := repeat(func(ctx context.Context) { c.Step(ctx) })
			if !errors.Is(err, context.Canceled) || errors.Is(err, warmup.ErrUnknownOutcome) {
				t.Fatal(err)
			}
		}
		if n := later(); n != 0 {
			t.Errorf("a complaint that failed counts %d times", n)
		}

		// One that is being written may count, once.
		w.store.Unsure(func() (apply, answer bool) { return true, false })
		w.pass(time.Minute)
		err := repeat(func(ctx context.Context) { c.Step(ctx) })
		if !errors.Is(err, context.Canceled) || !errors.Is(err, warmup.ErrUnknownOutcome) {
			t.Error(err)
		}
		w.store.Unsure(nil)
		if n := later(); n != 1 {
			t.Errorf("a complaint that may have been written counts %d times", n)
		}

		// One whose write failed is not tried again.
		store.then = func() { w.store.SetDown(true) }
		w.pass(time.Minute)
		if err := repeat(func(ctx context.Context) { c.Step(ctx) }); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if n := later(); n != 1 {
			t.Errorf("after a write that failed %d complaints count", n)
		}
	})
}
