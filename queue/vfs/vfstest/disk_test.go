package vfstest

import (
	"bytes"
	"errors"
	"math/rand"
	"testing"
)

// TestWhatSurvives: what was synced is there after a cut, and what was not comes in every form.
func TestWhatSurvives(t *testing.T) {
	whole, none, part, entry := 0, 0, 0, 0
	const rounds = 400
	for seed := range int64(rounds) {
		f := NewDisk(rand.New(rand.NewSource(seed)))
		f.MkdirAll("/d")
		h, err := f.Create("/d/synced")
		if err != nil {
			t.Fatal(err)
		}
		first := bytes.Repeat([]byte("a"), 2000)
		h.WriteAt(first, 0)
		h.Sync()
		f.SyncDir("/d")
		second := bytes.Repeat([]byte("b"), 3000)
		h.WriteAt(second, 2000)
		f.Create("/d/unsynced")
		after := f.Reboot()
		if _, err := h.ReadAt(make([]byte, 1), 0); !errors.Is(err, ErrCut) {
			t.Fatalf("reading after the cut: %v", err)
		}
		r, err := after.Open("/d/synced")
		if err != nil {
			t.Fatal(err)
		}
		size, _ := r.Size()
		got := make([]byte, size)
		r.ReadAt(got, 0)
		if !bytes.HasPrefix(got, first) {
			t.Fatal("what was synced is lost")
		}
		switch rest := got[2000:]; {
		case bytes.Equal(rest, second):
			whole++
		case len(rest) == 0:
			none++
		default:
			part++
		}
		if _, err := after.Open("/d/unsynced"); err == nil {
			entry++
		}
	}
	if whole < rounds/10 || none < rounds/10 || part < rounds/10 || entry < rounds/4 || entry > rounds*3/4 {
		t.Fatalf("of %d unsynced writes %d survived, %d did not, %d in part; of the names %d", rounds, whole, none, part, entry)
	}
}

// TestCutAt: nothing works from the chosen operation on.
func TestCutAt(t *testing.T) {
	f := NewDisk(rand.New(rand.NewSource(1)))
	f.MkdirAll("/d")
	f.CutAt(3)
	h, err := f.Create("/d/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.WriteAt([]byte("x"), 0); err != nil || f.IsCut() {
		t.Fatal(err)
	}
	if err := h.Sync(); !errors.Is(err, ErrCut) || !f.IsCut() {
		t.Fatalf("sync: %v", err)
	}
	if _, err := f.Create("/d/b"); !errors.Is(err, ErrCut) {
		t.Fatalf("create: %v", err)
	}
	if _, err := f.List("/d"); !errors.Is(err, ErrCut) {
		t.Fatalf("list: %v", err)
	}
}
