package fair

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// One that wants far more slots than there are waits for its own, and others that come find some at once; a party
// that has given up waits no longer.
func TestSlots(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := NewSlots(100)
		var all sync.WaitGroup
		work := func(who string, patience time.Duration) (waited time.Duration, err error) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			give, err := s.Take(ctx, Party{Tenant: who})
			waited = time.Since(began)
			if err == nil {
				time.Sleep(time.Second)
				give()
			}
			return waited, err
		}
		gaveUp := 0
		var mu sync.Mutex
		for range 720 {
			all.Go(func() {
				if _, err := work("crowd", 6500*time.Millisecond); err != nil {
					mu.Lock()
					gaveUp++
					mu.Unlock()
				}
			})
		}
		synctest.Wait()
		if n := s.pool.Of(Party{Tenant: "crowd"}); n != 75 {
			t.Errorf("the crowd has %d", n)
		}
		for range 5 {
			if waited, err := work("one", time.Hour); waited != 0 || err != nil {
				t.Errorf("another one waits for %v, %v", waited, err)
			}
		}
		all.Wait()
		if gaveUp < 720-7*75 || gaveUp > 720-6*75 {
			t.Errorf("%d gave up", gaveUp)
		}
		if s.pool.Used() != 0 || len(s.lines) != 0 || !s.ring.Empty() {
			t.Errorf("at the end %d are taken, %d parties wait", s.pool.Used(), len(s.lines))
		}
	})
}

// Those who wait get slots in turns, however many of each there are.
func TestSlotsTakeTurns(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := NewSlots(1)
		give, _ := s.Take(t.Context(), Party{Tenant: "first"})
		var all sync.WaitGroup
		order := ""
		for _, who := range "aaaabc" {
			all.Go(func() {
				give, err := s.Take(t.Context(), Party{Tenant: string(who)})
				if err != nil {
					t.Error(err)
					return
				}
				order += string(who)
				give()
			})
			synctest.Wait()
		}
		give()
		all.Wait()
		if order != "abcaaa" {
			t.Errorf("order %s", order)
		}
	})
}
