package queue

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
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
	cfg := clock.config(small(t, vfstest.Memory()))
	cfg.Log = book.logger()
	cfg.MaxAge = func() time.Duration { return 5 * 24 * time.Hour }
	q := open(t, cfg)
	clock.set(tenYears)
	deferred := accept(t, q, message(1, "deferred.example"), "x")
	next(t, q)
	q.Defer(deferred.ID, []int{0}, clock.Now().Add(10*time.Minute), Attempt{Reply: greylisted}, site("site"))
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
			q.Defer(l.Message.ID, []int{0}, clock.Now().Add(30*24*time.Hour), Attempt{Reply: greylisted}, site("site"))
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
		q := open(t, clock.config(small(t, vfstest.Memory())))
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
	seg := store.SegmentID{Number: 1, Salt: 9}
	name := "/q/" + store.SegmentBase(seg) + store.SegmentSuffix
	for kind := store.KindOpened; kind <= store.KindKeyed+1; kind++ {
		fs := vfstest.Memory()
		b, start := store.BeginRecord(nil)
		b = store.FinishRecord(store.AppendOpening(b, store.CodecVersion, store.Opening{}), start, seg, 0, store.KindOpened, 0)
		off := len(b)
		b, start = store.BeginRecord(b)
		b = store.FinishRecord(append(b, make([]byte, 100)...), start, seg, 0, kind, 5)
		b[start+store.HeaderSize] = store.CodecVersion + 1
		b = store.FinishRecord(b[:off+store.HeaderSize+100], start, seg, 0, kind, 5)
		w, _ := fs.Create(name)
		w.WriteAt(b, 0)
		_, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1})
		want := []string{name, fmt.Sprintf("offset %d", off), fmt.Sprintf("version %d", store.CodecVersion+1), store.KindNames[kind], "start that one"}
		if kind > store.KindKeyed {
			want[2] = fmt.Sprintf("kind %d", kind)
		}
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("kind %d: %v\nwant an error with %q", kind, err, w)
			}
		}
		if report, err := store.Fsck("/q", fs, nil); err != nil || len(report.Damage) != 1 || !strings.Contains(report.Damage[0].AtStart, "does not start") {
			t.Errorf("fsck: %v %+v", err, report)
		}
		// The same from the index alone.
		ix := store.NewIndex(seg)
		ix.Form, ix.End = store.CodecVersion+1, int64(len(b))
		if err := ix.Write(fs, "/q/"+store.SegmentBase(seg)+store.IndexSuffix); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("version %d", store.CodecVersion+1)) {
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
				got[string(it.Sender)] = fmt.Sprint(len(it.Recipients), r.State == StateHeld, r.Attempts, r.Last.Text, r.Line, len(bodyOf(t, q, it.ID)), it.Received.Year())
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
	l, err := q.List(Filter{}, Page{})
	if err != nil || l.Next != "" {
		t.Fatal(err, l.Next)
	}
	return l.Items
}

// TestMailOverdueByAMomentOfAWrongClock: a message is deferred for ten minutes while the clock is years ahead.
// The clock goes further ahead for half a second, in which another message is deferred, and the first is overdue
// before the queue's clock has run; then it is right. Both are due in ten minutes at the latest.
func TestMailOverdueByAMomentOfAWrongClock(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, ahead := range []time.Duration{5 * year, 20 * 24 * time.Hour, 2 * time.Hour} {
		t.Run(ahead.String(), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				clock := &wrongClock{}
				q := open(t, clock.config(small(t, vfstest.Memory())))
				defer func() { shut(t, q) }()
				putOff := func() {
					m := accept(t, q, message(1, "deferred.example"), "x")
					next(t, q)
					if err := q.Defer(m.ID, []int{0}, clock.Now().Add(10*time.Minute), Attempt{Reply: greylisted}, site("site")); err != nil {
						t.Fatal(err)
					}
				}
				clock.set(ahead)
				putOff()
				time.Sleep(2*time.Second + 100*time.Millisecond) // between two runs of the queue's clock
				clock.set(2 * ahead)
				putOff()
				time.Sleep(500 * time.Millisecond)
				clock.set(0)
				for range 2 {
					l, waited := leased(t, q, time.Hour)
					if waited > 11*time.Minute {
						t.Errorf("%s waited %v once the clock was right, want 10m at most", l.Message.ID, waited)
					}
					q.Settle(l.Message.ID, []int{0}, Delivered)
				}
			})
		})
	}
}

