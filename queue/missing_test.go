package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sync/atomic"
	"syscall"

	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// filesOf returns what is in a queue's directory.
func filesOf(t *testing.T, fs vfs.FS) []vfs.Info {
	t.Helper()
	all, err := fs.List("/q")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// compacted has a queue write several segments, of which some are compacted and dropped.
func compacted(t *testing.T, q *Queue) {
	t.Helper()
	for i := range 90 {
		m := accept(t, q, message(1, "churn.example"), strings.Repeat("x", 1500))
		if i > 30 && i%6 != 0 {
			for next(t, q).Message.ID != m.ID {
			}
			q.Settle(m.ID, []int{0}, Delivered)
		}
	}
	time.Sleep(time.Minute)
	if s := q.Stats(); s.Compacted == 0 || s.Segments < 3 {
		t.Fatalf("compaction emptied %d segments, and %d are there", s.Compacted, s.Segments)
	}
}

// TestNoSegmentIsMissedInSilence: without any one of its segments, the newest included, a queue does not open, whether it
// was closed, killed, or closed without having written; fsck names the file. Put back, all mail is there. With an empty
// file in its place the queue opens, and has damage or names each message that it can't read.
func TestNoSegmentIsMissedInSilence(t *testing.T) {
	for state, end := range map[string]func(*testing.T, *Queue, vfs.FS) vfs.FS{
		"closed": func(t *testing.T, q *Queue, disk vfs.FS) vfs.FS { shut(t, q); return disk },
		"killed": func(t *testing.T, q *Queue, disk vfs.FS) vfs.FS { defer shut(t, q); return copyOf(t, disk) },
		"closed, started and closed": func(t *testing.T, q *Queue, disk vfs.FS) vfs.FS {
			shut(t, q)
			shut(t, open(t, small(t, disk)))
			return disk
		},
	} {
		t.Run(state, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				disk := vfs.FS(vfstest.Memory())
				q := open(t, small(t, disk))
				compacted(t, q)
				queued := q.Stats().Queued
				disk = end(t, q, disk)
				for _, f := range filesOf(t, disk) {
					if strings.HasSuffix(f.Name, store.SegmentSuffix) {
						loseSegment(t, disk, "/q/"+f.Name, queued)
					}
				}
			})
		})
	}
}

func loseSegment(t *testing.T, disk vfs.FS, path string, queued int64) {
	t.Helper()
	fs := copyOf(t, disk)
	if err := fs.Rename(path, "/aside"); err != nil {
		t.Fatal(err)
	}
	number := path[:len("/q/00000001")]
	if _, err := Open(small(t, fs)); !errors.Is(err, store.ErrMissing) || !strings.Contains(err.Error(), "touch "+number) {
		t.Fatalf("without %s: %v", path, err)
	}
	if r, err := store.Fsck("/q", fs, nil); err != nil || len(r.Damage) != 1 || !strings.HasPrefix("/q/"+r.Damage[0].File, number) {
		t.Errorf("fsck without %s: %v, %+v", path, err, r)
	}
	if err := fs.Rename("/aside", path); err != nil {
		t.Fatal(err)
	}
	q := open(t, small(t, fs))
	if n := q.Stats().Queued; n != queued {
		t.Errorf("with %s again %d recipients are queued, and %d were", path, n, queued)
	}
	shut(t, q)

	fs = copyOf(t, disk)
	if err := fs.Remove(path); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for range 2 {
		q = open(t, small(t, fs))
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		for err := error(nil); err == nil; _, err = q.Next(ctx) {
		}
		stop()
		if s := q.Stats(); s.DamagedRecords == 0 {
			t.Errorf("with an empty file as %s there is no damage: %+v", path, s)
		}
		accept(t, q, message(1, "example.net"), "later") // a segment that does not name the lost one
		shut(t, q)
	}
}

// TestDroppedOnAFullDisk: when no segment can begin, needless ones give their octets back and keep their names, so that no
// start misses them; when there is room again, they go.
func TestDroppedOnAFullDisk(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := vfstest.Memory()
		faults := &vfstest.Faulty{FS: disk}
		q := open(t, small(t, faults))
		for range 20 {
			accept(t, q, message(1, "example.net"), strings.Repeat("x", 1500))
		}
		var full atomic.Bool
		full.Store(true)
		faults.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if full.Load() && (op == vfstest.Allocate || op == vfstest.Write && isSegment(name)) {
				return &vfstest.Fault{Err: syscall.ENOSPC}
			}
			return nil
		})
		for range 20 {
			q.Settle(next(t, q).Message.ID, []int{0}, Delivered)
		}
		time.Sleep(time.Minute)
		emptied := 0
		for _, f := range filesOf(t, disk) {
			if f.Size == store.Void {
				emptied++
			}
		}
		killed := copyOf(t, disk)
		if emptied == 0 {
			t.Errorf("no segment gave its octets back: %v", filesOf(t, disk))
		}
		shut(t, open(t, small(t, killed)))
		shut(t, open(t, small(t, killed)))
		full.Store(false)
		time.Sleep(time.Minute)
		if n := q.Stats().Segments; n > 2 {
			t.Errorf("%d segments are left: %v", n, filesOf(t, disk))
		}
		shut(t, q)
		shut(t, open(t, small(t, disk)))
	})
}
