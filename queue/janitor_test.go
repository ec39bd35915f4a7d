package queue

import (
	"context"
	"fmt"
	"math/rand"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// TestCompactionUnderDeferrals defers a message again during each sync, so that compaction always finds a
// reply that is newer than the one it has just written again. That is ordinary, and must not be called a bug.
func TestCompactionUnderDeferrals(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk, book := &vfstest.Faulty{FS: vfstest.Memory()}, &logBook{}
		cfg := small(t, disk)
		cfg.Log = book.logger()
		q := open(t, cfg)
		kept := accept(t, q, message(1, "example.net"), "kept")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		go func() { // leases whatever is due, and keeps the one
			for {
				l, err := q.Next(ctx)
				if err != nil {
					return
				}
				if l.Message.ID != kept.ID {
					q.Settle(l.Message.ID, indexes(l), Delivered)
				}
			}
		}()
		var attempt atomic.Int64
		disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if op == vfstest.Sync && isSegment(name) {
				last := greylisted
				last.Text = fmt.Sprint("attempt ", attempt.Add(1))
				q.Defer(kept.ID, []int{0}, time.Now().Add(-time.Second), Attempt{Reply: last}, site("site"))
			}
			return nil
		})
		for range 40 {
			for range 20 {
				accept(t, q, message(1, "example.net"), strings.Repeat("x", 900))
			}
			time.Sleep(time.Second)
		}
		if s := balanced(t, q); s.Compacted == 0 || s.Moved == 0 {
			t.Fatalf("nothing was compacted: %+v", s)
		}
		cancel()
		shut(t, q)
		if strings.Contains(book.String(), "BUG") {
			t.Fatalf("a false alarm:\n%s", book)
		}
	})
}

// TestDeferralIsDurableBeforeItsPredecessorGoes cuts the power right after a segment was deleted. What made it
// needless, a newer deferral among others, must be on the disk by then: else the recipient comes back without
// its attempts.
func TestDeferralIsDurableBeforeItsPredecessorGoes(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := vfstest.NewDisk(rand.New(rand.NewSource(1)))
		hook := &vfstest.Faulty{FS: disk}
		q := open(t, small(t, hook))
		kept := accept(t, q, message(1, "example.net"), "kept")
		next(t, q)
		others := fillSegment(t, q)
		deferUntilPast(t, q, kept.ID, 1)
		if err := q.w.flush(); err != nil {
			t.Fatal(err)
		}
		if id := next(t, q).Message.ID; id != kept.ID {
			t.Fatalf("message %s came first", id)
		}
		holder := segmentOf(q, func(e *schedule.Entry) schedule.Loc { return e.Note() }, kept.ID)
		others = append(others, fillSegment(t, q)...)
		var deleted atomic.Bool
		hook.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if op == vfstest.SyncDir && name == "/q" {
				deleted.Store(true)
				disk.CutAt(disk.Ops() + 2) // after this one, which makes it durable that the segment is gone
			}
			return nil
		})
		deferUntilPast(t, q, kept.ID, 2)
		for _, id := range others {
			if segmentOf(q, func(e *schedule.Entry) schedule.Loc { return e.Data() }, id) == holder {
				q.Settle(id, []int{0}, Delivered)
			}
		}
		time.Sleep(10 * time.Second)
		if !deleted.Load() {
			t.Fatal("the segment with the first deferral was not deleted")
		}
		q.Close()
		q = open(t, small(t, disk.Reboot()))
		defer shut(t, q)
		it, err := q.Get(kept.ID)
		if err != nil {
			t.Fatalf("the message is gone: %v", err)
		}
		if n := it.Recipients[0].Attempts; n != 2 {
			t.Fatalf("the recipient has %d attempts, want 2", n)
		}
	})
}

// TestSettlementOutlivesItsMessage: while the janitor makes durable what made a segment needless, a write fails once,
// and the settlement lands in a further segment. The first segment can't be deleted for now, and still needs that one.
// They must not be deleted together: a power cut between the two would bring the message back.
func TestSettlementOutlivesItsMessage(t *testing.T) {
	done := false
	for cut := 1; !done; cut++ {
		for seed := range int64(8) {
			inTime(t, func(t *testing.T) { done = cutAfterFailedDeletion(t, seed, cut) })
		}
	}
}

