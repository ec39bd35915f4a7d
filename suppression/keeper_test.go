package suppression_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	. "example.org/mta/suppression"
)

// feedingStore feeds a second entry of the same address while the first is being written.
type feedingStore struct {
	*memory
	again func()
}

func (s *feedingStore) Apply(ctx context.Context, changes []Change) error {
	if again := s.again; again != nil {
		s.again = nil
		again()
	}
	return s.memory.Apply(ctx, changes)
}

func TestAnEntryFedAgainDuringItsWriteIsKept(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := &feedingStore{memory: newMemory()}
		l := open(t, s)
		defer shut(t, l)
		bounce, unsubscribe := entry("acme", "a@example.net"), entry("acme", "a@example.net")
		bounce.Expires = time.Now().Add(time.Hour)
		unsubscribe.Source, unsubscribe.Reason = Unsubscribe, "the recipient asked"
		s.again = func() { l.Feed(unsubscribe) }
		l.Feed(bounce)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if e := s.entries[bounce.Key]; e.Source != Unsubscribe || l.Stats().Unwritten != 0 {
			t.Errorf("the store has %+v, %d unwritten", e, l.Stats().Unwritten)
		}
	})
}
