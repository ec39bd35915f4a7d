package queue

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"slices"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs/vfstest"
)

// later makes a message for n recipients that is to be released after a while.
func later(n int, domain string, after, spread time.Duration) *envelope.Message {
	m := message(n, domain)
	m.Release, m.Spread = time.Now().Add(after), spread
	return m
}

// A job with N recipients that is to be released later is in the time-ordered set, not among what
// is due, and has no attempt; it comes out when its time has come, as new mail does.
func TestT1_AJobForLaterIsInTheTimeSet(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := accept(t, q, later(100, "example.net", time.Hour, 0), "Subject: later\r\n\r\n")
		now := accept(t, q, message(1, "example.net"), "x")
		if s := balanced(t, q); s.Deferred != 100 || s.Due != 1 || s.CacheBytes > 8<<10 {
			t.Fatalf("%d deferred, %d due, %d octets in the cache; want the 100 to wait outside it", s.Deferred, s.Due, s.CacheBytes)
		}
		if l := next(t, q); l.Message.ID != now.ID {
			t.Fatalf("%s came out, want %s that is not scheduled", l.Message.ID, now.ID)
		}
		nothing(t, q)
		it, err := q.Get(m.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range it.Recipients {
			if !r.Scheduled || r.Attempts != 0 || r.State != StateDeferred || r.Next.Before(m.Release) || r.Next.Sub(m.Release) >= time.Second {
				t.Fatalf("recipient %d is %s after %d attempts, next %v, scheduled %v; want it scheduled for %v", r.Index, r.State, r.Attempts, r.Next, r.Scheduled, m.Release)
			}
		}
		l := next(t, q)
		if late := time.Since(m.Release); l.Message.ID != m.ID || len(l.Recipients) != 100 || l.Recipients[0].Attempts != 0 || late < 0 || late > time.Second {
			t.Fatalf("%s with %d recipients came out %v after its time", l.Message.ID, len(l.Recipients), late)
		}
		if got := bodyOf(t, q, m.ID); got != "Subject: later\r\n\r\n" {
			t.Fatalf("content %q", got)
		}
		q.Defer(m.ID, indexes(l), time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
		if it, _ = q.Get(m.ID); it.Recipients[0].Scheduled {
			t.Error("still called scheduled after an attempt")
		}
	})
}

// The time of release survives a restart and the moving of the message by compaction, and is to be
// seen in the envelope again.
func TestT1_TheReleaseSurvivesRestarts(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		want := map[recipientKey]time.Time{}
		for i := range 30 {
			m := accept(t, q, later(3, "example.net", time.Hour+time.Duration(i)*time.Minute, 10*time.Minute), fmt.Sprint(i))
			for r := range m.Recipients {
				want[recipientKey{uint64(m.ID), uint16(r)}] = m.ReleaseOf(r)
			}
			for range 40 { // so that the segments are mostly dead, and are compacted
				accept(t, q, message(1, "example.org"), string(body2K[:500]))
				l := next(t, q)
				q.Settle(l.Message.ID, indexes(l), Delivered)
			}
			time.Sleep(time.Second)
		}
		if s := balanced(t, q); s.Moved == 0 || s.Deferred != 90 {
			t.Fatalf("%d messages were moved, %d recipients are deferred", s.Moved, s.Deferred)
		}
		for range 2 {
			shut(t, q)
			q = open(t, cfg)
		}
		defer func() { shut(t, q) }()
		if s := balanced(t, q); s.Deferred != 90 || s.Due != 0 {
			t.Fatalf("after a restart %d are deferred, %d due", s.Deferred, s.Due)
		}
		for len(want) > 0 {
			l := next(t, q)
			for _, p := range l.Recipients {
				k := recipientKey{uint64(l.Message.ID), uint16(p.Index)}
				at, ok := want[k]
				if late := time.Since(at); !ok || late < 0 || late > 2*time.Second {
					t.Fatalf("recipient %v came out %v after its time (known: %v)", k, late, ok)
				}
				if !l.Message.ReleaseOf(p.Index).Equal(ceil(at)) || p.Attempts != 0 {
					t.Fatalf("the envelope says %v after %d attempts, want %v", l.Message.ReleaseOf(p.Index), p.Attempts, at)
				}
				delete(want, k)
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if n := q.s.Starts.Len(); n != 0 {
			t.Errorf("%d starts are remembered of messages that are gone", n)
		}
	})
}

// ceil gives a time in whole seconds, as records have it.
func ceil(t time.Time) time.Time { return time.Unix(int64(store.SecondsOf(t)), 0) }

