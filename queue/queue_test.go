package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLog sends the queue's log to the test's.
func testLog(t testing.TB) *slog.Logger {
	return slog.New(slog.NewTextHandler(writerTo{t}, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

type writerTo struct{ t testing.TB }

func (w writerTo) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}

// small is a configuration with tiny segments, so that a test sees many of them.
func small(t testing.TB, fs vfs.FS) Config {
	return Config{Dir: "/q", FS: fs, Log: testLog(t), SegmentSize: 16 << 10, LargeBody: 2 << 10, MinFree: 1}
}

func open(t testing.TB, cfg Config) *Queue {
	t.Helper()
	q, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.Close() }) // when the test has failed
	return q
}

func shut(t testing.TB, q *Queue) {
	t.Helper()
	if err := q.Close(); err != nil {
		t.Error(err)
	}
}

// message makes one for n recipients at a domain.
func message(n int, domain string) *envelope.Message {
	m := &envelope.Message{Sender: "sender@example.com", Tenant: "acme"}
	for i := range n {
		m.Recipients = append(m.Recipients, envelope.Recipient{Address: envelope.Address(fmt.Sprintf("r%d@%s", i, domain))})
	}
	return m
}

// accept commits a message with some content.
func accept(t testing.TB, q *Queue, m *envelope.Message, body string) *envelope.Message {
	t.Helper()
	if err := commit(q, m, body); err != nil {
		t.Fatal(err)
	}
	return m
}

func commit(q *Queue, m *envelope.Message, body string) error {
	d := q.Begin()
	defer d.Abort()
	if _, err := io.Copy(d, struct{ io.Reader }{strings.NewReader(body)}); err != nil {
		return err
	}
	return d.Commit(m)
}

func next(t testing.TB, q *Queue) *Lease {
	t.Helper()
	l, err := q.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// nothing fails the test if Next has something within a second.
func nothing(t testing.TB, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if l, err := q.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Next gave %+v, %v; want nothing", l, err)
	}
}

func bodyOf(t testing.TB, q *Queue, id envelope.ID) string {
	t.Helper()
	r, err := q.Body(id)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func indexes(l *Lease) []int {
	var list []int
	for _, p := range l.Recipients {
		list = append(list, p.Index)
	}
	return list
}

// balanced checks that every recipient is accounted for.
func balanced(t testing.TB, q *Queue) Stats {
	t.Helper()
	s := q.Stats()
	if s.Recovered+s.Accepted != s.Delivered+s.Bounced+s.Expired+s.Removed+s.Transferred+s.Queued {
		t.Fatalf("recovered %d + accepted %d != delivered %d + bounced %d + expired %d + removed %d + queued %d",
			s.Recovered, s.Accepted, s.Delivered, s.Bounced, s.Expired, s.Removed, s.Queued)
	}
	if s.Queued != s.Due+s.Deferred+s.Parked+s.Held+s.Leased+s.Ending+s.Unreadable {
		t.Fatalf("states do not add up to %d queued: %+v", s.Queued, s)
	}
	return s
}

var greylisted = reply.Reply{Code: 451, Enhanced: reply.Enhanced{4, 7, 1}, Text: "come back later", Command: "RCPT"}

// inTime runs f where time passes only when all goroutines wait.
func inTime(t *testing.T, f func(*testing.T)) { bubble.Test(t, f) }

func TestAcceptAndDeliver(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := accept(t, q, message(3, "example.net"), "Subject: x\r\n\r\nhello\r\n")
		if m.ID == 0 || m.Size != 21 || m.Received.IsZero() {
			t.Fatalf("id %s size %d received %v", m.ID, m.Size, m.Received)
		}
		l := next(t, q)
		if l.Why != Due || l.Message.ID != m.ID || len(l.Recipients) != 3 {
			t.Fatalf("lease %+v", l)
		}
		if got := bodyOf(t, q, m.ID); got != "Subject: x\r\n\r\nhello\r\n" {
			t.Fatalf("body %q", got)
		}
		nothing(t, q)
		if err := q.Settle(m.ID, []int{2, 0}, Delivered); err != nil {
			t.Fatal(err)
		}
		balanced(t, q)
		if err := q.Settle(m.ID, []int{0, 1}, Bounced); !errors.Is(err, ErrUnknown) {
			t.Fatalf("settling a recipient twice: %v", err)
		}
		s := balanced(t, q)
		if s.Delivered != 2 || s.Bounced != 1 || s.Queued != 0 || s.CacheBytes != 0 {
			t.Fatalf("%+v", s)
		}
		if _, err := q.Body(m.ID); !errors.Is(err, ErrUnknown) {
			t.Fatalf("body of a settled message: %v", err)
		}
	})
}

