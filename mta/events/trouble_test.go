package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/mta/accounting"
)

// TestARefusedBatchIsHalved: what can be taken is, in order; the event at fault is set aside.
func TestARefusedBatchIsHalved(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		r.set(func(b *Batch) error {
			for _, e := range b.Events {
				if strings.Contains(string(e.Line), "r137@") || strings.Contains(string(e.Line), "r4@") {
					return &Rejected{Reason: "no"}
				}
			}
			return nil
		})
		g := newGround(t, r.stream("app"))
		g.add(200, "")
		got := r.until(t, 198)
		inOrder(t, got)
		time.Sleep(10 * time.Millisecond)
		s, refused, err := g.streams.Status("app")
		if err != nil || len(refused) != 2 || s.Refused != 2 || refused[0].Reason != "no" || refused[0].Type != "Reception" {
			t.Fatalf("%+v, %+v, %v", s, refused, err)
		}
		if len(r.events()) != 198 {
			t.Errorf("%d events have come, want 198", len(r.events()))
		}
	})
}

// TestPause: it survives a restart, and nothing is missing after it.
func TestPause(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		if err := g.streams.Pause("app"); err != nil {
			t.Fatal(err)
		}
		g.add(1000, "")
		g.stop()
		g.start(r.stream("app"))
		g.add(10, "")
		time.Sleep(30 * time.Millisecond)
		if n := len(r.events()); n != 10 || g.streams.List()[0].State != Paused {
			t.Fatalf("%d events have come to a stream that is paused, %+v", n, g.streams.List())
		}
		if err := g.streams.Resume("app"); err != nil {
			t.Fatal(err)
		}
		got := r.until(t, 1020)
		inOrder(t, got)
		if len(got) != 1020 {
			t.Errorf("%d events have come, want 1020", len(got))
		}
		if err := g.streams.Pause("ap"); !errors.Is(err, ErrUnknown) {
			t.Error(err)
		}
	})
}

// TestAStreamThatCatchesUpSkipsNothing: the cursors of streams at the head move every 15 s, and at a stop. One that fell
// behind, and is near the head again, has yet to read what is before it.
func TestAStreamThatCatchesUpSkipsNothing(t *testing.T) {
	for name, stopped := range map[string]bool{"at a checkpoint": false, "at a stop": true} {
		t.Run(name, func(t *testing.T) {
			bubble.Test(t, func(t *testing.T) {
				var r receiver
				r.set(func(*Batch) error {
					time.Sleep(time.Second)
					return nil
				})
				g := newGround(t, r.stream("app"))
				g.add(2500, "") // more than wait for a stream at the head
				if stopped {
					time.Sleep(checkpointEvery / 2)
					g.stop()
					g.start(r.stream("app"))
				}
				time.Sleep(2 * checkpointEvery)
				if n := len(r.until(t, 2500)); n != 2500 {
					t.Errorf("%d events have come, want 2500", n)
				}
			})
		})
	}
}

// TestAReplayOutlivesAStop: the stream has not begun it when the relay stops.
func TestAReplayOutlivesAStop(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		r.set(func(*Batch) error { return nil })
		g := newGround(t, r.stream("app"))
		g.add(100, "")
		first := r.until(t, 100)
		g.streams.stopSoft()
		synctest.Wait()
		if _, _, err := g.streams.ReplayEvent(t.Context(), "app", first[40].ID, false); err != nil {
			t.Fatal(err)
		}
		g.stop()
		g.start(r.stream("app"))
		time.Sleep(time.Second)
		if got := r.events(); len(got) != 160 || got[100].ID != first[40].ID {
			t.Errorf("%d events have come, want 160", len(got))
		}
	})
}

