package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
	"example.org/mta/warmup/storetest"
)

// warmups is the store of a node.
func warmups(t *testing.T, dsn string) *wiring.Warmups {
	return wiring.NewWarmups(open(t, dsn, false), func() error { return nil })
}

// advance moves the time of warm-ups.
func (d *database) advance(t *testing.T, by time.Duration) {
	t.Helper()
	d.ask(t, fmt.Sprintf("UPDATE mta_cluster.warmup_clock SET ahead = ahead + %d", by.Milliseconds()))
}

// TestPostgresIsAStoreOfWarmups ends with a failover to a standby whose clock is an hour behind.
func TestPostgresIsAStoreOfWarmups(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	now := primary
	by := func(dsn string) storetest.Subject {
		return storetest.Subject{
			Open: func(t *testing.T) warmup.Store {
				primary.schema(t)
				return warmups(t, dsn)
			},
			Pass: func(d time.Duration) { now.advance(t, d) },
		}
	}
	t.Run("by PgBouncer", func(t *testing.T) { storetest.Run(t, by(newBouncer(t, primary))) })
	directly := by(primary.dsn("mta", "postgres"))
	directly.Reopen = func(t *testing.T, _ warmup.Store) warmup.Store {
		primary.now.kill()
		standby.ask(t, "SELECT pg_promote(true)")
		now = standby
		standby.advance(t, -time.Hour)
		w := warmups(t, both(primary, standby))
		claimIP(t, w, "b") // from here on time goes on
		return w
	}
	storetest.Run(t, directly)
}

// claimIP claims the warm-up "ip".
func claimIP(t *testing.T, w *wiring.Warmups, owner string) (warmup.Record, warmup.Instant) {
	t.Helper()
	r, now, err := w.Claim(t.Context(), owner, 3*time.Second, []warmup.Key{{Name: "ip"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r[0], now
}

// TestPostgresWritesAWarmupOnce has writes end with an unknown outcome, in each way in which they can.
func TestPostgresWritesAWarmupOnce(t *testing.T) {
	parallel(t)
	primary, standby := newPair(t)
	primary.schema(t)
	p := newCutter(t, "127.0.0.1:"+primary.port)
	w := warmups(t, strings.Replace(primary.dsn("mta", "postgres"), primary.port, portOf(p.address), 1))
	other := warmups(t, primary.dsn("mta", "postgres"))
	change := func() []warmup.Change {
		r, _ := claimIP(t, w, "1")
		return []warmup.Change{{Name: "ip", Fence: r.Fence, Version: r.Version, Value: fmt.Append(nil, r.Version),
			Release: true}}
	}
	unknown := func(what string, c []warmup.Change) {
		t.Helper()
		if _, err := w.Write(t.Context(), c, nil); !errors.Is(err, warmup.ErrUnknownOutcome) {
			t.Errorf("a write %s: %v", what, err)
		}
	}
	done := func(c []warmup.Change) { // it is repeated until it counts, once
		t.Helper()
		eventually(t, patience, func() error {
			if ok, err := w.Write(t.Context(), c, nil); err != nil || !slices.Equal(ok, []bool{true}) {
				return fmt.Errorf("repeated: %v, %w", ok, err)
			}
			return nil
		})
		r, _ := claimIP(t, other, "2")
		if r.Busy || r.Version != c[0].Version+1 || string(r.Value) != string(c[0].Value) {
			t.Errorf("after a write of version %d the row is %+v", c[0].Version, r)
		}
		if _, err := other.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: r.Fence, Release: true}}, nil); err != nil {
			t.Error(err)
		}
	}
	c := change()
	p.cut.Store(true)
	unknown("whose answer is cut off", c)
	p.cut.Store(false)
	done(c)

	c = change()
	standby.end()
	unknown("without the standby", c)
	began := time.Now()
	if r, _ := claimIP(t, other, "2"); !r.Busy || time.Since(began) > time.Second {
		t.Errorf("a claim beside it, after %v: %+v", time.Since(began), r)
	}
	primary.comes(t, "SELECT count(*) FROM ("+waiting+") w", "1")
	primary.ask(t, "SELECT pg_cancel_backend(pid) FROM ("+waiting+") w") // the row shows, and the standby has it not
	standby.begin(t)
	done(c)

	c = change()
	if _, err := warmups(t, "host=127.0.0.1 port=1 user=mta dbname=postgres sslmode=disable").Write(t.Context(), c,
		nil); err == nil || errors.Is(err, warmup.ErrUnknownOutcome) {
		t.Errorf("a write to nobody: %v", err)
	}
	done(c)

	// Rows that are too large, and too many.
	r, _ := claimIP(t, other, "2")
	if _, err := other.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: r.Fence, Version: r.Version,
		Value: make([]byte, 1<<17+1)}}, nil); err == nil || errors.Is(err, warmup.ErrUnknownOutcome) {
		t.Errorf("a value of more than 128 KiB: %v", err)
	}
	keys := make([]warmup.Key, 10_001)
	for i := range keys {
		keys[i].Name = fmt.Sprint(i)
	}
	full := func(n int) (names []string) {
		t.Helper()
		rows, _, err := other.Claim(t.Context(), "2", 3*time.Second, keys[:n], nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			if r.Busy && strings.Contains(r.Why, "10,000 warm-ups") {
				names = append(names, r.Name)
			}
		}
		return names
	}
	if got := full(9999); got != nil {
		t.Errorf("with 10,000 warm-ups there is no room for %v", got)
	}
	if got := full(10_001); len(got) != 2 {
		t.Errorf("with 10,002 warm-ups there is no room for %v", got)
	}
	primary.ask(t, "UPDATE mta_cluster.warmups SET seen = seen - 91::bigint * 86400000 WHERE name = 'ip'")
	if got := full(10_001); len(got) != 1 {
		t.Errorf("beside one of 91 days ago there is no room for %v", got)
	}
}

