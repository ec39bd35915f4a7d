package boltstore

import (
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
	s, err := Open(path)
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
	if err != nil || !slices.Equal(got, []suppression.Entry{want[0], want[3], want[4], want[2]}) {
		t.Errorf("scanned %+v, %v", got, err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
}

// A scan takes several transactions, during which the store can be changed, and goes on where it
// was.
func TestScanWhileItChanges(t *testing.T) {
	ctx := context.Background()
	s := open(t, filepath.Join(t.TempDir(), "s.db"))
	const n = 2*scanStep + 500
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

func FuzzEntry(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 'x'})
	f.Add(encodeEntry(&suppression.Entry{Reason: "r", Source: suppression.Bounce, Added: time.Unix(1e9, 0), Expires: time.Unix(2e9, 0)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decodeEntry(key("t", "a"), b)
		if err != nil {
			return
		}
		again, err := decodeEntry(e.Key, encodeEntry(&e))
		if err == nil && again.Reason != e.Reason || err == nil && again.Source != e.Source {
			t.Fatalf("%x became %+v, then %+v", b, e, again)
		}
	})
}
