package sidestore

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// TestAFullDiskTakesNoSums: a file of a program without sums is read all the same, and gets them with the first change
// that the disk takes.
func TestAFullDiskTakesNoSums(t *testing.T) {
	for _, second := range []bool{false, true} {
		t.Run(fmt.Sprint("copy ", second), func(t *testing.T) {
			dir := t.TempDir()
			if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
				t.Skipf("can't mount a file system: %v", err)
			}
			t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
			c := config(filepath.Join(dir, "db"), second)
			all := fill(t, c, 3000)
			withoutSums(t, c.Path)
			os.Remove(c.Path + CopySuffix)
			full := filepath.Join(dir, "full")
			os.WriteFile(full, make([]byte, 9<<20), 0o600)

			f := open(t, c)
			if !f.bare.Load() {
				t.Fatal("the disk took the sums")
			}
			read := func() {
				t.Helper()
				if got := content(t, f); !maps.Equal(got, all) {
					t.Fatalf("%d entries of %d", len(got), len(all))
				}
				n := 0
				err := f.Get("counters", 1, func(int) []byte { return []byte("c") }, func(int, []byte) error { n++; return nil })
				if n != 1 || err != nil {
					t.Fatalf("%d values, %v", n, err)
				}
			}
			read()
			change := []Change{{"list", []byte("new"), []byte("1")}}
			if err := f.Apply(change); err == nil {
				t.Fatal("a full disk took a change")
			}
			read()
			if err := os.Remove(full); err != nil {
				t.Fatal(err)
			}
			if err := f.Apply(change); err != nil {
				t.Fatal(err)
			}
			all["list new"] = "1"
			read()
			f.Close()
			if f = open(t, c); f.Damage() != nil || f.bare.Load() || second != (len(f.dbs) == 2) {
				t.Fatalf("the next start: damage %v, %d files", f.Damage(), len(f.dbs))
			}
			read()
		})
	}
}

// withoutSums makes a file one of a program without sums, with no free pages.
func withoutSums(t *testing.T, path string) {
	t.Helper()
	from, err := bolt.Open(path, 0o600, options())
	if err != nil {
		t.Fatal(err)
	}
	if err := from.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(sumsBucket) }); err != nil {
		t.Fatal(err)
	}
	to, err := bolt.Open(path+".new", 0o600, options())
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{bolt.Compact(to, from, 0), to.Close(), from.Close(), os.Rename(path+".new", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
}
