package history

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// TestRun: a sample for each step, and a file that is not older than ten minutes.
func TestRun(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		time.Sleep(700 * time.Millisecond) // the start is at no step's end
		path := filepath.Join(t.TempDir(), "history")
		m := newMeter()
		config := Config{Meter: m, Path: path, Now: time.Now, Log: slog.New(slog.DiscardHandler)}
		h := Open(config)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); h.Run(ctx) }()
		time.Sleep(21 * time.Minute)
		synctest.Wait()
		known := func(h *History, sp Span) (n int) {
			_, all, _ := h.Get(Relay, "", sp)
			for _, v := range all[0].Values {
				if v == 0 {
					n++
				}
			}
			return n
		}
		if n := known(h, Minutes); n != Minutes.Values() {
			t.Errorf("%d values of 2 s are known, want %d", n, Minutes.Values())
		}
		if n := known(Open(config), Days); n != 3 {
			t.Errorf("the file has %d values after 21 min, want 3", n)
		}
		m.mu.Lock()
		m.of(Relay, "").Level(Queued, 900)
		m.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		<-done
		_, all, _ := Open(config).Get(Relay, "", Days)
		if mean := all[5].Values[Days.Values()-1]; all[5].Figure != Queued || mean < 400 || mean > 500 {
			t.Errorf("the file has %v %v at the end, want the mean of a minute without and one with 900", mean, all[5].Figure)
		}
	})
}

// TestAnEndBeforeTheFirstSample writes nothing: the file has all that is known.
func TestAnEndBeforeTheFirstSample(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "history")
		run := func(d time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			Open(Config{Meter: newMeter(), Path: path, Now: time.Now, Log: slog.New(slog.DiscardHandler)}).Run(ctx)
		}
		run(time.Millisecond)
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file without a sample: %v", err)
		}
		run(time.Minute)
		before, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		run(time.Millisecond)
		if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
			t.Errorf("the file was written again: %v", err)
		}
	})
}

func BenchmarkSample(b *testing.B) {
	w := full("")
	for b.Loop() {
		w.now = w.now.Add(2 * time.Second)
		w.Sample(w.now)
	}
}

func BenchmarkSave(b *testing.B) {
	w := full(filepath.Join(b.TempDir(), "history"))
	for b.Loop() {
		if err := w.Save(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	w := full("")
	for b.Loop() {
		w.Get(Relay, "", Days)
	}
}
