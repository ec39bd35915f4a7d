package accounting

import (
	"context"
	"errors"
	"slices"
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
