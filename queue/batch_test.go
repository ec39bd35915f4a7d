package queue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs/vfstest"
)

// batchOf makes a batch of a content each.
func batchOf(t testing.TB, q *Queue, bodies ...string) *Batch {
	t.Helper()
	b := &Batch{}
	for _, body := range bodies {
		d := q.Begin()
		if _, err := d.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
		b.Drafts, b.Messages = append(b.Drafts, d), append(b.Messages, message(1, "example.net"))
	}
	return b
}

// bodies makes n contents of size octets each.
func bodies(n, size int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.Repeat(fmt.Sprint(i, " "), size/len(fmt.Sprint(i, " ")))
	}
	return list
}

// TestBatchTakesFewGroups: as many groups as its size asks for, and one where it fits; large contents are in
// files of their own; all messages are there after a restart, with ids in their order.
func TestBatchTakesFewGroups(t *testing.T) {
	for _, c := range []struct {
		n, size int
		groups  uint64
	}{{1, 100, 1}, {100, 2 << 10, 1}, {1000, 2 << 10, 1}, {1000, 7 << 10, 2}, {3, 300 << 10, 1}} {
		inTime(t, func(t *testing.T) {
			disk := vfstest.Memory()
			q := open(t, Config{Dir: "/q", FS: disk, MinFree: 1})
			list := bodies(c.n, c.size)
			b := batchOf(t, q, list...)
			n, err := q.CommitBatch(b)
			if s := balanced(t, q); err != nil || n != c.n || s.Accepted != int64(c.n) || s.Groups != c.groups {
				t.Fatalf("%d messages of %d octets: %d committed in %d groups, want %d: %v", c.n, c.size, n, s.Groups, c.groups, err)
			}
			shut(t, q)
			q = open(t, Config{Dir: "/q", FS: disk, MinFree: 1})
			defer shut(t, q)
			last := envelope.ID(0)
			for i, m := range b.Messages {
				if m.ID <= last {
					t.Fatalf("message %d has id %v, the one before %v", i, m.ID, last)
				}
				last = m.ID
				if bodyOf(t, q, m.ID) != list[i] {
					t.Fatalf("message %d has another content", i)
				}
			}
		})
	}
}

// TestBatchThatFailsHalfWay: the write of a later group fails. What was written before is reported as committed and
// is there after a restart; nothing behind it is, though the disk works again; and all drafts are over.
func TestBatchThatFailsHalfWay(t *testing.T) {
	for fails := int64(1); fails <= 6; fails++ {
		inTime(t, func(t *testing.T) {
			disk := &vfstest.Faulty{FS: vfstest.Memory()}
			q := open(t, small(t, disk))
			accept(t, q, message(1, "example.net"), "first") // the segment is there
			b := batchOf(t, q, bodies(30, 1500)...)
			disk.Decide(once(fails, vfstest.Fault{Err: errDisk, Done: true}, groupSyncs()))
			n, err := q.CommitBatch(b)
			if !errors.Is(err, ErrStorage) || n >= 30 || fails > 3 && n == 0 {
				t.Fatalf("sync %d fails: %d committed, %v", fails, n, err)
			}
			t.Logf("sync %d fails: %d of 30 committed", fails, n)
			for i, m := range b.Messages {
				if (m.ID != 0) != (i < n) {
					t.Fatalf("%d committed, and message %d has id %v", n, i, m.ID)
				}
				if _, err := b.Drafts[i].Write([]byte("more")); err == nil {
					t.Fatal("a draft is not over")
				}
			}
			shut(t, q)
			q = open(t, small(t, disk.FS))
			defer shut(t, q)
			if s := balanced(t, q); s.Recovered != int64(n)+1 {
				t.Fatalf("%d recovered, want %d", s.Recovered, n+1)
			}
		})
	}
}

// groupSyncs matches the syncs of groups: of segments that were written since the one before. Spares are synced, too, and
// full segments when they are trimmed, at times that chance decides.
func groupSyncs() func(op vfstest.Op, name string) bool {
	var mu sync.Mutex
	written := map[string]bool{}
	return func(op vfstest.Op, name string) bool {
		mu.Lock()
		defer mu.Unlock()
		is := op == vfstest.Sync && isSegment(name) && written[name]
		if op == vfstest.Write || op == vfstest.Sync {
			written[name] = op == vfstest.Write
		}
		return is
	}
}

// TestBatchBesideOthers: while a tenant commits batches of megabytes, another's message waits no longer than for a
// group of limited size.
func TestBatchBesideOthers(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, Config{Dir: "/q", FS: slowDisk{vfstest.Memory(), 2 * time.Millisecond, 100 << 20}, MinFree: 1})
		defer shut(t, q)
		other := func() time.Duration {
			m := message(1, "example.net")
			m.Tenant = "other"
			began := time.Now()
			accept(t, q, m, "small")
			return time.Since(began)
		}
		done := make(chan struct{})
		b := batchOf(t, q, bodies(1000, 16<<10)...)
		other()
		go func() {
			defer close(done)
			if n, err := q.CommitBatch(b); n != 1000 || err != nil {
				t.Errorf("%d committed, %v", n, err)
			}
		}()
		longest := time.Duration(0)
		for range 20 {
			time.Sleep(time.Millisecond)
			longest = max(longest, other())
		}
		<-done
		t.Logf("longest wait beside a batch of 16 MB: %v", longest)
		if limit := 100 * time.Millisecond; longest > limit { // a group of 4 MiB before the second tenant comes, and two shared ones
			t.Errorf("want at most %v", limit)
		}
	})
}

// TestBatchIsRefusedWhole: what can't be committed at all.
func TestBatchIsRefusedWhole(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		several := batchOf(t, q, "a", "b")
		several.Messages[1].Tenant = "other"
		short := batchOf(t, q, "a", "b")
		short.Messages = short.Messages[:1]
		for _, b := range []*Batch{several, short} {
			if n, err := q.CommitBatch(b); n != 0 || err == nil {
				t.Errorf("%d committed, %v", n, err)
			}
		}
		nobody := batchOf(t, q, "a", "b", "c")
		nobody.Messages[1].Recipients = nil
		if n, err := q.CommitBatch(nobody); n != 1 || err == nil || nobody.Messages[0].ID == 0 {
			t.Errorf("the second has no recipients: %d committed, %v", n, err)
		}
		if n, err := q.CommitBatch(&Batch{}); n != 0 || err != nil {
			t.Errorf("nothing: %d committed, %v", n, err)
		}
		late := batchOf(t, q, "late")
		shut(t, q)
		if n, err := q.CommitBatch(late); n != 0 || !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %d committed, %v", n, err)
		}
	})
}
