package queue

import (
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// acceptTier commits a message of a tier.
func acceptTier(t testing.TB, q *Queue, tier uint8) envelope.ID {
	m := message(1, "box.example")
	m.Tier = tier
	return accept(t, q, m, "x").ID
}

// What is due is handed out by tier, the later ones with a share, and a restart changes nothing.
func TestTiersInOrder(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		defer func() { shut(t, q) }()
		for range 200 {
			acceptTier(t, q, 4)
		}
		for round, restart := range []bool{false, true, true} { // the second has the indexes of all segments
			for range 40 {
				acceptTier(t, q, 1)
			}
			if restart {
				shut(t, q)
				q = open(t, small(t, fs))
			}
			count := make(map[uint8]int)
			for range 40 {
				l := next(t, q)
				count[l.Message.Tier]++
				if err := q.Settle(l.Message.ID, []int{0}, Delivered); err != nil {
					t.Fatal(err)
				}
			}
			if count[4] < 1 || count[4] > 40/envelope.TierShare || count[1]+count[4] != 40 {
				t.Errorf("round %d: %v were handed out, want tier 1 and one in %d of tier 4", round, count, envelope.TierShare)
			}
			for range 40 - count[1] {
				for l := next(t, q); ; l = next(t, q) {
					if err := q.Settle(l.Message.ID, []int{0}, Delivered); err != nil {
						t.Fatal(err)
					}
					if l.Message.Tier == 1 {
						break
					}
				}
			}
		}
	})
}

// What is due again goes by tier, too.
func TestTiersOfTheBacklog(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		for range 10 {
			q.Defer(acceptTier(t, q, 4), []int{0}, time.Now(), Attempt{}, parking.Key{})
			l := next(t, q)
			q.Defer(l.Message.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, parking.Key{})
		}
		id := acceptTier(t, q, 1)
		next(t, q)
		q.Defer(id, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, parking.Key{})
		time.Sleep(2 * time.Minute)
		if l := next(t, q); l.Message.ID != id {
			t.Errorf("tier %d comes first", l.Message.Tier)
		}
	})
}

// An index that was written without tiers is that of normal mail.
func TestIndexWithoutTiers(t *testing.T) {
	var b [store.ItemSize]byte
	for tier := range uint8(envelope.TierCount) {
		it := store.Item{ID: 7, Kind: store.ItemAccepted, Tier: tier}
		it.Put(b[:])
		if it.Get(b[:]); it.Tier != tier {
			t.Errorf("tier %d is read as %d", tier, it.Tier)
		}
	}
	var it store.Item
	b[15] = 0 // as versions before wrote
	if it.Get(b[:]); it.Tier != store.UnknownTier {
		t.Errorf("no tier is read as %d", it.Tier)
	}
}

// Of a tier, new mail and mail that is due again take turns: neither keeps the other waiting.
func TestFreshAndDeferredTakeTurns(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		const each = 20
		for range each {
			acceptTier(t, q, 1)
		}
		for range each {
			if err := q.Defer(next(t, q).Message.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Minute)
		for range each {
			acceptTier(t, q, 1)
		}
		fresh := 0
		for range each {
			l := next(t, q)
			if l.Recipients[0].Attempts == 0 {
				fresh++
			}
			if err := q.Settle(l.Message.ID, []int{0}, Delivered); err != nil {
				t.Fatal(err)
			}
		}
		if fresh != each/2 {
			t.Errorf("%d of the first %d were new, want half", fresh, each)
		}
	})
}
