package boltstore

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"example.org/mta/suppression"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(path, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func key(tenant, address string) suppression.Key {
	return suppression.Key{Tenant: tenant, Address: address}
}

func TestStoreKeepsEntries(t *testing.T) {
	ctx, path := context.Background(), filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	at := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	want := []suppression.Entry{
		{Key: key("", "a@example.net"), Reason: "said so", Source: suppression.Operator, Added: at},
		{Key: key("acme", "a@example.net"), Source: suppression.Bounce, Added: at, Expires: at.Add(time.Hour)},
		{Key: key("acme", "ü@example.net"), Reason: strings.Repeat("x", 256), Source: suppression.Import, Added: at},
		{Key: key("acme", "v@example.net"), Source: suppression.Tenant, Added: at},
		{Key: key("acme", "w@example.net"), Source: suppression.Unsubscribe, Added: at},
		{Key: key("acme", "x@example.net"), Reason: "no such user", Source: suppression.Report, Class: "InvalidRecipient", Provider: "google", Added: at},
		{Key: key("acme", "y@example.net"), Source: suppression.Complaint, Provider: "mx.example.net", Added: at},
	}
	var changes []suppression.Change
	for _, e := range want {
		changes = append(changes, suppression.Change{Entry: e})
	}
	for range 2 { // to write again does no harm
		if err := s.Apply(ctx, changes); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s = open(t, path)
	got, err := s.Get(ctx, []suppression.Key{want[0].Key, key("", "b@example.net"), want[2].Key, want[1].Key})
	if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[2] || got[2] != want[1] {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := s.Apply(ctx, []suppression.Change{{Entry: suppression.Entry{Key: want[1].Key}, Remove: true}, {Entry: suppression.Entry{Key: key("", "none")}, Remove: true}}); err != nil {
		t.Fatal(err)
	}
	got = nil
	err = s.Scan(ctx, suppression.Key{}, func(e suppression.Entry) bool { got = append(got, e); return true })
	if err != nil || !slices.Equal(got, []suppression.Entry{want[0], want[3], want[4], want[5], want[6], want[2]}) {
		t.Errorf("scanned %+v, %v", got, err)
	}
	if _, err := Open(path, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
}

// A scan takes several transactions, during which the store can be changed, and goes on where it
// was.
func TestScanWhileItChanges(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	const n = 2500 // of which a transaction reads 1000
	var changes []suppression.Change
	for i := range n {
		changes = append(changes, suppression.Change{Entry: suppression.Entry{Key: key("", fmt.Sprintf("r%05d@example.net", i)), Source: suppression.Import}})
	}
	if err := s.Apply(ctx, changes); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := s.Scan(ctx, key("", "r00009@example.net"), func(e suppression.Entry) bool {
		if seen++; seen == 10 {
			s.Apply(ctx, []suppression.Change{{Entry: suppression.Entry{Key: key("", "r00000@example.net")}, Remove: true}})
		}
		return true
	})
	if err != nil || seen != n-10 {
		t.Errorf("saw %d, want %d; %v", seen, n-10, err)
	}
	seen = 0
	s.Scan(ctx, suppression.Key{}, func(suppression.Entry) bool { seen++; return seen < 7 })
	if seen != 7 {
		t.Errorf("a scan that was told to stop saw %d", seen)
	}
}

// Entries of the form that had neither class nor provider are read; one of the future is refused.
func TestEntriesOfEarlierPrograms(t *testing.T) {
	first := append([]byte{1, 1}, 0x80, 0x94, 0xeb, 0xdc, 0x03, 0x00)
	e, err := decodeEntry(key("acme", "a@example.net"), append(first, "550 5.1.1 no such user"...))
	want := suppression.Entry{Key: key("acme", "a@example.net"), Reason: "550 5.1.1 no such user", Source: suppression.Bounce, Added: time.Unix(1e9, 0).UTC()}
	if err != nil || e != want {
		t.Errorf("got %+v, %v, want %+v", e, err, want)
	}
	for _, b := range [][]byte{{0, 1, 0, 0}, {3, 1, 0, 0, 0, 0}, {2, 9, 0, 0, 0, 0}, {2, 1, 0, 0, 5, 'x'}, {2, 1, 0, 0, 0}} {
		if e, err := decodeEntry(want.Key, b); err == nil {
			t.Errorf("%v became %+v", b, e)
		}
	}
}

// TestTimesAfterTheYear9999: JSON has none, and one entry must not keep a list from being read or shared.
func TestTimesAfterTheYear9999(t *testing.T) {
	late := time.Date(9999, 12, 31, 23, 59, 59, 0, time.FixedZone("", -3600))
	b := encodeEntry(&suppression.Entry{Source: suppression.Tenant, Added: late, Expires: late}, version)
	e, err := decodeEntry(key("acme", "a@example.net"), b)
	if want := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC); err != nil || e.Added != want || e.Expires != want {
		t.Errorf("%+v, %v", e, err)
	}
}

// TestTheFormatBefore: a store that is asked for the form before writes it, until it is asked for the newest.
func TestTheFormatBefore(t *testing.T) {
	ctx, form := context.Background(), version-1
	s, err := Open(filepath.Join(t.TempDir(), "s.db"), func() int { return form }, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, source := range sources {
		e := suppression.Entry{Key: key("acme", "a@example.net"), Reason: "550 5.1.1 no such user", Source: source, Class: "InvalidRecipient", Added: time.Unix(1e9, 0).UTC()}
		for _, form = range []int{version - 1, version} {
			if err := s.Apply(ctx, []suppression.Change{{Entry: e}}); err != nil {
				t.Fatal(err)
			}
			var stored []byte
			s.file.Get(listed, 1, func(int) []byte { return encodeKey(e.Key) }, func(_ int, value []byte) error {
				stored = append(stored, value...)
				return nil
			})
			want := e
			if form < withClasses {
				want.Class = ""
				if stored[1] > 5 { // the sources that version 1 had
					t.Errorf("form %d has source %d", form, stored[1])
				}
				want.Source = map[suppression.Source]suppression.Source{suppression.Report: suppression.Bounce, suppression.Complaint: suppression.Unsubscribe}[source]
				want.Source = cmp.Or(want.Source, source)
			}
			got, err := s.Get(ctx, []suppression.Key{e.Key})
			if err != nil || int(stored[0]) != form || len(got) != 1 || got[0] != want {
				t.Errorf("form %d: stored %v, got %+v, %v", form, stored, got, err)
			}
		}
	}
}

func BenchmarkGet(b *testing.B) {
	ctx := context.Background()
	s, err := Open(filepath.Join(b.TempDir(), "s.db"), nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	var changes []suppression.Change
	for i := range 20_000 {
		changes = append(changes, suppression.Change{Entry: suppression.Entry{Key: key("acme", fmt.Sprintf("r%05d@example.net", i)), Source: suppression.Import, Reason: "550 5.1.1 no such user"}})
	}
	if err := s.Apply(ctx, changes); err != nil {
		b.Fatal(err)
	}
	keys := make([]suppression.Key, 2)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e := &changes[i*7919%len(changes)]
		keys[0], keys[1] = e.Key, key("", e.Address)
		if found, err := s.Get(ctx, keys); err != nil || len(found) != 1 {
			b.Fatal(found, err)
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 'x'})
	f.Add(encodeEntry(&suppression.Entry{Reason: "r", Source: suppression.Bounce, Added: time.Unix(1e9, 0), Expires: time.Unix(2e9, 0)}, version))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(key("t", "a"), b)
		if err != nil {
			return
		}
		again, err := decodeEntry(e.Key, encodeEntry(&e, version))
		if err == nil && again.Reason != e.Reason || err == nil && again.Source != e.Source {
			t.Fatalf("%x became %+v, then %+v", b, e, again)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	path := filepath.Join(b.TempDir(), "s.db")
	s, err := Open(path, nil, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; n < 100_000; n += 1000 {
		var changes []suppression.Change
		for i := range 1000 {
			changes = append(changes, suppression.Change{Entry: suppression.Entry{Key: key("acme", fmt.Sprintf("r%06d@example.net", n+i)), Source: suppression.Import, Reason: "550 5.1.1 no such user"}})
		}
		if err := s.Apply(context.Background(), changes); err != nil {
			b.Fatal(err)
		}
	}
	s.Close()
	for b.Loop() {
		s, err := Open(path, nil, nil, nil)
		if err != nil {
			b.Fatal(err)
		}
		s.Close()
	}
}
