package suppression_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	. "example.org/mta/suppression"
)

// sharing is a list of whose changes a cluster hears.
func sharing(t *testing.T) (l *List, noted *[]string) {
	t.Helper()
	noted = new([]string)
	l, err := Open(t.Context(), Config{Store: newMemory(), Now: func() time.Time { return day1 },
		Note: func(keys []string) (func(), error) {
			*noted = append(*noted, keys...)
			return func() {}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, noted
}

var day1 = time.Date(2026, 2, 1, 0, 0, 0, 0, time.UTC)

func never(string) bool { return false }

func TestAListIsShared(t *testing.T) {
	a, noted := sharing(t)
	b, others := sharing(t)
	ctx := t.Context()
	key := KeyOf("acme", "ann@example.com")
	name := "acme\x00ann@example.com"
	e := Entry{Key: key, Reason: "asked", Source: Unsubscribe, Class: "x", Provider: "big", Added: day1, Expires: day1.Add(time.Hour)}
	a.Feed(e)
	if err := a.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(*noted, []string{name}) {
		t.Errorf("noted: %q", *noted)
	}
	values, err := Shared{List: a}.Get(ctx, []string{name, "acme\x00nobody@example.com"})
	if err != nil || len(values) != 1 {
		t.Fatalf("%q, %v", values, err)
	}
	rank, until, err := Shared{List: a}.Look(name, values[name])
	if rank != 2 || !until.Equal(e.Expires) || err != nil {
		t.Errorf("rank %d, until %v, %v", rank, until, err)
	}
	b.Feed(Entry{Key: KeyOf("", "bob@example.com"), Source: Bounce, Added: day1})
	for range 2 {
		if err := (Shared{List: b}).Apply(ctx, values, never); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Get(ctx, []Key{key})
	if err != nil || len(got) != 1 || got[0] != e {
		t.Errorf("the other has %+v, %v; want %+v", got, err, e)
	}
	if !slices.Equal(*others, []string{"\x00bob@example.com"}) || b.Stats().Entries != 2 {
		t.Errorf("noted there: %q", *others)
	}
	if _, on := b.Match("acme", "Ann@example.com"); !on {
		t.Error("mail leaves there")
	}
	gone := map[string][]byte{name: nil}
	if err := (Shared{List: b}).Apply(ctx, gone, func(key string) bool { return key == name }); err != nil || b.Stats().Entries != 2 {
		t.Errorf("a key that stays is removed: %v", err)
	}
	if err := (Shared{List: b}).Apply(ctx, gone, never); err != nil || b.Stats().Entries != 1 {
		t.Errorf("it is there yet: %v", err)
	}
	nobody := KeyOf("acme", "nobody@example.com")
	if n, err := a.Remove(ctx, []Key{nobody, nobody}); n != 0 || err != nil || len(*noted) != 1 {
		t.Errorf("a removal of what is not there: %d, %v, noted %q", n, err, *noted)
	}
	if _, err := a.Remove(ctx, []Key{key, nobody}); err != nil || len(*noted) != 2 {
		t.Errorf("a removal is not noted: %q, %v", *noted, err)
	}
	var all []string
	err = Shared{List: b}.All(ctx, func(keys []string) error { all = append(all, keys...); return nil })
	if err != nil || !slices.Equal(all, []string{"\x00bob@example.com"}) {
		t.Errorf("all: %q, %v", all, err)
	}
}

// TestWhatEndsIsNotNoted: each node ends it by itself.
func TestWhatEndsIsNotNoted(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		noted := 0
		l, err := Open(context.Background(), Config{Store: newMemory(), Note: func(keys []string) (func(), error) {
			noted += len(keys)
			return func() {}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer shut(t, l)
		e := Entry{Key: Key{Address: "a@b.example"}, Source: Operator, Expires: time.Now().Add(time.Minute)}
		if _, err := l.Add(context.Background(), []Entry{e}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		if synctest.Wait(); l.Stats().Entries != 0 || noted != 1 {
			t.Errorf("%d entries, %d noted", l.Stats().Entries, noted)
		}
	})
}

func TestValuesThatAreNoEntries(t *testing.T) {
	l, _ := sharing(t)
	const good = `{"source": "bounce", "added": "2026-02-01T00:00:00Z"}`
	if rank, _, err := (Shared{List: l}).Look("\x00a@b.example", []byte(good)); err != nil || rank != 1 {
		t.Errorf("%d, %v", rank, err)
	}
	for key, value := range map[string]string{"": good, "a": good, "a\x00": good, "a\x00b\x00c": good, "\x001": "", "\x002": "{",
		"\x003": `{"source": "rumour", "added": "2026-02-01T00:00:00Z"}`, "\x004": `{"source": "bounce"}`, "\x005": "[]"} {
		if _, _, err := (Shared{List: l}).Look(key, []byte(value)); err == nil {
			t.Errorf("%q under %q is an entry", value, key)
		}
		values := map[string][]byte{key: []byte(value)}
		if err := (Shared{List: l}).Apply(context.Background(), maps.Clone(values), never); err == nil || l.Stats().Entries > 0 {
			t.Errorf("%q under %q is applied", value, key)
		}
	}
}
