package warmup

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// virtual is a clock that only Pass moves.
type virtual struct{ ns atomic.Int64 }

func (v *virtual) now() time.Time { return time.Unix(1_700_000_000, v.ns.Load()) }

func openFile(t *testing.T, path string, now func() time.Time) *File {
	t.Helper()
	s, err := OpenFile(path, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFileConformance(t *testing.T) {
	var clock virtual
	checkStore(t, storeSubject{
		Open: func(t *testing.T) Store { return openFile(t, filepath.Join(t.TempDir(), "warmup.db"), clock.now) },
		// What a killed process leaves is the file as it is: a copy, taken without closing.
		Reopen: func(t *testing.T, s Store) Store {
			b, err := os.ReadFile(s.(*File).db.Path())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "after.db")
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return openFile(t, path, clock.now)
		},
		Pass: func(d time.Duration) { clock.ns.Add(int64(d)) },
	})
}

// A machine's clock that was set back must not reopen a window that was used.
func TestW11_ClockThatWasSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmup.db")
	wall := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	s := openFile(t, path, func() time.Time { return wall })
	rs, before, err := s.Claim(t.Context(), "a", time.Second, []Key{{Name: "ip"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Write(t.Context(), []Change{{Name: "ip", Fence: rs[0].Fence, Value: []byte("x")}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openFile(t, path, func() time.Time { return wall.Add(-48 * time.Hour) })
	if _, now, err := s.Claim(t.Context(), "a", time.Second, nil, nil); err != nil || now < before {
		t.Errorf("the store's clock is %d after %d, %v", now, before, err)
	}
}

func TestOpenFileSaysWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "warmup.db")
	openFile(t, path, nil)
	if _, err := OpenFile(path, nil); err == nil {
		t.Error("the file was opened twice")
	}
}
