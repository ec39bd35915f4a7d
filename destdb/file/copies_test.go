package file

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

func TestCopiesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destdb")
	s := mustOpen(t, path)
	if got, err := s.Copies(); err != nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	for _, values := range []map[string][]byte{{"a": []byte("one"), "b": []byte("two")}, {"a": []byte("three")}} {
		if err := s.SaveCopies(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, path)
	defer s.Close()
	if got, err := s.Copies(); err != nil || len(got) != 2 || string(got["a"]) != "three" || string(got["b"]) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	// A value that rots is left out.
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket(copiesBucket)
		v := append([]byte(nil), b.Get([]byte("a"))...)
		v[5] ^= 1
		return b.Put([]byte("a"), v)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := s.Copies(); err != nil || len(got) != 1 || got["a"] != nil {
		t.Errorf("%q, %v", got, err)
	}
}