// Whenever the power goes, a scheduled message is in the queue with its time, or not at all: it is
// never due early.
func TestT1_APowerCutReleasesNothingEarly(t *testing.T) {
	for cut := 1; ; cut++ {
		done := false
		inTime(t, func(t *testing.T) {
			disk := vfstest.NewDisk(rand.New(rand.NewSource(int64(cut))))
			disk.CutAt(cut)
			acked := map[envelope.ID]bool{}
			cfg := Config{Dir: "/q", FS: disk, SegmentSize: 8 << 10, MinFree: 1}
			if q, err := Open(cfg); err == nil {
				for i := range 12 {
					m := later(2, "example.net", time.Hour, time.Minute)
					if commit(q, m, fmt.Sprint("message ", i)) == nil {
						acked[m.ID] = true
					}
				}
				q.Close()
			}
			done = !disk.IsCut()
			disk = disk.Reboot()
			disk.CutAt(0)
			cfg.FS = disk
			q := open(t, cfg)
			defer shut(t, q)
			s := balanced(t, q)
			if s.Due != 0 || s.Deferred != s.Queued || s.Queued < int64(2*len(acked)) {
				t.Errorf("cut at operation %d: %d due, %d deferred of %d, %d messages acknowledged", cut, s.Due, s.Deferred, s.Queued, len(acked))
			}
			nothing(t, q)
		})
		if done || t.Failed() {
			t.Logf("the power was cut at %d places", cut-1)
			return
		}
	}
}

// An operator's retry leaves scheduled mail its time, unless that is meant, too; then it goes out at once; hold and release keep its time, and all of that
// is durable.
func TestT1_OperatorsActOnScheduledMail(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		hurried := accept(t, q, later(2, "example.net", 24*time.Hour, 0), "x")
		held := accept(t, q, later(2, "example.net", time.Hour, 0), "x")
		change := func(id envelope.ID, a Action) {
			t.Helper()
			if n, err := q.Change(Selector{IDs: []envelope.ID{id}}, a, false); n != 2 || err != nil {
				t.Fatalf("%s of %d recipients: %v", a, n, err)
			}
		}
		if n, err := q.Change(Selector{All: true}, RetryNow, false); n != 0 || err != nil {
			t.Fatalf("retry of everything made %d scheduled recipients due: %v", n, err)
		}
		change(hurried.ID, RetryScheduled)
		change(held.ID, Hold)
		if l := next(t, q); l.Message.ID != hurried.ID {
			t.Fatalf("%s came out, want the one to be tried at once", l.Message.ID)
		}
		shut(t, q)
		q = open(t, cfg)
		defer func() { shut(t, q) }()
		if l := next(t, q); l.Message.ID != hurried.ID || len(l.Recipients) != 2 {
			t.Fatalf("%s came out after a restart, want the one to be tried at once", l.Message.ID)
		}
		change(held.ID, Unhold)
		nothing(t, q)
		if it, err := q.Get(held.ID); err != nil || !it.Recipients[0].Scheduled {
			t.Fatalf("after hold and release: %+v %v", it, err)
		}
		next(t, q)
		if late := time.Since(held.Release); late < 0 || late > time.Second {
			t.Errorf("released %v after its time", late)
		}
	})
}

// The age at which mail expires and senders are told of a delay counts from the release,
// and a restart changes nothing of that.
func TestT1_AgeCountsFromTheRelease(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.MaxAge = func() time.Duration { return 10 * time.Hour }
		cfg.DelayAfter = func() time.Duration { return 4 * time.Hour }
		q := open(t, cfg)
		m := accept(t, q, later(1, "example.net", 30*time.Hour, time.Hour), "x")
		start := ceil(m.Release.Add(time.Hour))
		l := next(t, q)
		for l.Why == Due {
			if !l.Recipients[0].Since.Equal(start) {
				t.Fatalf("age counts from %v, want %v", l.Recipients[0].Since, start)
			}
			q.Defer(m.ID, []int{0}, time.Now().Add(20*time.Minute), Attempt{Reply: greylisted}, site("site"))
			if time.Since(start) > time.Hour {
				shut(t, q)
				q = open(t, cfg)
			}
			l = next(t, q)
		}
		defer func() { shut(t, q) }()
		if age := time.Since(start); l.Why != DelayWarning || age < 4*time.Hour || age > 4*time.Hour+2*time.Minute {
			t.Fatalf("%s %v after the release, want the warning after 4 h", l.Why, age)
		}
		q.Warned(m.ID, []int{0})
		for l = next(t, q); l.Why == Due; l = next(t, q) {
			q.Defer(m.ID, []int{0}, time.Now().Add(20*time.Minute), Attempt{Reply: greylisted}, site("site"))
		}
		if age := time.Since(start); l.Why != Expired || age < 10*time.Hour || age > 10*time.Hour+2*time.Minute {
			t.Fatalf("%s %v after the release, want it to expire after 10 h", l.Why, age)
		}
	})
}

var heldRecipients = flag.Int("queue.held", 0, "recipients that TestT2_ReleaseIsInTime holds, by the real clock; 0: 20,000 in virtual time")

// Held entries are released in the second that they are for: p99 under a second.
//
// With -queue.held=3000000 it measures by the real clock, at the rate of release of 3 M in half an
// hour, while the rest waits.
func TestT2_ReleaseIsInTime(t *testing.T) {
	if *heldRecipients > 0 {
		releaseInTime(t, Config{Dir: t.TempDir(), MinFree: 1}, *heldRecipients, 20*time.Second)
		return
	}
	inTime(t, func(t *testing.T) {
		releaseInTime(t, Config{Dir: "/q", FS: vfstest.Memory(), MinFree: 1}, 20_000, 10*time.Minute)
	})
}