func TestSkipAndReplay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		var down atomic.Bool
		r.set(func(*Batch) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		})
		g := newGround(t, r.stream("app"))
		g.add(100, "")
		first := r.until(t, 100)
		down.Store(true)
		g.add(300, "")
		time.Sleep(20 * time.Millisecond)
		if _, _, err := g.streams.Skip("app", false); err != nil {
			t.Fatal(err)
		}
		down.Store(false)
		time.Sleep(20 * time.Millisecond)
		g.add(50, "")
		r.until(t, 150)
		if n := len(r.events()); n != 150 {
			t.Fatalf("%d events have come, want 150", n)
		}
		if _, _, err := g.streams.ReplayEvent(t.Context(), "app", first[40].ID, false); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); len(r.events()) < 560 && time.Now().Before(deadline); { // those that had come before come again last
			time.Sleep(time.Millisecond)
		}
		got := r.events()
		if again := got[150:]; again[0].ID != first[40].ID || len(again) != 410 {
			t.Errorf("%d events came again, from %s on", len(again), again[0].ID)
		}
		if _, _, err := g.streams.ReplayEvent(t.Context(), "app", first[40].ID+"0", false); err == nil {
			t.Error("an event that never was is replayed")
		}
		if _, _, err := g.streams.Replay(t.Context(), "app", time.Now().Add(-time.Hour), false); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); len(r.events()) < 560+450 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		if n := len(r.events()); n != 560+450 {
			t.Errorf("%d events have come, want %d", n, 560+450)
		}
	})
}

// TestAnEventForTests goes to the receiver, and changes nothing.
func TestAnEventForTests(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		id, err := g.streams.Test(t.Context(), "app")
		if got := r.events(); err != nil || len(got) != 1 || got[0].ID != id || got[0].Type != "Test" {
			t.Fatalf("%+v, %v", got, err)
		}
		r.set(func(*Batch) error { return errors.New("closed") })
		if _, err := g.streams.Test(t.Context(), "app"); err == nil || err.Error() != "closed" {
			t.Error(err)
		}
	})
}

// TestAGapWhenHoldIsPassed: with a clock that jumps, a receiver that was away for longer than hold gets a Gap first,
// with the number of events, and one that was away for less does not.
func TestAGapWhenHoldIsPassed(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		var down atomic.Bool
		r.set(func(*Batch) error {
			if down.Load() {
				return errors.New("down")
			}
			return nil
		})
		var ahead atomic.Int64
		g := &ground{t: t, dir: t.TempDir(), now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
		g.open(accounting.Limits{})
		defer g.w.Close()
		settings := r.stream("app")
		settings.Batch = 70
		g.start(settings)
		g.add(10, "")
		r.until(t, 10)

		down.Store(true)
		g.add(100, "")
		ahead.Add(int64(50 * time.Minute))
		g.add(100, "")
		down.Store(false)
		g.streams.list()[0].notify()
		if err := g.streams.Resume("app"); err != nil {
			t.Fatal(err)
		}
		got := r.until(t, 210)
		for _, e := range got {
			if e.Type == "Gap" {
				t.Fatalf("a gap before hold was passed: %s", e.Line)
			}
		}

		down.Store(true)
		g.add(100, "") // 210 to 309
		ahead.Add(int64(30 * time.Minute))
		g.add(100, "")
		ahead.Add(int64(40 * time.Minute)) // the first 100 are too old
		g.stop()
		g.start(settings)
		down.Store(false)
		g.add(10, "")
		got = r.until(t, 210+1+110)[210:]
		if len(got) != 111 || got[0].Type != "Gap" {
			t.Fatalf("%d events, the first %s", len(got), got[0].Line)
		}
		var gap notice
		if err := json.Unmarshal(got[0].Line, &gap); err != nil || gap.Count != 100 || gap.Stream != "app" || gap.From >= gap.To || got[1].ID <= gap.To {
			t.Errorf("%s (%v), followed by %s", got[0].Line, err, got[1].ID)
		}
		if s := g.streams.List()[0]; s.Lost != 100 || s.Gaps != 1 {
			t.Errorf("%+v", s)
		}
		g.stop()
	})
}