// expiring gives a configuration whose mail expires after five days, with the clock and the log of a test.
func expiring(t *testing.T, clock *wrongClock, book *logBook) Config {
	cfg := clock.config(small(t, vfstest.Memory()))
	cfg.Log = book.logger()
	cfg.MaxAge = func() time.Duration { return 5 * 24 * time.Hour }
	cfg.DelayAfter = func() time.Duration { return 5 * time.Hour }
	return cfg
}

// queued has a message deferred for a year.
func queued(t *testing.T, q *Queue, clock *wrongClock) {
	t.Helper()
	m := accept(t, q, message(1, "deferred.example"), "x")
	next(t, q)
	if err := q.Defer(m.ID, []int{0}, clock.Now().Add(365*24*time.Hour), Attempt{Reply: greylisted}, site("site")); err != nil {
		t.Fatal(err)
	}
}

// nothingFor fails if anything is handed out within a time.
func nothingFor(t *testing.T, q *Queue, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	if l, err := q.Next(ctx); err == nil {
		t.Fatalf("handed out as %v", l.Why)
	}
}

// TestNothingExpiresByAJumpAhead: the clock goes ahead by ten days. For six hours no mail expires, and no
// sender is warned; then the clock is believed, whether or not the relay was started again meanwhile. A clock that is
// right again in time ends no mail at all.
func TestNothingExpiresByAJumpAhead(t *testing.T) {
	for _, x := range []struct {
		name           string
		restart, right bool
	}{{"running", false, false}, {"restarted", true, false}, {"right again", false, true}} {
		t.Run(x.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				clock, book := &wrongClock{}, &logBook{}
				cfg := expiring(t, clock, book)
				q := open(t, cfg)
				defer func() { shut(t, q) }()
				queued(t, q, clock)
				time.Sleep(10 * time.Minute)
				clock.set(10 * 24 * time.Hour)
				nothingFor(t, q, 3*time.Hour)
				if s := q.Stats(); !strings.Contains(s.Clock, "jumped ahead by 240h0m0s") || !strings.Contains(s.Clock, "another 3h0m") {
					t.Errorf("the clock's report is %q", s.Clock)
				}
				if n := strings.Count(book.String(), "jumped ahead"); n != 1 {
					t.Errorf("%d lines in the log about the jump, want 1:\n%s", n, book)
				}
				if x.restart {
					queued(t, q, clock) // something written after the jump: it is no longer seen at the start
					shut(t, q)
					q = open(t, cfg)
				}
				if x.right {
					clock.set(0)
					nothingFor(t, q, 30*time.Minute)
					if s := q.Stats(); !strings.Contains(s.Clock, "set back by 240h0m0s") {
						t.Errorf("the clock's report is %q", s.Clock)
					}
					nothingFor(t, q, 40*time.Minute)
					if s := q.Stats(); s.Clock != "" || !q.NothingExpiresBefore().IsZero() {
						t.Errorf("the clock's report is still %q", s.Clock)
					}
					return
				}
				began := time.Now()
				l, _ := leased(t, q, 4*time.Hour)
				if held := time.Since(began); l.Why != Expired || held < 179*time.Minute || held > 182*time.Minute {
					t.Errorf("handed out as %v after 3h and %v, want expired after 6h", l.Why, held)
				}
				if s := q.Stats(); s.Clock != "" {
					t.Errorf("the clock's report is still %q", s.Clock)
				}
				q.Settle(l.Message.ID, []int{0}, Expired)
			})
		})
	}
}