// releaseInTime holds n recipients, of which those of the first window are released within the
// test, at 3 M in half an hour or all of them, and the others a day later.
func releaseInTime(t *testing.T, cfg Config, n int, window time.Duration) {
	q := open(t, cfg)
	defer shut(t, q)
	const perMessage = 10
	first := min(n, int(window.Seconds())*3_000_000/1800) / perMessage * perMessage
	began, release := time.Now(), time.Now().Add(5*time.Second+time.Duration(n)*10*time.Microsecond)
	each(n/perMessage, 256, func(i int) {
		m := message(perMessage, "example.net")
		m.Release, m.Spread = release, window
		if i >= first/perMessage {
			m.Release = release.Add(24 * time.Hour)
		}
		if err := commit(q, m, "Subject: later\r\n\r\n"); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d recipients accepted in %v, %d MB of schedule", n, time.Since(began).Round(time.Millisecond), q.Stats().MemoryBytes>>20)
	if s := q.Stats(); time.Now().Before(release) && s.Due != 0 {
		t.Fatalf("%d are due before the first is released", s.Due)
	}
	began = time.Now()
	cpu := cpuTime()
	var late []time.Duration
	for len(late) < first {
		ctx, cancel := context.WithTimeout(context.Background(), window+time.Minute)
		l, err := q.Next(ctx)
		cancel()
		if err != nil {
			t.Fatalf("after %d of %d: %v", len(late), first, err)
		}
		for _, p := range l.Recipients {
			late = append(late, time.Since(l.Message.ReleaseOf(p.Index)))
		}
		q.Settle(l.Message.ID, indexes(l), Delivered)
	}
	slices.Sort(late)
	p99 := late[len(late)*99/100]
	t.Logf("%d released in %v with %v of CPU: earliest %v, median %v, p99 %v, last %v", len(late), time.Since(began).Round(time.Millisecond),
		(cpuTime() - cpu).Round(time.Millisecond), late[0], late[len(late)/2], p99, late[len(late)-1])
	if late[0] < 0 {
		t.Errorf("one was released %v early", -late[0])
	}
	if p99 >= time.Second {
		t.Errorf("p99 of the release error is %v, want less than 1 s", p99)
	}
	if s := balanced(t, q); s.Deferred != int64(n-first) {
		t.Errorf("%d are still held, want %d", s.Deferred, n-first)
	}
}

// A job of many that is spread over half an hour leaves evenly: any minute has between 2.5 and
// 4.2 % of it, whether it is one message or many.
func TestT7_AJitteredJobLeavesEvenly(t *testing.T) {
	const window = 30 * time.Minute
	for _, job := range []struct {
		name                 string
		messages, recipients int
	}{{"one message", 1, 10_000}, {"many messages", 10_000, 1}, {"batches", 200, 50}} {
		t.Run(job.name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				q := open(t, Config{Dir: "/q", FS: vfstest.Memory(), MinFree: 1})
				defer shut(t, q)
				release := time.Now().Add(time.Hour)
				for range job.messages {
					m := message(job.recipients, "example.net")
					m.Release, m.Spread = release, window
					accept(t, q, m, "x")
				}
				var minutes [30]int
				total := job.messages * job.recipients
				for left := total; left > 0; {
					l := next(t, q)
					at := time.Since(release)
					minute := int(at / time.Minute)
					if at < 0 || minute > 30 {
						t.Fatalf("released %v after the window began", at)
					}
					minutes[min(minute, 29)] += len(l.Recipients) // 30:00 is what was due in the last second
					left -= len(l.Recipients)
					q.Settle(l.Message.ID, indexes(l), Delivered)
				}
				for minute, n := range minutes {
					if share := 100 * float64(n) / float64(total); share < 2.5 || share > 4.2 {
						t.Errorf("minute %d has %.2f %%, want 2.5 to 4.2", minute, share)
					}
				}
				t.Logf("least %d, most %d of %d in a minute", slices.Min(minutes[:]), slices.Max(minutes[:]), total)
			})
		})
	}
}

// Nothing is released before its time, by the fraction of a second either: not when it is accepted,
// and not after a restart just before.
func TestT2_NotAFractionOfASecondTooSoon(t *testing.T) {
	for _, hold := range []time.Duration{500 * time.Millisecond, 1500 * time.Millisecond} {
		for _, restart := range []bool{false, true} {
			inTime(t, func(t *testing.T) {
				fs := vfstest.Memory()
				q := open(t, small(t, fs))
				defer func() { shut(t, q) }()
				time.Sleep(100 * time.Millisecond)
				m := message(1, "example.net")
				m.Release = time.Now().Add(hold)
				accept(t, q, m, "x")
				if restart {
					time.Sleep(time.Until(m.Release) - 100*time.Millisecond)
					shut(t, q)
					q = open(t, small(t, fs))
				}
				next(t, q)
				if early := time.Until(m.Release); early > 0 || early < -time.Second {
					t.Errorf("held for %v, restart %v: released %v before its time", hold, restart, early)
				}
			})
		}
	}
}