// TestAGapWhenFilesAreGone: nobody knows how many.
func TestAGapWhenFilesAreGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		g.stop()
		g.w.Close()
		g.open(accounting.Limits{RotateSize: 64 << 10})
		g.add(1000, "")
		g.w.Close()
		names, err := filepath.Glob(filepath.Join(g.dir, "log", "mta-*"))
		if err != nil || len(names) < 3 {
			t.Fatal(names, err)
		}
		slices.Sort(names)
		for _, name := range names[:2] {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		g.open(accounting.Limits{RotateSize: 64 << 10})
		g.start(r.stream("app"))
		g.add(10, "")
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if got := r.events(); len(got) > 11 && strings.Contains(string(got[len(got)-1].Line), "r1019@") {
				break
			}
		}
		got := r.events()
		if got[10].Type != "Gap" || strings.Contains(string(got[10].Line), `"count"`) || strings.Contains(string(got[10].Line), `"Gap"`) == false {
			t.Fatalf("event 10 is %s", got[10].Line)
		}
		if s := g.streams.List()[0]; s.Gaps != 1 || s.Uncounted != 1 || s.Lost != 0 {
			t.Errorf("%+v", s)
		}
		inOrder(t, got)
	})
}

// TestAGapOfBothKinds: events wait for longer than hold, and the file behind them is gone. What the receiver gets claims
// no number and no end that nobody knows.
func TestAGapOfBothKinds(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		var ahead atomic.Int64
		g := &ground{t: t, dir: t.TempDir(), now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
		g.open(accounting.Limits{RotateSize: 64 << 10})
		defer g.w.Close()
		g.start(r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		if err := g.streams.Pause("app"); err != nil {
			t.Fatal(err)
		}
		g.add(1000, "")
		deleted, _, _ := g.deleteFile(1)
		ahead.Add(int64(2 * time.Hour))
		g.add(10, "")
		if err := g.streams.Resume("app"); err != nil {
			t.Fatal(err)
		}
		got := r.until(t, 10+1+10)[10:]
		var gap notice
		if err := json.Unmarshal(got[0].Line, &gap); err != nil || gap.Type != "Gap" || gap.Count != 0 || gap.To != got[1].ID || gap.Since == "" {
			t.Errorf("%s (%v), followed by %s", got[0].Line, err, got[1].ID)
		}
		if s := g.streams.List()[0]; s.Gaps != 1 || s.Uncounted != 1 || s.Lost != 1000-int64(deleted) {
			t.Errorf("%+v", s)
		}
		g.stop()
	})
}

// deleteFile removes one of the log's files, counted from 0, and gives the number of its records, when it begins and when
// the next one does, as positions have it.
func (g *ground) deleteFile(n int) (records int, begins, next string) {
	g.t.Helper()
	names, err := filepath.Glob(filepath.Join(g.dir, "log", "mta-*.jsonl"))
	if err != nil || len(names) < n+2 {
		g.t.Fatal(names, err)
	}
	slices.Sort(names)
	content, err := os.ReadFile(names[n])
	if err == nil {
		err = os.Remove(names[n])
	}
	if err != nil {
		g.t.Fatal(err)
	}
	begin := func(name string) string {
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "mta-"), ".jsonl")
	}
	return strings.Count(string(content), "\n"), begin(names[n]), begin(names[n+1])
}

// TestAGapThatGrowsAfterARestart counts once more.
func TestAGapThatGrowsAfterARestart(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		r.set(func(*Batch) error { return errors.New("down") })
		var ahead atomic.Int64
		g := &ground{t: t, dir: t.TempDir(), now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }}
		g.open(accounting.Limits{})
		defer g.w.Close()
		g.start(r.stream("app"))
		for range 2 {
			g.add(100, "")
			g.stop()
			ahead.Add(int64(2 * time.Hour))
			g.start(r.stream("app"))
			for deadline := time.Now().Add(time.Hour); g.streams.List()[0].Lost < 100 && time.Now().Before(deadline); {
				time.Sleep(time.Second)
			}
			if s := g.streams.List()[0]; s.Lost != 100 || s.Gaps != 1 || s.GapAt.IsZero() {
				t.Errorf("%+v", s)
			}
		}
		g.stop()
	})
}

