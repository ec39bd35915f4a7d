package fair

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// work does a piece of so long, and returns how much of it was done when ctx ended.
func (t *Turns) work(ctx context.Context, name string, long time.Duration) (done time.Duration, err error) {
	u, err := t.Begin(ctx, name)
	if err != nil {
		return 0, err
	}
	defer u.End()
	for ; done < long; done += time.Millisecond {
		time.Sleep(time.Millisecond)
		if err := u.Next(ctx); err != nil {
			return done, err
		}
	}
	return done, nil
}

// One party has 32 pieces of 200 ms. Another one's work of 10 ms takes hardly longer than without them.
func TestWhoComesWaitsForASlice(t *testing.T) {
	for atOnce := range 3 {
		bubble.Test(t, func(t *testing.T) {
			turns := New(1+atOnce, time.Now)
			var all sync.WaitGroup
			for range 32 {
				all.Go(func() { _, _ = turns.work(t.Context(), "crowd", 200*time.Millisecond) })
			}
			time.Sleep(50 * time.Millisecond)
			for range 20 {
				began := time.Now()
				if _, err := turns.work(t.Context(), "one", 10*time.Millisecond); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 10*time.Millisecond*time.Duration(2-min(atOnce, 1))+slice {
					t.Errorf("with %d at once: 10 ms of work take %v", 1+atOnce, took)
				}
			}
			all.Wait()
			if turns.free != 1+atOnce || len(turns.parties)+len(turns.line) > 0 {
				t.Errorf("at the end %d are free, and %d parties are there", turns.free, len(turns.parties))
			}
		})
	}
}

// A party works once at a time, and all that have work get equal parts, however many pieces they have.
func TestPartsAreEqual(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := New(2, time.Now)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		var mu sync.Mutex
		had := make(map[string]time.Duration)
		var all sync.WaitGroup
		for i, pieces := range []int{1, 5, 100} {
			for range pieces {
				all.Go(func() {
					// Slices that end at the same instant are lost by chance, and chance adds up.
					time.Sleep(time.Duration(i) * 700 * time.Microsecond)
					done, err := turns.work(ctx, fmt.Sprint(i), time.Hour)
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					had[fmt.Sprint(i)] += done
				})
			}
		}
		all.Wait()
		for name, part := range had {
			if part < 1950*time.Millisecond || part > 2050*time.Millisecond {
				t.Errorf("%s has worked for %v of 3 s, want two thirds", name, part)
			}
		}
		if turns.free != 2 || len(turns.parties)+len(turns.line) > 0 {
			t.Errorf("at the end %d are free, and %d parties are there", turns.free, len(turns.parties))
		}
	})
}

// Who gives up leaves its place in line, and nothing else changes.
func TestGivingUp(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		turns := New(1, time.Now)
		first, err := turns.Begin(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		gone, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for _, name := range []string{"a", "b", "b"} {
			all.Go(func() {
				if _, err := turns.Begin(gone, name); !errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		synctest.Wait()
		cancel()
		all.Wait()
		if err := first.Next(t.Context()); err != nil {
			t.Error(err)
		}
		if took := first.Worked(); took != time.Second {
			t.Errorf("it has worked for %v", took)
		}
		first.End()
		first.End()
		if turns.free != 1 || len(turns.parties)+len(turns.line) > 0 {
			t.Errorf("at the end %d are free, and %d parties are there", turns.free, len(turns.parties))
		}
	})
}
