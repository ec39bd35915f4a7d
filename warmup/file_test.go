package warmup

import (
	"path/filepath"
	"testing"
	"time"
)

func openFile(t *testing.T, path string, now func() time.Time) *File {
	t.Helper()
	s, err := OpenFile(path, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
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
