package destdb

import (
	"path/filepath"
	"testing"

	"example.org/mta/internal/sidestore"
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
	if err := s.file.Apply([]sidestore.Change{{Bucket: "part-1", Key: []byte("a"), Value: []byte("1234threE")}}); err != nil {
		t.Fatal(err)
	}
	if got, err := v.Load(); err != nil || len(got) != 1 || got["a"] != nil {
		t.Errorf("%q, %v", got, err)
	}
}