// TestAGapWhenAFileInTheMiddleIsGone: a stream that is behind learns that a file is missing, and gets what follows.
func TestAGapWhenAFileInTheMiddleIsGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t)
		g.stop()
		g.w.Close()
		g.open(accounting.Limits{RotateSize: 64 << 10})
		g.start(r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		if err := g.streams.Pause("app"); err != nil {
			t.Fatal(err)
		}
		g.add(1000, "")
		deleted, begun, next := g.deleteFile(2)
		if err := g.streams.Resume("app"); err != nil {
			t.Fatal(err)
		}
		got := r.until(t, 1010-deleted+1)
		gaps := slices.DeleteFunc(slices.Clone(got), func(e Event) bool { return e.Type != "Gap" })
		if len(gaps) != 1 || !strings.Contains(string(gaps[0].Line), begun+"-000000000000") || !strings.Contains(string(gaps[0].Line), next+"-000000000000") {
			t.Errorf("the gaps are %q, want one from %s to %s", gaps, begun, next)
		}
		inOrder(t, got)
	})
}

// TestAGapWhenAllFilesAreGone: the newest is missed by its reader, too.
func TestAGapWhenAllFilesAreGone(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		if err := g.streams.Pause("app"); err != nil {
			t.Fatal(err)
		}
		g.add(10, "")
		names, err := filepath.Glob(filepath.Join(g.dir, "log", "mta-*"))
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			os.Remove(name)
		}
		if err := g.streams.Resume("app"); err != nil {
			t.Fatal(err)
		}
		if got := r.until(t, 11); got[10].Type != "Gap" {
			t.Errorf("event 10 is %s", got[10].Line)
		}
	})
}

// TestWhatWasJustWritten is behind a stream that is at the head, also before the head has read it.
func TestWhatWasJustWritten(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		for range 50 {
			g.add(1, "")
			s := g.streams.List()[0]
			if sent := len(r.events()); sent < g.added && s.LagEvents+s.LagBytes == 0 {
				t.Fatalf("%d of %d events are sent, and %+v", sent, g.added, s)
			}
			r.until(t, g.added)
			synctest.Wait()
			if s := g.streams.List()[0]; s.LagEvents+s.LagBytes > 0 {
				t.Errorf("all is sent, and %+v", s)
			}
		}
	})
}

// TestSlowAndFast: a stream that is too slow falls behind, reads files, and is back at the head in the end; another of
// the same selection does not wait for it.
func TestSlowAndFast(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var fast, slow receiver
		gate := make(chan struct{})
		slow.set(func(*Batch) error { <-gate; return nil })
		lanes := slow.stream("slow")
		lanes.Name = "slow"
		g := newGround(t, fast.stream("fast"), lanes)
		for range 40 {
			g.add(100, "")
			fast.until(t, g.added)
		}
		if s := g.streams.List()[1]; s.State != Behind || s.LagBytes == 0 || s.LagEvents < 2000 {
			t.Errorf("the slow stream: %+v", s)
		}
		g.streams.head.mu.Lock()
		if w := g.streams.head.waiting; w > 100*1000 {
			t.Errorf("%d octets wait for a stream that is behind", w)
		}
		g.streams.head.mu.Unlock()
		close(gate)
		got := slow.until(t, 4000)
		inOrder(t, got)
		if len(got) != 4000 {
			t.Errorf("%d events have come", len(got))
		}
		g.add(100, "")
		slow.until(t, 4100)
		for deadline := time.Now().Add(5 * time.Second); g.streams.List()[1].State != Following; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%+v", g.streams.List()[1])
			}
		}
	})
}

// TestNoMemoryForWindowsThatWait: a window that can't be kept is read again, and its batch is the same.
func TestNoMemoryForWindowsThatWait(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		seen := make(map[string]bool)
		n := 0
		r.set(func(b *Batch) error {
			if n++; n <= 2 {
				seen[b.ID] = true
				return &Later{After: 0, Reason: "not now"}
			}
			if n == 3 && !seen[b.ID] {
				t.Errorf("the batch %s with %d events is another", b.ID, len(b.Events))
			}
			return nil
		})
		g := newGround(t)
		g.streams.held.Store(heldBytes)
		if err := g.streams.Set([]Settings{r.stream("app")}); err != nil {
			t.Fatal(err)
		}
		g.add(30, "")
		time.Sleep(30 * time.Millisecond)
		g.add(500, "")
		got := r.until(t, 530)
		inOrder(t, got)
		if len(got) != 530 {
			t.Errorf("%d events have come", len(got))
		}
	})
}

