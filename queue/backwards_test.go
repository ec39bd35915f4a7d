package queue

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mta/internal/envelope"
	"mta/queue/journal"
	"mta/queue/vfs"
)

// wrongClock is a clock that can be set.
type wrongClock struct{ ahead atomic.Int64 }

func (c *wrongClock) Now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *wrongClock) set(by time.Duration) { c.ahead.Store(int64(by)) }
func (c *wrongClock) config(cfg Config) Config {
	cfg.Now = c.Now
	return cfg
}

const tenYears = 10 * 365 * 24 * time.Hour

// leased waits for a message for up to so long, and says how long that took.
func leased(t *testing.T, q *Queue, within time.Duration) (*Lease, time.Duration) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	l, err := q.Next(ctx)
	if err != nil {
		t.Fatalf("nothing was handed out within %v", within)
	}
	return l, time.Since(began)
}

// TestMailOfAClockThatWasAhead: a message is accepted, and another deferred for ten minutes, while the clock is
// ten years ahead. The clock is set right, with or without a restart. All mail leaves, that which is accepted later
// too, and its age counts from when the clock was set.
func TestMailOfAClockThatWasAhead(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprint("restart=", restart), func(t *testing.T) {
			inTime(t, func(t *testing.T) { mailOfAClockThatWasAhead(t, restart) })
		})
	}
}

func mailOfAClockThatWasAhead(t *testing.T, restart bool) {
	clock, book := &wrongClock{}, &logBook{}
	cfg := clock.config(small(t, vfs.Memory()))
	cfg.Log = book.logger()
	cfg.MaxAge = func(string) time.Duration { return 5 * 24 * time.Hour }
	q := open(t, cfg)
	clock.set(tenYears)
	deferred := accept(t, q, message(1, "deferred.example"), "x")
	next(t, q)
	q.Defer(deferred.ID, []int{0}, clock.Now().Add(10*time.Minute), Attempt{Reply: greylisted}, "site")
	fresh := accept(t, q, message(1, "fresh.example"), "x")
	if !restart {
		next(t, q)
		q.Return(fresh.ID, []int{0})
	}
	clock.set(0)
	if restart {
		shut(t, q)
		q = open(t, cfg)
	}
	defer func() { shut(t, q) }()
	later := accept(t, q, message(1, "later.example"), "x")
	waited := map[envelope.ID]time.Duration{}
	for range 3 {
		l, _ := leased(t, q, time.Hour)
		waited[l.Message.ID] = time.Since(later.Received)
		if age := time.Since(l.Recipients[0].Since); age < 0 || age > time.Hour {
			t.Errorf("%s: its age counts from %v, and it is %v", l.Message.Recipients[0].Address, l.Recipients[0].Since, time.Now())
		}
		if l.Message.ID != later.ID {
			q.Defer(l.Message.ID, []int{0}, clock.Now().Add(30*24*time.Hour), Attempt{Reply: greylisted}, "site")
		} else {
			q.Settle(later.ID, []int{0}, Delivered)
		}
	}
	t.Logf("left after: accepted ahead %v, deferred for 10m ahead %v, accepted later %v", waited[fresh.ID], waited[deferred.ID], waited[later.ID])
	for _, x := range []struct {
		what string
		id   envelope.ID
		most time.Duration
	}{
		{"accepted while the clock was ahead", fresh.ID, time.Minute},
		{"accepted later", later.ID, time.Minute},
		{"deferred while the clock was ahead", deferred.ID, 12 * time.Minute},
	} {
		if waited[x.id] > x.most {
			t.Errorf("mail %s waited %v, want at most %v", x.what, waited[x.id], x.most)
		}
	}
	if !strings.Contains(book.String(), "clock") {
		t.Errorf("the log has no word about the clock:\n%s", book)
	}
	// Restarts don't make it young again.
	began := time.Now()
	for range 4 {
		time.Sleep(24 * time.Hour)
		shut(t, q)
		q = open(t, cfg)
		accept(t, q, message(1, "example.net"), "x")
		q.Settle(next(t, q).Message.ID, []int{0}, Delivered)
	}
	for range 2 {
		l, _ := leased(t, q, 3*24*time.Hour)
		if l.Why != Expired {
			t.Fatalf("%s was handed out as %v", l.Message.Recipients[0].Address, l.Why)
		}
		q.Settle(l.Message.ID, []int{0}, Expired)
	}
	if age := time.Since(began); age < 119*time.Hour || age > 121*time.Hour {
		t.Errorf("expired %v after the clock was set, want 120h", age)
	}
}

