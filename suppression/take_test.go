package suppression_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "example.org/mta/suppression"
)

// Take removes what fits and nothing else; what the other side refuses stays, as does what is changed meanwhile.
func TestTake(t *testing.T) {
	ctx := context.Background()
	l := open(t, newMemory())
	defer shut(t, l)
	begin := time.Date(2026, 12, 14, 0, 0, 0, 0, time.UTC)
	var all []Entry
	for i := range 3000 {
		e := Entry{Key: Key{"acme", fmt.Sprintf("r%04d@box.example", i)}, Source: []Source{Bounce, Report, Operator}[i%3], Provider: []string{"google", "yahoo"}[i%2], Added: begin.Add(time.Duration(i) * time.Second)}
		all = append(all, e)
	}
	if _, err := l.Add(ctx, all); err != nil {
		t.Fatal(err)
	}
	q := Query{Provider: "google", ByHost: true, Since: begin.Add(1500 * time.Second)}
	if n, err := l.Count(ctx, q); n != 500 || err != nil {
		t.Errorf("%d fit, %v", n, err)
	}
	broken := errors.New("broken")
	if n, err := l.Take(ctx, q, nil, func(context.Context, []Entry) error { return broken }); n != 0 || !errors.Is(err, broken) {
		t.Errorf("took %d, %v", n, err)
	}
	seen := 0
	n, err := l.Take(ctx, q, nil, func(ctx context.Context, some []Entry) error {
		seen += len(some)
		changed := some[0]
		changed.Source, changed.Reason = Operator, "meanwhile"
		_, err := l.Add(ctx, []Entry{changed})
		return err
	})
	if err != nil || seen != 500 || n != 499 {
		t.Errorf("gave %d, took %d, %v", seen, n, err)
	}
	if n, _ := l.Count(ctx, q); n != 0 {
		t.Errorf("%d are left", n)
	}
	if n, _ := l.Count(ctx, Query{}); n != 2501 || l.Stats().Entries != 2501 {
		t.Errorf("%d, %d entries are left, want 2501", n, l.Stats().Entries)
	}
}

// TestTakeWhatWasCounted: what fits only since the count stays, and where the number is refused nothing is taken.
func TestTakeWhatWasCounted(t *testing.T) {
	ctx := context.Background()
	l := open(t, newMemory())
	defer shut(t, l)
	add := func(name string) error {
		_, err := l.Add(ctx, []Entry{{Key: Key{"acme", name + "@box.example"}, Source: Bounce, Provider: "google"}})
		return err
	}
	for i := range 1500 {
		if err := add(fmt.Sprintf("r%04d", i)); err != nil {
			t.Fatal(err)
		}
	}
	q, refused := Query{Provider: "google"}, errors.New("refused")
	if n, err := l.Take(ctx, q, func(int) error { return refused }, nil); n != 0 || !errors.Is(err, refused) || l.Stats().Entries != 1500 {
		t.Errorf("took %d, %v", n, err)
	}
	n, err := l.Take(ctx, q, func(n int) error {
		if n != 1500 {
			t.Errorf("counted %d", n)
		}
		return add("r0500-later")
	}, nil)
	if n != 1500 || err != nil || l.Stats().Entries != 1 {
		t.Errorf("took %d, %v; %d are left", n, err, l.Stats().Entries)
	}
}

// Which entry the relay may put in the place of another.
func TestMerge(t *testing.T) {
	ctx := context.Background()
	now := time.Now().Truncate(time.Second)
	soon, late, past := now.Add(time.Hour), now.Add(48*time.Hour), now.Add(-time.Hour)
	for _, c := range []struct {
		old, added    Source
		until, until2 time.Time
		want          int
	}{
		{Bounce, Bounce, soon, late, 1}, {Bounce, Report, late, soon, 0}, {Bounce, Bounce, time.Time{}, soon, 0}, {Bounce, Bounce, soon, time.Time{}, 1},
		{Bounce, Complaint, time.Time{}, time.Time{}, 1}, {Report, Unsubscribe, late, time.Time{}, 1},
		{Operator, Bounce, soon, late, 0}, {Complaint, Bounce, time.Time{}, late, 0}, {Operator, Bounce, past, late, 1},
		{Operator, Complaint, soon, time.Time{}, 1}, {Unsubscribe, Complaint, time.Time{}, time.Time{}, 0},
	} {
		store := newMemory()
		l := open(t, store)
		k := Key{"acme", "a@box.example"}
		if _, err := l.Add(ctx, []Entry{{Key: k, Source: c.old, Expires: c.until, Added: past}}); err != nil {
			t.Fatal(err)
		}
		if n, err := l.Merge(ctx, []Entry{{Key: k, Source: c.added, Expires: c.until2, Added: now}}); n != c.want || err != nil {
			t.Errorf("%s until %v, %s until %v: merged %d, %v, want %d", c.old, c.until, c.added, c.until2, n, err, c.want)
		}
		shut(t, l)
	}
}