// TestReload: a stream that is changed goes on from its cursor, one that is removed keeps it for a while.
func TestReload(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		settings := r.stream("app")
		g := newGround(t, settings)
		g.add(100, "")
		r.until(t, 100)
		settings.Batch = 10
		if err := g.streams.Set([]Settings{settings}); err != nil {
			t.Fatal(err)
		}
		g.add(100, "")
		r.until(t, 200)
		if err := g.streams.Set(nil); err != nil {
			t.Fatal(err)
		}
		if _, needed := g.streams.Needed(); needed {
			t.Error("a stream that is gone needs files")
		}
		g.add(100, "")
		g.stop()
		g.start(settings)
		got := r.until(t, 300)
		if inOrder(t, got); len(got) != 300 {
			t.Errorf("%d events have come", len(got))
		}
		broken := settings
		broken.Name, broken.Open = "broken", func() (Sink, error) { return nil, errors.New("no such CA") }
		if err := g.streams.Set([]Settings{settings, broken}); err == nil || len(g.streams.List()) != 1 {
			t.Error(err)
		}
	})
}

// hanging is a sink whose receiver never answers.
type hanging struct{}

func (hanging) Send(ctx context.Context, _ *Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

func (hanging) Close() error { return nil }

// TestReloadOfManyWhoHang: they end together, not one after the other.
func TestReloadOfManyWhoHang(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		var settings []Settings
		for i := range 50 {
			s := r.stream(fmt.Sprintf("hook-%d", i))
			s.Open = func() (Sink, error) { return hanging{}, nil }
			settings = append(settings, s)
		}
		g := newGround(t, settings...)
		g.add(10, "")
		time.Sleep(time.Second)
		began := time.Now()
		if err := g.streams.Set(nil); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < time.Second || took > 2*endWithin {
			t.Errorf("the reload took %v", took)
		}
	})
}

// TestALogThatWasReplaced: the clock was set back, and the new log has an earlier name than the cursor.
func TestALogThatWasReplaced(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(10, "")
		r.until(t, 10)
		g.stop()
		g.w.Close()
		if err := os.RemoveAll(filepath.Join(g.dir, "log")); err != nil {
			t.Fatal(err)
		}
		g.now = func() time.Time { return time.Now().Add(-30 * time.Minute) }
		g.open(accounting.Limits{})
		g.add(10, "")
		g.start(r.stream("app"))
		g.add(10, "")
		if got := r.until(t, 30); len(got) != 30 {
			t.Errorf("%d events have come", len(got))
		}
	})
}

// TestDamagedCursors: they are set aside, and no event is missing.
func TestDamagedCursors(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		var r receiver
		g := newGround(t, r.stream("app"))
		g.add(100, "")
		r.until(t, 100)
		g.stop()
		if err := os.WriteFile(filepath.Join(g.dir, "streams.db"), []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
		g.add(100, "")
		g.start(r.stream("app"))
		if got := r.until(t, 200); len(got) != 300 {
			t.Errorf("%d events have come, want all 200 and the first 100 twice", len(got))
		}
	})
}

func TestBackoff(t *testing.T) {
	s := &Streams{chance: func() float64 { return 1 }}
	for _, c := range []struct {
		tries int
		err   error
		want  time.Duration
	}{
		{1, errors.New("x"), 1500 * time.Millisecond}, {2, errors.New("x"), 3 * time.Second}, {9, errors.New("x"), 5 * time.Minute}, {1000, errors.New("x"), 5 * time.Minute},
		{1, &Later{After: 20 * time.Second}, 20 * time.Second}, {5, fmt.Errorf("so: %w", &Later{}), time.Second}, {1, &Later{After: 1000 * time.Hour}, time.Hour},
	} {
		if got := s.backoff(c.tries, c.err); got != c.want {
			t.Errorf("after %d failures (%v): %s, want %s", c.tries, c.err, got, c.want)
		}
	}
}
