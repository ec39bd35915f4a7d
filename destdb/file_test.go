package destdb

import (
	"bytes"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/smallfile"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

func record(n int) Record {
	return Record{
		Key:    Key{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}), 25), Source: "out1"},
		Used:   time.Unix(1_800_000_000, 0).UTC(),
		Broken: Broken{Failures: n, Why: reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "refused")},
	}
}

func mustOpen(t *testing.T, path string) *File {
	t.Helper()
	s, err := OpenFile(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func load(t *testing.T, s *File) (all []Record) {
	t.Helper()
	if err := s.Load(func(some []Record) { all = append(all, some...) }); err != nil {
		t.Fatalf("loading: %v", err)
	}
	return all
}

func TestKeepsRecords(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destdb")
	s := mustOpen(t, path)
	site := Record{Key: Key{Site: "a"}, Allowed: 3}
	for range 2 {
		if err := s.Save([]Record{record(1), record(2), site}); err != nil {
			t.Fatal(err)
		}
	}
	gone := record(2)
	gone.Gone = true
	if err := s.Save([]Record{gone}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	defer s.Close()
	got := load(t, s)
	want := map[Key]Record{record(1).Key: record(1), site.Key: site}
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for _, r := range got {
		if !reflect.DeepEqual(r, want[r.Key]) {
			t.Errorf("loaded %+v, want %+v", r, want[r.Key])
		}
	}
}

// Each record is handed over once, in batches that are bounded, whatever their number.
func TestLoadsInBatches(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "destdb"))
	defer s.Close()
	saved := 0
	for _, n := range []int{0, 1, atOnce, atOnce + 1, 3 * atOnce} {
		var more []Record
		for ; saved < n; saved++ {
			more = append(more, record(saved))
		}
		if err := s.Save(more); err != nil {
			t.Fatal(err)
		}
		known := make(map[Key]bool)
		err := s.Load(func(some []Record) {
			if len(some) == 0 || len(some) > atOnce {
				t.Errorf("a batch of %d", len(some))
			}
			for _, r := range some {
				if known[r.Key] {
					t.Errorf("%v comes twice", r.Key)
				}
				known[r.Key] = true
			}
		})
		if err != nil || len(known) != n {
			t.Errorf("%d records are loaded, want %d: %v", len(known), n, err)
		}
	}
}

// BenchmarkSaveNew is one Save of many keys that the file doesn't have; /record is what a key costs.
func BenchmarkSaveNew(b *testing.B) {
	for _, n := range []int{1000, 30_000, 300_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			records := make([]Record, n)
			for i := range records {
				records[i] = record(i)
				records[i].Key = Key{Site: fmt.Sprintf("site%06d.example", (i*7919)%n)} // in no order
			}
			for b.Loop() {
				b.StopTimer()
				s, err := OpenFile(filepath.Join(b.TempDir(), "destdb"), nil)
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if err := s.Save(records); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				s.Close()
				b.StartTimer()
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N*n), "us/record")
		})
	}
}

// Whatever a crash or a stranger left in the file, the store opens, and what it gives can be trusted
// or is nothing.
func TestDamageIsSetAside(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for i := range 20 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "destdb")
			s := mustOpen(t, path)
			var all []Record
			for n := range 200 {
				all = append(all, record(n))
			}
			if err := s.Save(all); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			damage(t, path, rnd, i)
			s = mustOpen(t, path)
			defer s.Close()
			for _, r := range load(t, s) {
				if !r.Addr.IsValid() {
					t.Errorf("loaded %+v", r)
				}
			}
			if err := s.Save([]Record{record(1)}); err != nil {
				t.Errorf("saving after damage: %v", err)
			}
		})
	}
}

// Keys that are out of order could lead back to where the reading came from.
func TestKeysOutOfOrderAreDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destdb")
	s := mustOpen(t, path)
	var sites []Record
	for _, name := range []string{"aaa", "bbb", "ccc"} {
		sites = append(sites, Record{Key: Key{Site: name}, Allowed: 3})
	}
	if err := s.Save(sites); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.ReplaceAll(b, []byte("bbb"), []byte("zzz")), 0o600); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, path)
	defer s.Close()
	if got := load(t, s); len(got) > 0 {
		t.Errorf("loaded %+v", got)
	}
	if aside, _ := smallfile.Aside(filepath.Dir(path)); len(aside) != 1 {
		t.Errorf("set aside: %v", aside)
	}
}

// damage overwrites the file, cuts it, or sets pages of it to nonsense.
func damage(t *testing.T, path string, rnd *rand.Rand, kind int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	switch kind % 5 {
	case 0:
		b = []byte("this is no database")
	case 1:
		b = b[:rnd.IntN(len(b))]
	case 2: // both meta pages
		for i := range 2 * os.Getpagesize() {
			b[i] = byte(rnd.Uint32())
		}
	case 3: // what the records say
		for i := range b {
			if b[i] == '{' && rnd.IntN(20) == 0 {
				b[i] = byte(rnd.Uint32())
			}
		}
	case 4: // what a disk that lost writes leaves behind
		clear(b[2*os.Getpagesize()+rnd.IntN(len(b)/2):])
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLockedByAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destdb")
	s := mustOpen(t, path)
	defer s.Close()
	if other, err := OpenFile(path, nil); err == nil {
		other.Close()
		t.Fatal("two have the same file open")
	}
	if aside, _ := smallfile.Aside(filepath.Dir(path)); len(aside) != 0 {
		t.Errorf("a file that is in use was set aside: %v", aside)
	}
}
