package sidestore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// sample makes a file with branches, overflow pages, inline and nested buckets and free pages.
func sample(t testing.TB, path string, o *bolt.Options) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, o)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		err := db.Update(func(tx *bolt.Tx) error {
			b, _ := tx.CreateBucketIfNotExists([]byte("records"))
			for i := range 2000 {
				if err := b.Put(fmt.Appendf(nil, "key %06d", i*(round+1)), make([]byte, 10+i%300)); err != nil {
					return err
				}
			}
			if err := b.Put([]byte("large"), make([]byte, 20_000)); err != nil {
				return err
			}
			small, _ := tx.CreateBucketIfNotExists([]byte("small"))
			in, _ := small.CreateBucketIfNotExists([]byte("in"))
			return in.Put([]byte("clock"), []byte("12345678"))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestSoundFiles(t *testing.T) {
	for name, o := range map[string]*bolt.Options{
		"as usual": nil, "small pages": {PageSize: 1024}, "no list of free pages": {NoFreelistSync: true, FreelistType: bolt.FreelistMapType},
	} {
		path := filepath.Join(t.TempDir(), "db")
		sample(t, path, o)
		if err := Check(path); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	path := filepath.Join(t.TempDir(), "empty.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	if err := Check(path); err != nil {
		t.Errorf("a new file: %v", err)
	}
}

func TestDamagedFiles(t *testing.T) {
	good := filepath.Join(t.TempDir(), "db")
	sample(t, good, nil)
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for name, damage := range map[string]func([]byte) []byte{
		"empty":           func(b []byte) []byte { return nil },
		"one octet":       func(b []byte) []byte { return b[:1] },
		"cut to the half": func(b []byte) []byte { return b[:len(b)/2] },
		"cut to its head": func(b []byte) []byte { return b[:2*page] },
		"zeroed":          func(b []byte) []byte { clear(b); return b },
		"heads zeroed":    func(b []byte) []byte { clear(b[:2*page]); return b },
		"body zeroed":     func(b []byte) []byte { clear(b[2*page:]); return b },
		"other text":      func(b []byte) []byte { copy(b, "Dear Sir or Madam,"); copy(b[page:], "Dear Sir or Madam,"); return b },
	} {
		path := filepath.Join(t.TempDir(), "db")
		if err := os.WriteFile(path, damage(append([]byte(nil), whole...)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Check(path); err == nil {
			t.Errorf("%s: passes for sound", name)
		}
	}
	if err := Check(t.TempDir()); err == nil {
		t.Error("a folder passes for a file")
	}
	if err := Check(filepath.Join(t.TempDir(), "none")); !os.IsNotExist(err) {
		t.Errorf("a missing file: %v", err)
	}
}

// TestWhatPassesCanBeRead: after single octets were changed, what Check lets pass is read by bbolt
// without a panic.
func TestWhatPassesCanBeRead(t *testing.T) {
	good := filepath.Join(t.TempDir(), "db")
	sample(t, good, &bolt.Options{PageSize: 1024})
	whole, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	path := filepath.Join(t.TempDir(), "db")
	refused := 0
	for range 300 {
		b := append([]byte(nil), whole...)
		for range 1 + r.IntN(20) {
			at := r.IntN(len(b))
			if r.IntN(2) == 0 { // headers are what matters
				at = at/1024*1024 + r.IntN(64)
			}
			b[min(at, len(b)-1)] ^= 1 << r.IntN(8)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if Check(path) != nil {
			refused++
			continue
		}
		db, err := bolt.Open(path, 0o600, &bolt.Options{NoFreelistSync: true, FreelistType: bolt.FreelistMapType, NoSync: true})
		if err != nil {
			t.Fatalf("it passes, and bbolt refuses it: %v", err)
		}
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("records"))
			if err != nil {
				return err
			}
			if err := b.ForEach(func(k, v []byte) error { return nil }); err != nil {
				return err
			}
			return b.Put([]byte("key 000100"), make([]byte, 3000))
		})
		if err != nil {
			t.Fatalf("it passes, and bbolt can't write it: %v", err)
		}
		db.Close()
	}
	if refused < 100 {
		t.Errorf("only %d of 300 were refused", refused)
	}
	t.Logf("%d of 300 were refused", refused)
}
