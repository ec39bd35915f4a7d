// Package storetest checks that a warmup.Store keeps what its interface promises. An implementation runs it in its own
// tests.
package storetest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"example.org/mta/warmup"
)

// Subject makes stores for the tests.
type Subject struct {
	// Open opens an empty store.
	Open func(t *testing.T) warmup.Store
	// Reopen opens what a store has after a crash: nothing was closed, only what Write had
	// answered for is certain. nil: the store has no life after the process.
	Reopen func(t *testing.T, s warmup.Store) warmup.Store
	// Pass lets that much time go by on the store's clock.
	Pass func(time.Duration)
}

const ttl = 3 * time.Second

// Run checks that a warmup.Store keeps what its interface promises.
func Run(t *testing.T, s Subject) {
	t.Run("WriteAndRead", s.writeAndRead)
	t.Run("LockKeepsOthersOut", s.lockKeepsOthersOut)
	t.Run("LockEndsByItself", s.lockEndsByItself)
	t.Run("OldFenceIsRefused", s.oldFenceIsRefused)
	t.Run("ALockThatEndedHoldsUntilAnother", s.endedLock)
	t.Run("OldVersionIsRefused", s.oldVersionIsRefused)
	t.Run("RepeatedWriteIsHarmless", s.repeatedWriteIsHarmless)
	t.Run("BatchesAreNotAllOrNone", s.batches)
	t.Run("ValuesAreCopies", s.valuesAreCopies)
	t.Run("ClockGoesForward", s.clockGoesForward)
	t.Run("ManyOwnersLoseNothing", s.manyOwners)
	if s.Reopen != nil {
		t.Run("SurvivesACrash", s.survivesACrash)
	}
}

// claim locks one key.
func claim(t *testing.T, s warmup.Store, owner, name string, have uint64) warmup.Record {
	t.Helper()
	r, _, err := s.Claim(t.Context(), owner, ttl, []warmup.Key{{Name: name, Have: have}}, nil)
	if err != nil || len(r) != 1 || r[0].Name != name {
		t.Fatalf("claiming %s for %s: %+v, %v", name, owner, r, err)
	}
	return r[0]
}

// write writes one record and says whether it was.
func write(t *testing.T, s warmup.Store, r warmup.Record, value string, release bool) bool {
	t.Helper()
	c := warmup.Change{Name: r.Name, Fence: r.Fence, Version: r.Version, Release: release}
	if value != "" {
		c.Value = []byte(value)
	}
	ok, err := s.Write(t.Context(), []warmup.Change{c}, nil)
	if err != nil || len(ok) != 1 {
		t.Fatalf("writing %+v: %v, %v", c, ok, err)
	}
	return ok[0]
}

func (s Subject) writeAndRead(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip1", 0)
	if r.Busy || r.Version != 0 || r.Value != nil || r.Fence == 0 {
		t.Errorf("a new record is %+v", r)
	}
	if !write(t, st, r, "one", true) {
		t.Fatal("the first write was refused")
	}
	again := claim(t, st, "b", "ip1", 0)
	if again.Busy || again.Version != 1 || string(again.Value) != "one" || again.Fence <= r.Fence {
		t.Errorf("after a write and release: %+v, first fence %d", again, r.Fence)
	}
	if !write(t, st, again, "two", true) {
		t.Fatal("the second write was refused")
	}
	known := claim(t, st, "a", "ip1", 2)
	if known.Version != 2 || known.Value != nil {
		t.Errorf("a record that the caller has: %+v, want no value", known)
	}
	write(t, st, known, "", true)
}

func (s Subject) lockKeepsOthersOut(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip", 0)
	if b := claim(t, st, "b", "ip", 0); !b.Busy || b.Fence != 0 {
		t.Errorf("another owner got %+v", b)
	}
	if own := claim(t, st, "a", "ip", 0); own.Busy || own.Fence <= r.Fence {
		t.Errorf("the owner got %+v after fence %d", own, r.Fence)
	} else {
		write(t, st, own, "", true)
	}
	if b := claim(t, st, "b", "ip", 0); b.Busy {
		t.Error("still locked after a release")
	}
}

func (s Subject) lockEndsByItself(t *testing.T) {
	st := s.Open(t)
	claim(t, st, "dead", "ip", 0)
	s.Pass(ttl - time.Second)
	if b := claim(t, st, "b", "ip", 0); !b.Busy {
		t.Error("the lock ended before its time")
	}
	s.Pass(time.Second + time.Millisecond)
	if b := claim(t, st, "b", "ip", 0); b.Busy {
		t.Error("the lock did not end")
	}
}

func (s Subject) oldFenceIsRefused(t *testing.T) {
	st := s.Open(t)
	slow := claim(t, st, "slow", "ip", 0)
	s.Pass(ttl + time.Millisecond)
	fast := claim(t, st, "fast", "ip", 0)
	if write(t, st, slow, "slow", true) {
		t.Error("a write was accepted under a lock that had ended")
	}
	if !write(t, st, fast, "fast", true) {
		t.Error("the holder's write was refused")
	}
	if write(t, st, slow, "slow", true) {
		t.Error("a write was accepted under an old fence after the release")
	}
	if r := claim(t, st, "x", "ip", 0); string(r.Value) != "fast" {
		t.Errorf("the record is %q", r.Value)
	}
}

func (s Subject) endedLock(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "slow", "ip", 0)
	s.Pass(2 * ttl)
	if !write(t, st, r, "late", true) {
		t.Error("a write was refused, and nobody has locked the record since")
	}
	if r := claim(t, st, "x", "ip", 0); string(r.Value) != "late" {
		t.Errorf("the record is %q", r.Value)
	}
}