// TestNothingExpiresAtOnceAfterALongSilence: mail is ten days old by the clock when the relay starts. Either the
// relay was off for so long, or the clock is wrong: for six hours nothing expires. A restart of an idle relay
// without mail, or after less than a day, is no reason for a doubt.
func TestNothingExpiresAtOnceAfterALongSilence(t *testing.T) {
	for _, x := range []struct {
		silence time.Duration
		mail    bool
		want    time.Duration
	}{{240 * time.Hour, true, 6 * time.Hour}, {23 * time.Hour, true, 0}, {240 * time.Hour, false, 0}} {
		t.Run(fmt.Sprint(x.silence, " mail=", x.mail), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				clock, book := &wrongClock{}, &logBook{}
				cfg := expiring(t, clock, book)
				cfg.DelayAfter = nil
				q := open(t, cfg)
				queued(t, q, clock)
				if !x.mail {
					q.Change(Selector{All: true}, Remove, false)
				}
				shut(t, q)
				clock.set(x.silence)
				q = open(t, cfg)
				defer func() { shut(t, q) }()
				doubt := max(q.NothingExpiresBefore().Sub(clock.Now()), 0)
				if (doubt-x.want).Abs() > time.Second || (q.Stats().Clock != "") != (x.want > 0) {
					t.Errorf("nothing expires for %v, want %v; report %q", doubt, x.want, q.Stats().Clock)
				}
				if x.want > 0 {
					nothingFor(t, q, x.want-time.Minute)
					if l, _ := leased(t, q, 3*time.Minute); l.Why != Expired {
						t.Errorf("handed out as %v", l.Why)
					}
				}
			})
		})
	}
}

// TestRepeatedJumpsEndTheDoubt: mail expires on a machine that is suspended for most of each hour, too.
func TestRepeatedJumpsEndTheDoubt(t *testing.T) {
	inTime(t, func(t *testing.T) {
		clock, book := &wrongClock{}, &logBook{}
		cfg := expiring(t, clock, book)
		cfg.DelayAfter = nil
		q := open(t, cfg)
		defer func() { shut(t, q) }()
		queued(t, q, clock)
		began, ahead := time.Now(), time.Duration(0)
		for range 8 * 24 {
			ahead += 50 * time.Minute
			clock.set(ahead)
			ctx, cancel := context.WithTimeout(context.Background(), 11*time.Minute)
			l, err := q.Next(ctx)
			cancel()
			switch age := clock.Now().Sub(began); {
			case err != nil:
			case l.Why != Expired || age < 5*24*time.Hour || age > 7*24*time.Hour:
				t.Errorf("handed out as %v at an age of %v", l.Why, age)
				return
			default:
				return
			}
		}
		t.Error("nothing expired within eight days by the clock")
	})
}

// TestDeferralReckonedBeforeTheClockWentBack: until was reckoned by the clock as it was, and the queue has noticed
// meanwhile that the clock was set back.
func TestDeferralReckonedBeforeTheClockWentBack(t *testing.T) {
	inTime(t, func(t *testing.T) {
		clock := &wrongClock{}
		q := open(t, clock.config(small(t, vfstest.Memory())))
		defer func() { shut(t, q) }()
		clock.set(tenYears)
		time.Sleep(2 * time.Second)
		m := accept(t, q, message(1, "example.net"), "x")
		next(t, q)
		until := clock.Now().Add(10 * time.Minute)
		clock.set(0)
		time.Sleep(2 * time.Second)
		if err := q.Defer(m.ID, []int{0}, until, Attempt{Reply: greylisted}, site("site")); err != nil {
			t.Fatal(err)
		}
		if _, waited := leased(t, q, time.Hour); waited < 9*time.Minute || waited > 11*time.Minute {
			t.Errorf("waited %v, want 10m", waited)
		}
	})
}