func TestDeferAndRetry(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		m := accept(t, q, message(2, "example.net"), "x")
		l := next(t, q)
		until := time.Now().Add(90 * time.Second)
		if err := q.Defer(m.ID, indexes(l), until, Attempt{Reply: greylisted}, site("site")); err != nil {
			t.Fatal(err)
		}
		if s := balanced(t, q); s.Deferred != 2 || s.CacheBytes != 0 {
			t.Fatalf("%+v", s)
		}
		for i := range 3 {
			l = next(t, q)
			if now := time.Now(); now.Before(until) || now.After(until.Add(2*time.Second)) {
				t.Fatalf("due at %v, handed out at %v", until, now)
			}
			if len(l.Recipients) != 2 || l.Recipients[1].Attempts != i+1 || l.Recipients[1].Last != greylisted || l.Recipients[1].Key != site("site") {
				t.Fatalf("lease %+v", l)
			}
			if got := bodyOf(t, q, m.ID); got != "x" {
				t.Fatalf("body %q", got)
			}
			until = time.Now().Add(time.Hour << (4 * i))
			q.Defer(m.ID, indexes(l), until, Attempt{Reply: greylisted}, site("site"))
		}
	})
}

func TestParkAndTake(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		var ids []envelope.ID
		for i := range 50 {
			ids = append(ids, accept(t, q, message(1+i%3, "example.net"), strings.Repeat("x", i)).ID)
			l := next(t, q)
			q.Park(l.Message.ID, indexes(l), siteLine("site"), time.Time{})
		}
		nothing(t, q)
		if s := balanced(t, q); s.Parked != s.Queued || s.CacheBytes != 0 || s.Keys != 1 {
			t.Fatalf("%+v", s)
		}
		if got := q.Take(siteLine("elsewhere"), 5); len(got) != 0 {
			t.Fatalf("took %d from a key that nothing waits under", len(got))
		}
		for i := 0; i < 50; i += 7 {
			for j, l := range q.Take(siteLine("site"), 7) {
				if l.Message.ID != ids[i+j] || len(l.Recipients) != 1+(i+j)%3 {
					t.Fatalf("took %s with %d recipients, want message %d", l.Message.ID, len(l.Recipients), i+j)
				}
				if got := bodyOf(t, q, l.Message.ID); got != strings.Repeat("x", i+j) {
					t.Fatalf("body %q of message %d", got, i+j)
				}
				q.Return(l.Message.ID, indexes(l))
			}
		}
		for range 50 {
			l := next(t, q)
			if l.Recipients[0].Attempts != 0 {
				t.Fatal("a returned recipient has an attempt")
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if s := balanced(t, q); s.Queued != 0 || s.Keys != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestLines: what is parked in a line is taken by that name only, and is of the key for all else.
func TestLines(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		accept(t, q, message(3, "example.net"), "x")
		l := next(t, q)
		lines := []parking.Line{{Key: site("site"), Source: "a"}, {Key: site("site"), Source: "b"}, siteLine("site")}
		for i, line := range lines {
			q.Park(l.Message.ID, []int{i}, line, time.Time{})
		}
		f := Filter{Key: site("site")}
		if sum := q.Summary(f); len(sum) != 1 || sum[0].Key != site("site") || sum[0].Total != 3 {
			t.Errorf("summary %+v", sum)
		}
		listed, err := q.List(f, Page{})
		items := listed.Items
		if err != nil || len(items) != 1 || len(items[0].Recipients) != 3 {
			t.Fatalf("listed: %+v, %v", items, err)
		}
		for i, want := range lines {
			if r := items[0].Recipients[i]; r.Line != want {
				t.Errorf("recipient %d is in line %+v, want %+v", i, r.Line, want)
			}
		}
		for i, line := range lines {
			if n := q.Parked(line); n != 1 {
				t.Errorf("%d wait in %q", n, line)
			}
			got := q.Take(line, 9)
			if len(got) != 1 || len(got[0].Recipients) != 1 || got[0].Recipients[0].Index != i || got[0].Recipients[0].Key != site("site") {
				t.Errorf("of %q were taken: %+v", line, got)
			}
		}
		q.Settle(l.Message.ID, indexes(l), Delivered)
		if s := balanced(t, q); s.Keys != 0 {
			t.Errorf("%d keys are left", s.Keys)
		}
	})
}

// What is newest can be had first, and then what is oldest.
func TestTakeNewest(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		var ids []envelope.ID
		for range 10 {
			ids = append(ids, accept(t, q, message(2, "example.net"), "x").ID)
			l := next(t, q)
			q.Park(l.Message.ID, indexes(l), siteLine("site"), time.Time{})
		}
		for i, l := range q.TakeNewest(siteLine("site"), 3) {
			if l.Message.ID != ids[9-i] || len(l.Recipients) != 2 {
				t.Errorf("took %s with %d recipients, want message %d", l.Message.ID, len(l.Recipients), 9-i)
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		for i, l := range append(q.Take(siteLine("site"), 3), q.TakeNewest(siteLine("site"), 9)...) {
			if want := []int{0, 1, 2, 6, 5, 4, 3}[i]; l.Message.ID != ids[want] {
				t.Errorf("took %s, want message %d", l.Message.ID, want)
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if s := balanced(t, q); s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// A deferral without an attempt counts none, and its reason is remembered, over a restart too.
func TestDeferUntried(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		q := open(t, cfg)
		m := accept(t, q, message(1, "example.net"), "x")
		next(t, q)
		q.Defer(m.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted, Untried: true}, site("site"))
		time.Sleep(time.Minute)
		l := next(t, q)
		if p := l.Recipients[0]; p.Attempts != 0 || p.Last != greylisted {
			t.Errorf("%d attempts, last reply %v", p.Attempts, p.Last)
		}
		q.Defer(m.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
		time.Sleep(time.Minute)
		next(t, q)
		q.Defer(m.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted, Untried: true}, site("site"))
		shut(t, q)
		q = open(t, cfg)
		defer shut(t, q)
		time.Sleep(time.Minute)
		l = next(t, q)
		if p := l.Recipients[0]; p.Attempts != 1 || p.Last != greylisted {
			t.Errorf("after a restart: %d attempts, last reply %v", p.Attempts, p.Last)
		}
		q.Settle(m.ID, []int{0}, Delivered)
	})
}

func TestFreshMailIsNotBehindTheBacklog(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		for range 20 {
			m := accept(t, q, message(1, "old.example"), "x")
			next(t, q)
			q.Defer(m.ID, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, parking.Key{})
		}
		time.Sleep(2 * time.Minute)
		for range 5 {
			accept(t, q, message(1, "new.example"), "x")
		}
		fresh := 0
		for range 10 {
			if l := next(t, q); l.Recipients[0].Attempts == 0 {
				fresh++
			}
		}
		if fresh != 5 {
			t.Fatalf("%d of the first 10 are new, want all 5", fresh)
		}
	})
}

func TestRestart(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		cfg := small(t, fs)
		q := open(t, cfg)
		rng := rand.New(rand.NewSource(1))
		bodies := map[envelope.ID]string{}
		for i := range 300 {
			body := strings.Repeat(string(rune('a'+i%26)), rng.Intn(3000))
			bodies[accept(t, q, message(1+i%4, "example.net"), body).ID] = body
		}
		want := map[recipientKey]Pending{}
		for range 300 {
			l := next(t, q)
			for _, p := range l.Recipients {
				k := recipientKey{uint64(l.Message.ID), uint16(p.Index)}
				switch rng.Intn(4) {
				case 0:
					q.Settle(l.Message.ID, []int{p.Index}, Delivered)
				case 1:
					q.Park(l.Message.ID, []int{p.Index}, siteLine("parked"), time.Time{})
					want[k] = Pending{}
				case 2:
					key := site(fmt.Sprint("site", rng.Intn(5)))
					last := greylisted
					last.Text = fmt.Sprint(key, " says no")
					q.Defer(l.Message.ID, []int{p.Index}, time.Now().Add(time.Duration(rng.Intn(3600))*time.Second), Attempt{Reply: last, Via: "by " + key.Name}, key)
					want[k] = Pending{Attempts: 1, Last: last, Via: "by " + key.Name, Key: key}
				default:
					want[k] = Pending{} // still leased
				}
			}
		}
		before := balanced(t, q)
		for range 3 {
			shut(t, q)
			q = open(t, cfg)
		}
		defer func() { shut(t, q) }()
		s := balanced(t, q)
		if s.Recovered != before.Queued || s.Queued != int64(len(want)) {
			t.Fatalf("%d recovered, %d were queued, want %d", s.Recovered, before.Queued, len(want))
		}
		for len(want) > 0 {
			l := next(t, q)
			if got := bodyOf(t, q, l.Message.ID); got != bodies[l.Message.ID] {
				t.Fatalf("message %s has a content of %d octets, want %d", l.Message.ID, len(got), len(bodies[l.Message.ID]))
			}
			for _, p := range l.Recipients {
				k := recipientKey{uint64(l.Message.ID), uint16(p.Index)}
				w, ok := want[k]
				if !ok || w.Attempts != p.Attempts || w.Last != p.Last || w.Via != p.Via || w.Key != p.Key {
					t.Fatalf("recipient %v is %+v, want %+v %v", k, p, w, ok)
				}
				delete(want, k)
			}
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if s := balanced(t, q); s.Queued != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestLargeContent(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		cfg := small(t, fs)
		q := open(t, cfg)
		body := strings.Repeat("0123456789abcdef", 5000)
		m := accept(t, q, message(1, "example.net"), body)
		d := q.Begin()
		d.Write(bytes.Repeat([]byte("y"), 10000))
		if n := largeFiles(t, fs); n != 2 {
			t.Fatalf("%d files of large contents, want 2", n)
		}
		d.Abort()
		if n := largeFiles(t, fs); n != 1 {
			t.Fatalf("%d files of large contents after an abort, want 1", n)
		}
		if s := balanced(t, q); s.LargeBodies != 1 || s.Bytes < 80000 {
			t.Fatalf("%+v", s)
		}
		shut(t, q)
		q = open(t, cfg)
		l := next(t, q)
		if l.Message.ID != m.ID || l.Message.Size != int64(len(body)) || bodyOf(t, q, m.ID) != body {
			t.Fatalf("%+v", l.Message)
		}
		q.Settle(m.ID, []int{0}, Delivered)
		time.Sleep(time.Second)
		if n := largeFiles(t, fs); n != 0 {
			t.Fatalf("%d files of large contents after it was settled, want none", n)
		}
		shut(t, q)
	})
}

func largeFiles(t *testing.T, fs vfs.FS) int {
	list, err := fs.List("/q/" + store.LargeDir)
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestReadOnly: of a queue that is only read nothing changes, whatever there would be to tidy up, and no warning names
// that it doesn't.
func TestReadOnly(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs, log := vfstest.Memory(), new(bytes.Buffer)
		cfg := small(t, fs)
		q := open(t, cfg)
		large := accept(t, q, message(1, "example.net"), strings.Repeat("x", 10_000))
		orphan := q.dir.LargePath(99)
		shut(t, q)
		q = open(t, cfg)
		for range 60 {
			accept(t, q, message(1, "example.net"), strings.Repeat("y", 1000))
		}
		shut(t, q)
		f, err := fs.Create(orphan)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		for _, x := range filesOf(t, fs) { // a queue that may makes its indexes again
			if strings.HasSuffix(x.Name, store.IndexSuffix) {
				fs.Remove("/q/" + x.Name)
			}
		}
		before := filesOf(t, fs)

		cfg.ReadOnly, cfg.Log = true, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
		q = open(t, cfg)
		if s := q.Stats(); s.Queued != 61 || len(bodyOf(t, q, large.ID)) != 10_000 {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if text := log.String(); text != "" {
			t.Errorf("the log has\n%s", text)
		}
		if commit(q, message(1, "example.net"), "z") == nil {
			t.Error("a message is accepted")
		}
		if q.Close() == nil {
			t.Error("the end reports no failed message")
		}
		if after := filesOf(t, fs); !slices.Equal(after, before) {
			t.Errorf("the files are\n%v, were\n%v", after, before)
		}
		if n := largeFiles(t, fs); n != 2 {
			t.Errorf("%d files of large contents, want 2", n)
		}
	})
}

func TestOneQueuePerDirectory(t *testing.T) {
	cfg := Config{Dir: t.TempDir(), MinFree: 1}
	q := open(t, cfg)
	if _, err := Open(cfg); !errors.Is(err, ErrLocked) {
		t.Fatalf("a second queue in the directory: %v", err)
	}
	shut(t, q)
	shut(t, open(t, cfg))
}

// TestClosed: after Close nothing is promised any more.
func TestClosed(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		m := accept(t, q, message(1, "example.net"), "x")
		next(t, q)
		waiting := make(chan error)
		go func() {
			_, err := q.Next(context.Background())
			waiting <- err
		}()
		synctest.Wait()
		shut(t, q)
		if err := <-waiting; !errors.Is(err, ErrClosed) {
			t.Errorf("Next under way: %v", err)
		}
		if err := commit(q, message(1, "example.net"), "x"); !errors.Is(err, ErrClosed) {
			t.Errorf("Commit: %v", err)
		}
		if err := q.Settle(m.ID, []int{0}, Delivered); !errors.Is(err, ErrClosed) {
			t.Errorf("Settle: %v", err)
		}
		if err := q.Defer(m.ID, []int{0}, time.Now(), Attempt{Reply: greylisted}, parking.Key{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Defer: %v", err)
		}
		if err := q.Ready(fair.Party{}, 0); !errors.Is(err, ErrClosed) {
			t.Errorf("Ready: %v", err)
		}
		if err := q.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("Close: %v", err)
		}
	})
}

// TestLoneMessageWaitsForNothing: without company a message costs one sync and no delay.
func TestLoneMessageWaitsForNothing(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		began := time.Now()
		for i := range 10 {
			accept(t, q, message(1, "example.net"), "x")
			if s := q.Stats(); s.Syncs != uint64(i+1) || time.Since(began) != 0 {
				t.Fatalf("%d messages: %d syncs, %v", i+1, s.Syncs, time.Since(began))
			}
		}
		l := next(t, q)
		q.Settle(l.Message.ID, []int{0}, Delivered)
		synctest.Wait()
		if s := q.Stats(); s.Syncs != 10 || s.Unwritten == 0 {
			t.Fatalf("an outcome did not wait for company: %+v", s)
		}
		time.Sleep(noteDelay)
		synctest.Wait()
		if s := q.Stats(); s.Syncs != 11 || s.Unwritten != 0 {
			t.Fatalf("an outcome waits longer than %v: %+v", noteDelay, s)
		}
	})
}

// site is the key of a site, and siteLine the line of that with nothing but the key.
func site(name string) parking.Key { return parking.Key{Name: name} }

func siteLine(name string) parking.Line { return parking.Line{Key: site(name)} }
