package sidestore

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"example.org/mta/internal/smallfile"
)

var now = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func config(path string, second bool) Config {
	return Config{Path: path, Name: "the list", Buckets: []string{"list", "counters"}, Copy: second, Now: func() time.Time { return now }}
}

func open(t *testing.T, c Config) *File {
	t.Helper()
	f, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// content is all entries, by bucket and key.
func content(t *testing.T, f *File) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, bucket := range []string{"list", "counters", "later"} {
		err := f.Each(bucket, nil, func(k, v []byte) error { all[bucket+" "+string(k)] = string(v); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

func changes(n int) (out []Change) {
	for i := range n {
		out = append(out, Change{"list", fmt.Appendf(nil, "key %05d", i), make([]byte, 20+i%40)})
	}
	return append(out, Change{"counters", []byte("c"), []byte("7")}, Change{"later", []byte("l"), []byte("8")})
}

// fill makes a file and returns its content.
func fill(t *testing.T, c Config, n int) map[string]string {
	t.Helper()
	f := open(t, c)
	for range 2 { // so that there are free pages
		if err := f.Apply(changes(n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // what a damaged head goes back to is the same
		if err := f.Apply([]Change{{Bucket: "list", Key: []byte("key 00001")}}); err != nil {
			t.Fatal(err)
		}
	}
	all := content(t, f)
	if len(all) != n+1 {
		t.Fatalf("%d entries", len(all))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestAnyFlip: whatever bit of a file changes, with its copy all is there, and without one what is there is what was
// stored, and what is not there is known to be missing.
func TestAnyFlip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, second := range []bool{false, true} {
		c := config(filepath.Join(t.TempDir(), "db"), second)
		all := fill(t, c, 300)
		paths := []string{c.Path}
		if second {
			paths = append(paths, c.Path+CopySuffix)
		}
		damaged := 0
		for _, path := range paths {
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for range 120 {
				os.RemoveAll(filepath.Dir(c.Path))
				os.MkdirAll(filepath.Dir(c.Path), 0o700)
				for _, p := range paths {
					os.WriteFile(p, whole, 0o600)
				}
				b := append([]byte(nil), whole...)
				at := r.IntN(len(b))
				if r.IntN(2) == 0 { // the beginnings of pages are what matters
					at = at/4096*4096 + r.IntN(128)
				}
				b[at] ^= 1 << r.IntN(8)
				os.WriteFile(path, b, 0o600)
				f := open(t, c)
				got := content(t, f)
				if f.Damage() != nil {
					damaged++
				}
				aside, _ := smallfile.Aside(filepath.Dir(path))
				if (f.Damage() != nil) && len(aside) == 0 {
					t.Errorf("octet %d: %v, and no file is kept", at, f.Damage())
				}
				if (second || f.Damage() == nil) && !maps.Equal(got, all) {
					t.Fatalf("octet %d of %s: %d entries of %d, %v", at, path, len(got), len(all), f.Damage())
				}
				for k, v := range got {
					if all[k] != v {
						t.Fatalf("octet %d: %q is %q", at, k, v)
					}
				}
				f.Close()
				if f = open(t, c); f.Damage() != nil {
					t.Fatalf("octet %d: damaged again: %v", at, f.Damage())
				}
				f.Close()
			}
		}
		t.Logf("with a copy %v: %d files were damaged", second, damaged)
		if damaged == 0 {
			t.Error("no file was damaged")
		}
	}
}

// TestProgramsWithoutSums: they can change the file, and what they change counts.
func TestProgramsWithoutSums(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	db, err := bolt.Open(c.Path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte("list"))
		b.Delete([]byte("key 00002"))
		return b.Put([]byte("key 00003"), []byte("other"))
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	delete(all, "list key 00002")
	all["list key 00003"] = "other"
	f := open(t, c)
	if got := content(t, f); !maps.Equal(got, all) || f.Damage() != nil {
		t.Fatalf("%d entries of %d, %v", len(got), len(all), f.Damage())
	}
	f.Close()
	os.Remove(c.Path)
	f = open(t, c)
	if got := content(t, f); !maps.Equal(got, all) || f.Damage() == nil {
		t.Fatalf("the copy has %d entries of %d, %v", len(got), len(all), f.Damage())
	}
}

// TestBothCopiesAreDamaged: the union of what is sound is kept.
func TestBothCopiesAreDamaged(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	for path, key := range map[string]string{c.Path: "key 00010", c.Path + CopySuffix: "key 00020"} {
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error {
			tx.Bucket(sumsBucket).Put(keptKey, kept(tx))
			return tx.Bucket([]byte("list")).Put([]byte(key), []byte("rotten"))
		})
		if err != nil || db.Close() != nil {
			t.Fatal(err)
		}
	}
	if got := content(t, open(t, c)); !maps.Equal(got, all) {
		t.Fatalf("%d entries of %d", len(got), len(all))
	}
}

// TestTheCopyIsKeptAfterAStartThatFails: a file that is gone is not begun anew beside a copy that can't be opened now.
func TestTheCopyIsKeptAfterAStartThatFails(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	os.Remove(c.Path)
	inUse, err := bolt.Open(c.Path+CopySuffix, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(c); err == nil {
		t.Fatal("a copy is opened that is in use")
	}
	inUse.Close()
	if got := content(t, open(t, c)); !maps.Equal(got, all) {
		t.Fatalf("%d entries of %d", len(got), len(all))
	}
}

// TestACopyThatIsBehind: what a program without copies has added is not lost when the file is damaged after that.
func TestACopyThatIsBehind(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	db, err := bolt.Open(c.Path, 0o600, options())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		key := fmt.Sprintf("later %d", i)
		err := db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("list")).Put([]byte(key), []byte("new")) })
		if err != nil {
			t.Fatal(err)
		}
		if all["list "+key] = "new"; i == 4 {
			delete(all, "list "+key) // with the head that is damaged
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(c.Path)
	if err != nil {
		t.Fatal(err)
	}
	meta := 64 // of the newer head, the number of its transaction
	if whole[4096+meta] > whole[meta] {
		meta += 4096
	}
	whole[meta] ^= 64
	os.WriteFile(c.Path, whole, 0o600)
	f := open(t, c)
	if got := content(t, f); !maps.Equal(got, all) || f.Damage() == nil {
		t.Fatalf("%d entries of %d, %v", len(got), len(all), f.Damage())
	}
}

// TestNoCopyCanBeMade: that keeps no relay from starting.
func TestNoCopyCanBeMade(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	os.Remove(c.Path + CopySuffix)
	os.MkdirAll(filepath.Join(c.Path+CopySuffix+".new", "in the way"), 0o700)
	f := open(t, c)
	all["list other"] = "8"
	if err := f.Apply([]Change{{"list", []byte("other"), []byte("8")}}); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f); !maps.Equal(got, all) {
		t.Fatalf("%d entries of %d", len(got), len(all))
	}
}

// TestTheFileHasWhatItsCopyHasNot: nobody is told that such a change was not made.
func TestTheFileHasWhatItsCopyHasNot(t *testing.T) {
	f := open(t, config(filepath.Join(t.TempDir(), "db"), true))
	f.dbs[1].Close()
	if err := f.Apply(changes(1)); !errors.Is(err, ErrUnknownOutcome) {
		t.Error(err)
	}
	if got := content(t, f); len(got) != 3 {
		t.Errorf("%d entries", len(got))
	}
}

// TestADamagedCopyOfAFileThatIsGone: its sound entries are taken over, and both have an alarm.
func TestADamagedCopyOfAFileThatIsGone(t *testing.T) {
	c := config(filepath.Join(t.TempDir(), "db"), true)
	all := fill(t, c, 300)
	os.Remove(c.Path)
	db, err := bolt.Open(c.Path+CopySuffix, 0o600, options())
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		tx.Bucket(sumsBucket).Put(keptKey, kept(tx))
		return tx.Bucket([]byte("list")).Put([]byte("key 00010"), []byte("rotten"))
	})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	delete(all, "list key 00010")
	if got := content(t, open(t, c)); !maps.Equal(got, all) {
		t.Fatalf("%d entries of %d", len(got), len(all))
	}
	if aside, _ := smallfile.Aside(filepath.Dir(c.Path)); len(aside) != 2 {
		t.Errorf("kept: %q", aside)
	}
}

// TestWhyAFileCanNotBeOpened: only a lock that another has is put down to another process.
func TestWhyAFileCanNotBeOpened(t *testing.T) {
	taken := config(filepath.Join(t.TempDir(), "list.db"), false)
	open(t, taken)
	folder := config(t.TempDir(), false)
	for c, want := range map[*Config]bool{&taken: true, &folder: false} {
		_, err := Open(*c)
		if err == nil || strings.Contains(err.Error(), "another process") != want {
			t.Errorf("%s: %v", c.Path, err)
		}
	}
}