// TestPostgresSaysWhatWarmupsLack: the alarm has the remedy.
func TestPostgresSaysWhatWarmupsLack(t *testing.T) {
	parallel(t)
	primary := newPrimary(t)
	primary.ask(t, "CREATE ROLE mta LOGIN")
	w := warmups(t, primary.dsn("mta", "postgres"))
	lacks := func(what string) {
		t.Helper()
		_, _, err := w.Claim(t.Context(), "1", time.Second, []warmup.Key{{Name: "ip"}}, nil)
		if err == nil || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), "run 'mta cluster init', and then the two GRANTs") {
			t.Error(err)
		}
	}
	lacks(`schema "mta_cluster" does not exist`)
	if _, _, err := open(t, primary.dsn("postgres", "postgres"), true).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	lacks("permission denied")
	primary.ask(t, grants(t))
	claimIP(t, w, "1")
	primary.ask(t, "DROP FUNCTION mta_cluster.warmups_claimed")
	lacks("function mta_cluster.warmups_claimed")
}

// TestPostgresTimeOfWarmups: no node and no row ever has an earlier time, whatever becomes of the server's clock.
func TestPostgresTimeOfWarmups(t *testing.T) {
	parallel(t)
	primary := newPrimary(t)
	primary.ask(t, "CREATE ROLE mta LOGIN")
	if _, _, err := open(t, primary.dsn("postgres", "postgres"), true).Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	primary.ask(t, grants(t))
	var all sync.WaitGroup
	var mu sync.Mutex // guards last
	var last warmup.Instant
	for i := range 3 {
		w := warmups(t, primary.dsn("mta", "postgres"))
		all.Go(func() {
			for range 40 {
				mu.Lock()
				before := last
				mu.Unlock()
				r, now := claimIP(t, w, fmt.Sprint(i))
				if r.Busy {
					continue
				}
				mu.Lock()
				if now < before {
					t.Errorf("%d after %d", now, before)
				}
				last = max(last, now)
				mu.Unlock()
				if _, err := w.Write(t.Context(), []warmup.Change{{Name: "ip", Fence: r.Fence, Release: true}},
					nil); err != nil {
					t.Error(err)
				}
				primary.advance(t, -time.Minute)
			}
		})
	}
	all.Wait()
	w := warmups(t, primary.dsn("mta", "postgres"))
	_, seen := claimIP(t, w, "1")
	primary.advance(t, -time.Hour)
	if _, now, err := w.Claim(t.Context(), "1", time.Second, []warmup.Key{{Name: "another"}}, nil); err != nil || now < seen {
		t.Errorf("a node that has seen %d gets %d, %v", seen, now, err)
	}
}