func (s Subject) oldVersionIsRefused(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip", 0)
	if !write(t, st, r, "one", false) {
		t.Fatal("the first write was refused")
	}
	if write(t, st, r, "other", false) {
		t.Error("a write at the version before was accepted")
	}
	r.Version = 1
	if !write(t, st, r, "two", true) {
		t.Error("the next version was refused under the same lock")
	}
}

func (s Subject) repeatedWriteIsHarmless(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip", 0)
	for range 3 {
		if !write(t, st, r, "one", true) {
			t.Error("a repeated write was refused")
		}
	}
	if again := claim(t, st, "a", "ip", 0); again.Version != 1 || string(again.Value) != "one" {
		t.Errorf("after three times the same: %+v", again)
	}
	if write(t, st, r, "one", true) {
		t.Error("it was accepted although the lock has a new fence")
	}
}

func (s Subject) batches(t *testing.T) {
	st := s.Open(t)
	claim(t, st, "other", "held", 0)
	keys := []warmup.Key{{Name: "a"}, {Name: "held"}, {Name: "b"}}
	rs, _, err := st.Claim(t.Context(), "me", ttl, keys, []warmup.Record{{Name: "kept"}})
	if err != nil || len(rs) != 4 || rs[0].Name != "kept" || rs[1].Busy || !rs[2].Busy || rs[3].Busy {
		t.Fatalf("claim: %+v, %v", rs, err)
	}
	ok, err := st.Write(t.Context(), []warmup.Change{
		{Name: "a", Fence: rs[1].Fence, Value: []byte("A"), Release: true},
		{Name: "held", Fence: 12345, Value: []byte("H")},
		{Name: "b", Fence: rs[3].Fence, Value: []byte("B"), Release: true},
	}, []bool{true})
	if err != nil || !slices.Equal(ok, []bool{true, true, false, true}) {
		t.Fatalf("write: %v, %v", ok, err)
	}
	if r := claim(t, st, "x", "b", 0); string(r.Value) != "B" {
		t.Errorf("b is %q", r.Value)
	}
}

func (s Subject) valuesAreCopies(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip", 0)
	value := []byte("one")
	change := warmup.Change{Name: "ip", Fence: r.Fence, Value: value, Release: true}
	if _, err := st.Write(t.Context(), []warmup.Change{change}, nil); err != nil {
		t.Fatal(err)
	}
	copy(value, "xxx")
	got := claim(t, st, "a", "ip", 0)
	if string(got.Value) != "one" {
		t.Errorf("the store kept the caller's bytes: %q", got.Value)
	}
	copy(got.Value, "yyy")
	if r := claim(t, st, "a", "ip", 0); string(r.Value) != "one" {
		t.Errorf("the store gave its own bytes away: %q", r.Value)
	}
}

func (s Subject) clockGoesForward(t *testing.T) {
	st := s.Open(t)
	var last warmup.Instant
	for range 5 {
		_, now, err := st.Claim(t.Context(), "a", ttl, nil, nil)
		if err != nil || now < last {
			t.Fatalf("the clock is %d after %d, %v", now, last, err)
		}
		last = now
		s.Pass(time.Second)
	}
	_, now, _ := st.Claim(t.Context(), "a", ttl, nil, nil)
	if d := now - last; d < 990 || d > 3000 {
		t.Errorf("a second is %d ms", d)
	}
}

// manyOwners has owners add to one number at once.
func (s Subject) manyOwners(t *testing.T) {
	st := s.Open(t)
	const owners, rounds = 8, 25
	var wg sync.WaitGroup
	for i := range owners {
		wg.Go(func() {
			for done := 0; done < rounds; {
				if increment(t, st, fmt.Sprint("owner", i)) {
					done++
				}
			}
		})
	}
	wg.Wait()
	if r := claim(t, st, "last", "sum", 0); string(r.Value) != fmt.Sprint(owners*rounds) {
		t.Errorf("the sum is %s, want %d", r.Value, owners*rounds)
	}
}

func increment(t *testing.T, st warmup.Store, owner string) bool {
	rs, _, err := st.Claim(context.WithoutCancel(t.Context()), owner, ttl, []warmup.Key{{Name: "sum"}}, nil)
	if err != nil {
		t.Errorf("claim: %v", err)
		return true
	}
	if rs[0].Busy {
		return false
	}
	n := 0
	fmt.Sscan(string(rs[0].Value), &n)
	c := warmup.Change{Name: "sum", Fence: rs[0].Fence, Version: rs[0].Version, Value: []byte(fmt.Sprint(n + 1)),
		Release: true}
	ok, err := st.Write(context.WithoutCancel(t.Context()), []warmup.Change{c}, nil)
	return err == nil && ok[0]
}

func (s Subject) survivesACrash(t *testing.T) {
	st := s.Open(t)
	r := claim(t, st, "a", "ip", 0)
	if !write(t, st, r, "durable", true) {
		t.Fatal("write refused")
	}
	held := claim(t, st, "a", "ip", 1) // a lock under which nothing was written
	_, before, _ := st.Claim(t.Context(), "a", ttl, nil, nil)
	after := s.Reopen(t, st)
	s.Pass(ttl + time.Second)
	got := claim(t, after, "b", "ip", 0)
	if string(got.Value) != "durable" || got.Version != 1 {
		t.Errorf("after a crash: %+v", got)
	}
	if got.Fence <= held.Fence {
		t.Errorf("fence %d after a crash is not above %d before", got.Fence, held.Fence)
	}
	if write(t, after, held, "ghost", true) {
		t.Error("a write under a fence from before the crash was accepted")
	}
	if _, now, err := after.Claim(t.Context(), "b", ttl, nil, nil); err != nil || now < before {
		t.Errorf("the clock went back from %d to %d, %v", before, now, err)
	}
}
