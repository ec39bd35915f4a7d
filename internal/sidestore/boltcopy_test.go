package sidestore

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestCopy: what is written after the copy was begun is not in it, and nothing is left beside the file.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	db, err := bolt.Open(filepath.Join(dir, "db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	put := func(from, to int) {
		err := db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			for i := from; i < to && err == nil; i++ {
				err = b.Put(fmt.Appendf(nil, "%06d", i), make([]byte, 100))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	put(0, 1000)
	from, size, err := CopyOf(db)
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	put(1000, 5000)
	whole, err := io.ReadAll(from)
	if err != nil || int64(len(whole)) != size {
		t.Fatalf("%d octets of %d, %v", len(whole), size, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("the folder has %v", left)
	}
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Fatal(err)
	}
	again, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	again.View(func(tx *bolt.Tx) error {
		if n := tx.Bucket([]byte("b")).Stats().KeyN; n != 1000 {
			t.Errorf("the copy has %d keys", n)
		}
		return nil
	})
}
