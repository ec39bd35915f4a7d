package auth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// Failures beyond the free ones wait, ever longer up to a bound; other keys don't.
func TestFailuresSlowOnlyTheirKey(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := NewPace[string](PaceConfig{Free: 2, Longest: 4 * time.Second, Now: time.Now})
		fail := func(key string) time.Duration {
			began := time.Now()
			turn, err := p.Take(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			p.Done(key, turn, true)
			return time.Since(began)
		}
		for i, want := range []time.Duration{0, 0, time.Second, 2 * time.Second, 4 * time.Second, 4 * time.Second} {
			if took := fail("a"); took != want {
				t.Errorf("attempt %d waited %v, want %v", i+1, took, want)
			}
		}
		if took := fail("b"); took != 0 {
			t.Errorf("another key waited %v", took)
		}
	})
}

// Attempts beyond Waiting are turned away at once, so that a flood from one key holds few of them.
func TestTooManyDoNotWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		p := NewPace[string](PaceConfig{Free: 1, Longest: time.Second, Waiting: 2, Now: time.Now})
		first, err := p.Take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error)
		for range 2 {
			go func() { _, err := p.Take(ctx, "a"); got <- err }()
		}
		synctest.Wait()
		if _, err := p.Take(t.Context(), "a"); !errors.Is(err, errTooManyWait) {
			t.Errorf("the third that waits: %v", err)
		}
		cancel()
		for range 2 {
			if err := <-got; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		p.Done("a", first, false)
		if len(p.by) != 0 {
			t.Errorf("%d keys are remembered for nothing", len(p.by))
		}
	})
}
