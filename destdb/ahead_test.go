package destdb

import (
	"testing"
	"time"
)

// TestRecordsOfAClockThatWasAhead: a host that failed, was suspended and used while the clock was ten years ahead is
// tried again when the clock is right; one that failed by the right clock waits as it was to.
func TestRecordsOfAClockThatWasAhead(t *testing.T) {
	ahead := t0.Add(10 * 365 * 24 * time.Hour)
	for _, c := range []struct {
		when    time.Time
		waiting bool
	}{{ahead, false}, {t0, true}} {
		db := New(Lifetimes{})
		h := db.Host(addr, "mx")
		db.Unreachable(h, c.when, refused, backoff)
		db.Suspend(h, Action{What: "suspended", Begin: c.when, End: c.when.Add(time.Hour)}, c.when)
		records := db.Changed(10)
		other := New(Lifetimes{})
		for i := range records {
			records[i].Judge(t0)
		}
		other.Learn(records)
		h = other.Known(addr)
		if h == nil || h.Broken.Waiting(t0) != c.waiting || (len(h.Suspensions) > 0) != c.waiting || h.used.After(t0) {
			t.Errorf("written %v: %+v", c.when, h)
		}
	}
}
