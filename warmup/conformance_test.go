package warmup_test

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/warmup"
	"example.org/mta/warmup/storetest"
)

func TestMemoryConformance(t *testing.T) {
	var now atomic.Int64
	storetest.Run(t, storetest.Subject{
		Open: func(*testing.T) warmup.Store {
			return warmup.NewMemory(func() warmup.Instant { return warmup.Instant(now.Load()) })
		},
		Pass: func(d time.Duration) { now.Add(d.Milliseconds()) },
	})
}

func TestFileConformance(t *testing.T) {
	var passed atomic.Int64
	open := func(t *testing.T, path string) *warmup.File {
		s, err := warmup.OpenFile(path, func() time.Time { return time.Unix(1_700_000_000, passed.Load()) })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	var path string
	storetest.Run(t, storetest.Subject{
		Open: func(t *testing.T) warmup.Store {
			path = filepath.Join(t.TempDir(), "warmup.db")
			return open(t, path)
		},
		// What a killed process leaves is the file as it is: a copy, taken without closing.
		Reopen: func(t *testing.T, _ warmup.Store) warmup.Store {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			after := filepath.Join(t.TempDir(), "after.db")
			if err := os.WriteFile(after, b, 0o600); err != nil {
				t.Fatal(err)
			}
			return open(t, after)
		},
		Pass: func(d time.Duration) { passed.Add(int64(d)) },
	})
}
