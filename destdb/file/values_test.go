package file

import (
	"path/filepath"
	"testing"

	"go.etcd.io/bbolt"
)

func TestValuesAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destdb")
	s := mustOpen(t, path)
	v, other := s.Values("part-1"), s.Values("other-1")
	if got, err := v.Load(); err != nil || len(got) != 0 {
		t.Fatalf("%v, %v", got, err)
	}
	if err := other.Save(map[string][]byte{"a": []byte("of another part")}); err != nil {
		t.Fatal(err)
	}
	for _, values := range []map[string][]byte{
		{"a": []byte("one"), "b": []byte("two"), "c": []byte("gone")}, {"a": []byte("three"), "c": nil, "never there": nil},
	} {
		if err := v.Save(values); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(nil); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, path)
	defer s.Close()
	v, other = s.Values("part-1"), s.Values("other-1")
	if got, err := other.Load(); err != nil || len(got) != 1 || string(got["a"]) != "of another part" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := v.Load(); err != nil || len(got) != 2 || string(got["a"]) != "three" || string(got["b"]) != "two" {
		t.Errorf("%q, %v", got, err)
	}
	// A value that rots is left out.
	err := s.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("part-1"))
		kept := append([]byte(nil), b.Get([]byte("a"))...)
		kept[5] ^= 1
		return b.Put([]byte("a"), kept)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.Load(); err != nil || len(got) != 1 || got["a"] != nil {
		t.Errorf("%q, %v", got, err)
	}
}