// TestOpenedRecordsOfOlderForms: the doubt about the clock came with form 5.
func TestOpenedRecordsOfOlderForms(t *testing.T) {
	o := store.Opening{LastID: 7, Allocated: 1 << 20, Created: time.Unix(1e9, 0).UTC(), Marks: []schedule.Arrival{{ID: 3, At: 4}}, Doubted: time.Unix(2e9, 0), Ahead: time.Hour}
	b := store.AppendOpening(nil, store.CodecVersion, o)
	got, err := store.DecodeOpening(b)
	if err != nil || !got.Doubted.Equal(o.Doubted) || got.Ahead != o.Ahead || got.LastID != 7 || len(got.Marks) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	old := bytes.Clone(b[:len(b)-7]) // two numbers of five and two octets
	old[0] = 4
	got, err = store.DecodeOpening(old)
	if err != nil || got.Doubted.Unix() > 0 || got.Ahead != 0 || got.LastID != 7 || len(got.Marks) != 1 {
		t.Errorf("form 4: %+v, %v", got, err)
	}
}

// TestDueAtTheStart: what a record has of a time, against the clock as it is.
func TestDueAtTheStart(t *testing.T) {
	const now, week = 1_700_000_000, 7 * 24 * 3600
	for name, x := range map[string]struct{ due, said, want uint32 }{
		"has passed":                             {now - 9, now - 99, now - 9},
		"is to come":                             {now + 600, now - 60, now + 600},
		"is to come, after long":                 {now + 30*24*3600, now, now + 30*24*3600},
		"written by a clock that was ahead":      {now + 2*week, now + 2*week - 600, now + 600},
		"and for a time before that":             {now + 5, now + 600, now},
		"in an old form, a week ahead":           {now + week, 0, now + week},
		"in an old form, more than a week ahead": {now + week + 1, 0, now},
	} {
		l := loader{q: &Queue{}, now: now}
		if got := l.due(&store.History{}, &store.RecipientHistory{Due: x.due, Said: x.said}); got != x.want {
			t.Errorf("a time that %s: due %d s from now, want %d", name, int64(got)-now, int64(x.want)-now)
		}
	}
}

// TestMarksOutliveAKill: mail seems to have been accepted a year ahead. When that is noticed its age begins to count,
// and goes on over a kill: the next write has put it on the disk. It is noticed by the queue's clock, or since the next
// message is older.
func TestMarksOutliveAKill(t *testing.T) {
	for _, wait := range []time.Duration{2 * time.Second, 0} {
		t.Run(fmt.Sprint("noticed after ", wait), func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				disk := vfstest.Memory()
				q := open(t, small(t, disk))
				defer func() { shut(t, q) }()
				m := message(1, "example.net")
				m.Received = time.Now().Add(365 * 24 * time.Hour)
				accept(t, q, m, "x")
				time.Sleep(wait)
				began := time.Now()
				for range 2 {
					accept(t, q, message(1, "later.example"), "x")
				}
				for range 3 { // mail that is still there would say so, too
					if l := next(t, q); l.Message.ID != m.ID {
						q.Settle(l.Message.ID, []int{0}, Delivered)
					}
				}
				time.Sleep(2 * time.Second)
				killed := copyOf(t, disk)
				time.Sleep(3 * 24 * time.Hour)
				q2 := open(t, small(t, killed))
				defer func() { shut(t, q2) }()
				for l := next0(t, q2); l != nil; l = next0(t, q2) {
					if age := began.Sub(l.Recipients[0].Since).Abs(); age > time.Minute {
						t.Errorf("%s: its age counts from %v, want %v", l.Message.Recipients[0].Address, l.Recipients[0].Since, began)
					}
				}
			})
		})
	}
}