// cutAfterFailedDeletion cuts the power at an operation after the failure, and reports whether there were fewer.
func cutAfterFailedDeletion(t *testing.T, seed int64, cut int) (fewer bool) {
	disk := vfstest.NewDisk(rand.New(rand.NewSource(seed<<20 + int64(cut))))
	hook := &vfstest.Faulty{FS: disk}
	q := open(t, small(t, hook))
	settled := accept(t, q, message(1, "example.net"), "settled")
	next(t, q)
	q.w.renew.Store(true)
	accept(t, q, message(1, "example.net"), "in the second segment")
	synctest.Wait()
	var failed, mended atomic.Bool
	hook.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
		if op == vfstest.Write && isSegment(name) && failed.CompareAndSwap(false, true) ||
			(op == vfstest.Rename || op == vfstest.Remove) && strings.Contains(name, "00000001-") && !mended.Load() {
			return &vfstest.Fault{Err: errDisk}
		}
		return nil
	})
	q.Settle(settled.ID, []int{0}, Delivered) // which the janitor makes durable, to delete the first segment
	synctest.Wait()
	if !failed.Load() || q.w.pending() > 0 {
		t.Fatalf("a write failed: %v; not durable: %d octets", failed.Load(), q.w.pending())
	}
	disk.CutAt(disk.Ops() + cut)
	q.w.renew.Store(true)
	commit(q, message(1, "example.net"), "in the fourth segment")
	synctest.Wait()
	mended.Store(true)
	time.Sleep(10 * time.Second)
	fewer = !disk.IsCut()
	if n := q.Stats().Segments; fewer && n != 2 {
		t.Fatalf("%d segments are left, want those with the two messages", n)
	}
	q.Close()
	q = open(t, small(t, disk.Reboot()))
	defer shut(t, q)
	if it, err := q.Get(settled.ID); err == nil {
		t.Fatalf("power cut %d operations after the failure: a message that was settled durably is back: %+v", cut, it)
	}
	return fewer
}

func deferUntilPast(t *testing.T, q *Queue, id envelope.ID, attempt int) {
	t.Helper()
	last := greylisted
	last.Text = fmt.Sprint("attempt ", attempt)
	if err := q.Defer(id, []int{0}, time.Now().Add(-time.Second), Attempt{Reply: last}, site("site")); err != nil {
		t.Fatal(err)
	}
}

// fillSegment accepts messages until another segment is begun. They stay leased.
func fillSegment(t *testing.T, q *Queue) (ids []envelope.ID) {
	t.Helper()
	data := func(e *schedule.Entry) schedule.Loc { return e.Data() }
	for {
		m := accept(t, q, message(1, "example.net"), strings.Repeat("x", 900))
		for next(t, q).Message.ID != m.ID {
		}
		ids = append(ids, m.ID)
		if segmentOf(q, data, m.ID) != segmentOf(q, data, ids[0]) {
			return ids
		}
	}
}

// segmentOf is the segment that has a record of a message's first recipient.
func segmentOf(q *Queue, loc func(*schedule.Entry) schedule.Loc, id envelope.ID) *store.Segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, e := q.s.Find(uint64(id), 0)
	return q.segs.Of(loc(e))
}

// TestSegmentStaysThatKnowsWhereOthersEnd: a segment that could not be cut off at its end has octets behind it that
// nothing may be read from. Only a later segment says where that end is, and it stays, though no mail is left in it,
// until another says the same.
func TestSegmentStaysThatKnowsWhereOthersEnd(t *testing.T) {
	inTime(t, func(t *testing.T) {
		untrimmed := func(fs vfs.FS) *vfstest.Faulty {
			f := &vfstest.Faulty{FS: fs}
			f.Decide(func(op vfstest.Op, _ string) *vfstest.Fault {
				if op == vfstest.Truncate {
					return &vfstest.Fault{Err: errDisk}
				}
				return nil
			})
			return f
		}
		disk := vfstest.Memory()
		q := open(t, small(t, untrimmed(disk)))
		first := q.w.active
		for q.w.active == first {
			accept(t, q, message(1, "example.net"), strings.Repeat("x", 1500))
		}
		last := list(t, q)
		for {
			l := next(t, q)
			if l.Message.ID == last[len(last)-1].ID {
				q.Settle(l.Message.ID, []int{0}, Delivered)
				break
			}
		}
		time.Sleep(2 * time.Second)
		second := q.dir.SegmentPath(q.w.active.ID)
		killed := copyOf(t, disk)
		shut(t, q)

		q = open(t, small(t, untrimmed(killed)))
		defer func() { shut(t, q) }()
		time.Sleep(10 * time.Minute)
		isThere := func() bool {
			f, err := killed.Open(second)
			if err == nil {
				f.Close()
			}
			return err == nil
		}
		if !isThere() {
			t.Error("the segment was deleted that says where another ends")
		}
		accept(t, q, message(1, "example.net"), "x") // in a new segment, which says so too
		time.Sleep(10 * time.Minute)
		if isThere() {
			t.Error("the segment is still there, though nothing needs it")
		}
	})
}
