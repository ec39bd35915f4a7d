package vfstest

import (
	"errors"
	"io"
	"io/fs"
	"math/rand"
	"path/filepath"
	"slices"
	"testing"

	"example.org/mta/queue/vfs"
)

// TestSameBehaviour holds the file systems to what the interface says.
func TestSameBehaviour(t *testing.T) {
	for name, fsys := range map[string]vfs.FS{
		"os": vfs.OS(), "memory": Memory(), "disk": NewDisk(rand.New(rand.NewSource(1))),
	} {
		t.Run(name, func(t *testing.T) { behaviour(t, fsys, t.TempDir()) })
	}
}

func behaviour(t *testing.T, fsys vfs.FS, dir string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(fsys.MkdirAll(filepath.Join(dir, "a", "b")))
	must(fsys.MkdirAll(filepath.Join(dir, "a", "b")))
	name := filepath.Join(dir, "file")
	if _, err := fsys.Open(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("opening what is not there: %v", err)
	}
	if err := fsys.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("removing what is not there: %v", err)
	}
	f, err := fsys.Create(name)
	must(err)
	if _, err := fsys.Create(name); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("creating what is there: %v", err)
	}
	_, err = f.WriteAt([]byte("hello"), 3)
	must(err)
	must(f.Sync())
	must(f.Allocate(100))
	must(f.Allocate(50)) // makes no file shorter
	if n, err := f.Size(); n != 100 || err != nil {
		t.Fatalf("size %d, %v", n, err)
	}
	b := make([]byte, 10)
	if n, err := f.ReadAt(b, 0); n != 10 || err != nil || string(b) != "\x00\x00\x00hello\x00\x00" {
		t.Fatalf("read %d, %v: %q", n, err, b)
	}
	must(f.Truncate(6))
	if n, err := f.ReadAt(b, 4); n != 2 || !errors.Is(err, io.EOF) {
		t.Fatalf("read behind the end: %d, %v", n, err)
	}
	must(f.Truncate(8))
	if n, _ := f.ReadAt(b, 0); string(b[:n]) != "\x00\x00\x00hel\x00\x00" {
		t.Fatalf("what was cut off came back: %q", b[:n])
	}
	must(f.Close())
	r, err := fsys.Open(name)
	must(err)
	if _, err := r.WriteAt(b, 0); err == nil {
		t.Fatal("a file that was opened for reading was written")
	}
	must(r.Close())
	w, err := fsys.OpenWrite(name)
	must(err)
	_, err = w.WriteAt([]byte("x"), 0)
	must(err)
	other := filepath.Join(dir, "other")
	must(fsys.Rename(name, other))
	if n, err := w.ReadAt(b[:1], 0); n != 1 || err != nil || b[0] != 'x' {
		t.Fatalf("an open file after it was renamed: %d, %v", n, err)
	}
	must(fsys.SyncDir(dir))
	list, err := fsys.List(dir)
	must(err)
	if !slices.Equal(list, []vfs.Info{{Name: "other", Size: 8}}) {
		t.Fatalf("list %v", list)
	}
	must(fsys.Remove(other))
	if n, err := w.ReadAt(b[:1], 0); n != 1 || err != nil {
		t.Fatalf("an open file after it was removed: %d, %v", n, err)
	}
	must(w.Close())
	if n, err := fsys.Free(dir); n <= 0 || err != nil {
		t.Fatalf("free %d, %v", n, err)
	}
	lock, err := fsys.Lock(filepath.Join(dir, "lock"))
	must(err)
	if _, err := fsys.Lock(filepath.Join(dir, "lock")); !errors.Is(err, vfs.ErrLocked) {
		t.Fatalf("locking twice: %v", err)
	}
	must(lock.Close())
	lock, err = fsys.Lock(filepath.Join(dir, "lock"))
	must(err)
	must(lock.Close())
}
