package accounting

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
	"example.org/mta/internal/linelog"
)

// synced is a disk that counts what was synced, and whose syncs fail or hang.
type syncedDisk struct {
	disk
	durable int // octets
	written int
	fail    int // that many syncs fail
}

type syncedFile struct {
	diskFile
	of *syncedDisk
}

func (d *syncedDisk) open(path string, create bool) (linelog.OutFile, error) {
	f, err := d.disk.open(path, create)
	if err != nil {
		return nil, err
	}
	return syncedFile{f.(diskFile), d}, nil
}

func (f syncedFile) Write(b []byte) (int, error) {
	n, err := f.diskFile.Write(b)
	f.of.written += n
	return n, err
}

var errSync = errors.New("input/output error")

func (f syncedFile) Sync() error {
	f.of.Lock()
	defer f.of.Unlock()
	if f.of.fail > 0 {
		f.of.fail--
		return errSync
	}
	f.of.durable = f.of.written
	return nil
}

func TestAnOutcomeWaitsForItsRecord(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &syncedDisk{disk: disk{free: 1 << 30}}
		w := open(t, Config{Dir: t.TempDir(), Open: d.open})
		defer closed(t, w)
		one := len(appendRecord(nil, numbered(0), `""`))
		now := false
		w.After(func() { now = true })
		if !now {
			t.Error("it waited though there was no record to wait for")
		}
		var done []string
		for i := range 3 {
			w.Add(numbered(i))
			w.After(func() { // on the writer's goroutine, or on this one
				d.Lock()
				defer d.Unlock()
				done = append(done, fmt.Sprintf("%d with %d records synced", i, d.durable/one))
			})
			time.Sleep(writeDelay / 2)
		}
		time.Sleep(2 * writeDelay)
		synctest.Wait()
		d.Lock()
		defer d.Unlock()
		if got := strings.Join(done, ", "); !strings.HasPrefix(got, "0 with ") || len(done) != 3 || strings.Contains(got, "with 0") {
			t.Errorf("done: %s", got)
		}
	})
}

// A disk that takes no records, or does not answer, holds up no mail.
func TestABrokenDiskHoldsUpNoOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &syncedDisk{disk: disk{free: 1 << 30}}
		w := open(t, Config{Dir: t.TempDir(), Open: d.open})
		defer closed(t, w)
		began := time.Now()
		within := func(what string, limit time.Duration) {
			t.Helper()
			done := make(chan time.Duration, 1)
			start := time.Now()
			w.Add(numbered(0))
			w.After(func() { done <- time.Since(start) })
			if took := <-done; took > limit {
				t.Errorf("%s: an outcome waited %v", what, took)
			}
		}
		within("a good disk", writeDelay)
		d.set(0)
		within("a full disk", writeDelay)
		within("a disk that was full", 0)
		d.set(1 << 30)
		time.Sleep(retryDelay)
		synctest.Wait()
		within("a disk that has room again", writeDelay)
		d.Lock()
		d.fail = 1
		d.Unlock()
		within("a sync that fails", writeDelay)
		time.Sleep(retryDelay)
		synctest.Wait()
		d.Lock()
		d.hold = make(chan struct{})
		d.Unlock()
		within("a disk that hangs", longestHold+writeDelay)
		within("a disk that has not answered", 0)
		close(d.hold)
		synctest.Wait()
		within("a disk that answers", writeDelay)
		if time.Since(began) > time.Minute || w.Stats().Lost > 0 {
			t.Errorf("took %v, %+v", time.Since(began), w.Stats())
		}
	})
}

// What could not be synced is written again, and is there once.
func TestAFailedSyncLosesAndRepeatsNothing(t *testing.T) {
	for _, bad := range []bool{false, true} {
		bubble.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			d := &syncedDisk{disk: disk{free: 1 << 30, bad: bad}}
			one := len(appendRecord(nil, numbered(0), `""`))
			w := open(t, Config{Dir: dir, Open: d.open, Limits: Limits{RotateSize: int64(4*one + one/2)}})
			for i := range 10 {
				if i%3 == 1 {
					d.Lock()
					d.fail = 1
					d.Unlock()
				}
				w.Add(numbered(i))
				time.Sleep(2 * retryDelay)
				synctest.Wait()
			}
			closed(t, w)
			got := readAll(t, dir)
			if bad { // what can't be taken back stays: twice, but not lost
				got = slices.CompactFunc(got, func(a, b *Record) bool { return a.ID == b.ID })
			}
			wantSeries(t, got, 10)
		})
	}
}

func TestDurable(t *testing.T) {
	d := &syncedDisk{disk: disk{free: 1 << 30}}
	one := len(appendRecord(nil, numbered(0), `""`))
	w := open(t, Config{Dir: t.TempDir(), Open: d.open, Buffer: 3 * one})
	if err := w.Durable(t.Context(), numbered(0), numbered(1)); err != nil || d.durable != d.written || d.written == 0 {
		t.Errorf("%v with %d octets durable, want %d", err, d.durable, d.written)
	}
	d.set(0)
	if err := w.Durable(t.Context(), numbered(2)); !errors.Is(err, errFull) {
		t.Errorf("on a full disk: %v", err)
	}
	for range 3 {
		w.Add(numbered(3))
	}
	if err := w.Durable(t.Context(), numbered(4)); !errors.Is(err, ErrFull) {
		t.Errorf("with full memory: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	d.set(1 << 30)
	if err := w.Durable(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("of a caller who has gone: %v", err)
	}
	closed(t, w)
}

// An outcome waits for a record that is being written, though none waits to be; after Close none waits.
func TestAnOutcomeWaitsForTheWriteUnderWay(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &syncedDisk{disk: disk{free: 1 << 30, hold: make(chan struct{})}}
		w := open(t, Config{Dir: t.TempDir(), Open: d.open})
		w.Add(numbered(0))
		time.Sleep(2 * writeDelay) // the write has begun
		synctest.Wait()
		var done atomic.Bool
		w.After(func() { done.Store(true) })
		synctest.Wait()
		if done.Load() {
			t.Error("it did not wait for the write under way")
		}
		close(d.hold)
		time.Sleep(2 * writeDelay)
		synctest.Wait()
		if !done.Load() {
			t.Error("it waits though the record is durable")
		}
		w.Add(numbered(1))
		closed(t, w)
		late := false
		if w.After(func() { late = true }); !late {
			t.Error("it waits for a writer that has ended")
		}
	})
}

// Records that are dropped hold up no outcome, on a disk that hangs either.
func TestDroppedRecordsHoldUpNoOutcome(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		d := &syncedDisk{disk: disk{free: 1 << 30, hold: make(chan struct{})}}
		w := open(t, Config{Dir: t.TempDir(), Buffer: 10_000, Open: d.open})
		w.Add(numbered(0))
		time.Sleep(writeDelay + longestHold/2) // the write has begun
		for i := 1; w.Stats().Lost == 0; i++ {
			w.Add(numbered(i))
		}
		now := false
		if w.After(func() { now = true }); !now {
			t.Error("an outcome waits though records are dropped")
		}
		close(d.hold)
		closed(t, w)
	})
}