// TestScheduledMailKeepsItsTime whatever the clock did meanwhile.
func TestScheduledMailKeepsItsTime(t *testing.T) {
	inTime(t, func(t *testing.T) {
		clock := &wrongClock{}
		q := open(t, clock.config(small(t, vfs.Memory())))
		defer shut(t, q)
		m := message(1, "example.net")
		m.Release = time.Now().Add(5 * time.Hour)
		accept(t, q, m, "x")
		clock.set(2 * time.Hour)
		time.Sleep(10 * time.Minute)
		clock.set(0)
		l, _ := leased(t, q, 6*time.Hour)
		if late := time.Since(m.Release); l.Message.ID != m.ID || late < 0 || late > time.Minute {
			t.Fatalf("released %v after its time", late)
		}
	})
}

// TestUnknownFormatEndsTheStart: whatever kind of record a newer program has written, and whether or not the
// segment has an index, the start ends and names file, place and version; nothing is changed.
func TestUnknownFormatEndsTheStart(t *testing.T) {
	seg := journal.Segment{Number: 1, Salt: 9}
	name := "/q/" + segmentBase(seg) + segmentSuffix
	for kind := kindOpened; kind <= kindSynced+1; kind++ {
		fs := vfs.Memory()
		b, start := journal.Begin(nil)
		b = journal.Finish(appendOpening(b, opening{}), start, seg, 0, kindOpened, 0)
		off := len(b)
		b, start = journal.Begin(b)
		b = journal.Finish(append(b, make([]byte, 100)...), start, seg, 0, kind, 5)
		b[start+journal.HeaderSize] = codecVersion + 1
		b = journal.Finish(b[:off+journal.HeaderSize+100], start, seg, 0, kind, 5)
		w, _ := fs.Create(name)
		w.WriteAt(b, 0)
		_, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1})
		want := []string{name, fmt.Sprintf("offset %d", off), fmt.Sprintf("version %d", codecVersion+1), kindNames[kind], "start that one"}
		if kind > kindSynced {
			want[2] = fmt.Sprintf("kind %d", kind)
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("kind %d: %v\nwant an error with %q", kind, err, w)
			}
		}
		if report, err := Fsck("/q", fs, nil); err != nil || len(report.Damage) != 1 || !strings.Contains(report.Damage[0].AtStart, "does not start") {
			t.Errorf("fsck: %v %+v", err, report)
		}
		// The same from the index alone.
		ix := newIndex(seg)
		ix.form, ix.end = codecVersion+1, int64(len(b))
		if err := ix.write(fs, "/q/"+segmentBase(seg)+indexSuffix); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d", codecVersion+1)) {
			t.Errorf("with an index: %v", err)
		}
	}
}

// TestOlderFormats opens queues as earlier versions have left them.
func TestOlderFormats(t *testing.T) {
	dirs, err := filepath.Glob("testdata/format*")
	if err != nil || len(dirs) == 0 {
		t.Fatal("no queue of an earlier version", err)
	}
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			work := t.TempDir()
			if err := os.CopyFS(work, os.DirFS(dir)); err != nil {
				t.Fatal(err)
			}
			q := open(t, Config{Dir: work, Log: testLog(t), SegmentSize: 16 << 10, LargeBody: 2 << 10, MinFree: 1})
			defer shut(t, q)
			got := map[string]string{}
			for _, it := range list(t, q) {
				r := it.Recipients[0]
				got[string(it.Sender)] = fmt.Sprint(len(it.Recipients), r.State == StateHeld, r.Attempts, r.Last.Text, r.Key, len(bodyOf(t, q, it.ID)), it.Received.Year())
			}
			want := map[string]string{
				"due@x": "2 false 0   100 2026", "half@x": "1 false 0   100 2026", "deferred@x": "1 false 1 come back later site 100 2026",
				"held@x": "1 true 0   100 2026", "large@x": "1 false 0   9000 2026", "moved@x": "1 false 1 come back later site 100 2026",
			}
			for sender, w := range want {
				if norm(got[sender]) != norm(w) {
					t.Errorf("%s: %q, want %q", sender, got[sender], w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d messages, want %d: %v", len(got), len(want), got)
			}
			if s := balanced(t, q); s.DamagedRecords != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func norm(s string) string { return strings.ReplaceAll(s, " ", "") }

func list(t *testing.T, q *Queue) (all []Item) {
	t.Helper()
	all, next, err := q.List(Filter{}, Page{})
	if err != nil || next != "" {
		t.Fatal(err, next)
	}
	return all
}
