package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// once gives a Decide that puts a fault in the n-th operation, from 1, of those that match.
func once(n int64, fault vfstest.Fault, match func(op vfstest.Op, name string) bool) func(vfstest.Op, string) *vfstest.Fault {
	var count atomic.Int64
	return func(op vfstest.Op, name string) *vfstest.Fault {
		if match(op, name) && count.Add(1) == n {
			return &fault
		}
		return nil
	}
}

// isSegment goes by the name that a file was opened with; the writer opens spares.
func isSegment(name string) bool {
	return filepath.Ext(name) == store.SegmentSuffix || filepath.Ext(name) == store.SpareSuffix
}

// TestFailedGroup: the write or the sync of a group fails, in several ways. The client is told
// so; what was settled before is not lost; the message does not come back after a restart,
// although its octets may all be on the disk; and the queue goes on in a new segment.
func TestFailedGroup(t *testing.T) {
	for name, fault := range map[string]struct {
		op    vfstest.Op
		fault vfstest.Fault
		want  error
	}{
		"write fails":              {vfstest.Write, vfstest.Fault{Err: errDisk}, ErrStorage},
		"write fails and is done":  {vfstest.Write, vfstest.Fault{Err: errDisk, Done: true}, ErrStorage},
		"short write":              {vfstest.Write, vfstest.Fault{Part: 100}, ErrStorage},
		"disk is full":             {vfstest.Write, vfstest.Fault{Err: syscall.ENOSPC, Part: 50}, ErrDiskFull},
		"sync fails":               {vfstest.Sync, vfstest.Fault{Err: errDisk}, ErrStorage},
		"sync fails after success": {vfstest.Sync, vfstest.Fault{Err: errDisk, Done: true}, ErrStorage},
	} {
		t.Run(name, func(t *testing.T) {
			inTime(t, func(t *testing.T) {
				disk := &vfstest.Faulty{FS: vfstest.Memory()}
				book := &logBook{}
				cfg := small(t, disk)
				cfg.Log = book.logger()
				q := open(t, cfg)
				kept := accept(t, q, message(1, "example.net"), "kept")
				settled := accept(t, q, message(1, "example.net"), "settled")
				next(t, q)
				next(t, q)
				q.Settle(settled.ID, []int{0}, Delivered)
				disk.Decide(once(1, fault.fault, func(op vfstest.Op, name string) bool { return op == fault.op && isSegment(name) }))
				err := commit(q, message(1, "example.net"), "refused")
				if !errors.Is(err, fault.want) {
					t.Fatalf("commit: %v, want %v", err, fault.want)
				}
				after := accept(t, q, message(1, "example.net"), "after")
				s := balanced(t, q)
				if !s.Healthy || s.Faults != 1 || s.Fault == "" || s.Queued != 2 || s.Accepted != 3 {
					t.Fatalf("%+v", s)
				}
				if !strings.Contains(book.String(), "level=ERROR") {
					t.Fatalf("the log is not loud:\n%s", book)
				}
				shut(t, q)
				q = open(t, small(t, disk.FS))
				defer shut(t, q)
				if s := balanced(t, q); s.Recovered != 2 || s.DamagedRecords != 0 {
					t.Fatalf("%+v", s)
				}
				for _, m := range []*envelope.Message{kept, after} {
					if _, err := q.Get(m.ID); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}

// TestVoidEndIsRemembered: the segment that first said that the end of another is void is deleted,
// and that end is still there, since it could not be cut off.
func TestVoidEndIsRemembered(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &vfstest.Faulty{FS: vfstest.Memory()}
		q := open(t, small(t, disk))
		kept := accept(t, q, message(1, "example.net"), "kept")
		next(t, q)
		syncs := once(1, vfstest.Fault{Err: errDisk, Done: true}, func(op vfstest.Op, name string) bool { return op == vfstest.Sync })
		disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if op == vfstest.Truncate {
				return &vfstest.Fault{Err: errDisk}
			}
			return syncs(op, name)
		})
		if err := commit(q, message(1, "example.net"), "refused"); err == nil {
			t.Fatal("a failed sync was not noticed")
		}
		for range 40 { // more than a segment
			m := accept(t, q, message(1, "example.net"), strings.Repeat("x", 1000))
			next(t, q)
			q.Settle(m.ID, []int{0}, Delivered)
		}
		for range 3 { // opened again, it has no newer segment for a while
			time.Sleep(time.Minute)
			shut(t, q)
			q = open(t, small(t, disk))
			if s := balanced(t, q); s.Recovered != 1 {
				t.Fatalf("%d recovered, want 1", s.Recovered)
			}
		}
		defer func() { shut(t, q) }()
		if _, err := q.Get(kept.ID); err != nil {
			t.Fatal(err)
		}
	})
}

// TestDiskThatIsGone: nothing can be written for a while. Nothing is accepted, nothing is handed
// out; outcomes are kept, and written when the disk is back.
func TestDiskThatIsGone(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &vfstest.Faulty{FS: vfstest.Memory()}
		q := open(t, small(t, disk))
		var leases []*Lease
		for i := range 20 {
			accept(t, q, message(1, "example.net"), fmt.Sprint("body ", i))
			if i < 10 {
				leases = append(leases, next(t, q))
			}
		}
		var gone atomic.Bool
		gone.Store(true)
		disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if gone.Load() && (op == vfstest.Write || op == vfstest.Create || op == vfstest.Sync) {
				return &vfstest.Fault{Err: errDisk}
			}
			return nil
		})
		for _, l := range leases {
			if err := q.Settle(l.Message.ID, []int{0}, Delivered); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			if err := commit(q, message(1, "example.net"), "refused"); !errors.Is(err, ErrStorage) {
				t.Fatalf("commit: %v", err)
			}
			time.Sleep(time.Second)
		}
		nothing(t, q)
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := q.Writable(ctx); err == nil || time.Since(began) < time.Minute {
			t.Fatalf("said to be writable (%v) after %v", err, time.Since(began))
		}
		writable := make(chan error, 1)
		go func() { writable <- q.Writable(t.Context()) }()
		synctest.Wait() // the writer tries again at this very moment, and what it tries is not waiting
		if s := balanced(t, q); s.Healthy || s.Unwritten == 0 || s.Delivered != 10 || s.Queued != 10 || q.Ready(fair.Party{}, 0) == nil {
			t.Fatalf("%+v", s)
		}
		if len(writable) > 0 {
			t.Fatal("said to be writable")
		}
		gone.Store(false)
		if err := <-writable; err != nil {
			t.Fatal(err)
		}
		for range 10 {
			next(t, q) // handed out again
		}
		time.Sleep(time.Second)
		if s := balanced(t, q); !s.Healthy || s.Unwritten != 0 || q.Ready(fair.Party{}, 0) != nil {
			t.Fatalf("%+v", s)
		}
		accept(t, q, message(1, "example.net"), "welcome")
		shut(t, q)
		q = open(t, small(t, disk.FS))
		defer shut(t, q)
		if s := balanced(t, q); s.Recovered != 11 {
			t.Fatalf("%+v", s)
		}
	})
}

// TestRefusedContentsLeaveTheDisk: while the journal can't be written, the file of a content that was
// refused goes at once, unless its record may be there; then it goes when the journal can be written. If
// they stayed they could be what the disk is full of.
func TestRefusedContentsLeaveTheDisk(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &vfstest.Faulty{FS: vfstest.Memory()}
		cfg := small(t, disk)
		q := open(t, cfg)
		defer shut(t, q)
		large := func() int {
			files, err := disk.List(q.dir.Path(store.LargeDir))
			if err != nil {
				t.Fatal(err)
			}
			return len(files)
		}
		accept(t, q, message(1, "example.net"), "small")
		var gone atomic.Bool
		gone.Store(true)
		disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
			if gone.Load() && isSegment(name) && (op == vfstest.Write || op == vfstest.Create || op == vfstest.Sync) {
				return &vfstest.Fault{Err: errDisk}
			}
			return nil
		})
		for range 4 {
			if err := commit(q, message(1, "example.net"), strings.Repeat("x", int(q.cfg.LargeBody)+1)); !errors.Is(err, ErrStorage) {
				t.Fatalf("commit: %v", err)
			}
			if n := large(); n != 1 {
				t.Errorf("%d files are left, want that of the record which may be there", n)
			}
			time.Sleep(time.Second)
		}
		gone.Store(false)
		time.Sleep(time.Second)
		accept(t, q, message(1, "example.net"), "welcome")
		time.Sleep(time.Second)
		if n := large(); n != 0 {
			t.Errorf("%d files are left", n)
		}
		if q.count.largeOctets != 0 {
			t.Errorf("%d octets are counted", q.count.largeOctets)
		}
	})
}

// TestReadThatFailsOnce: a message that the disk does not give now is handed out later, whatever
// it is to be handed out for.
func TestReadThatFailsOnce(t *testing.T) {
	for _, bounce := range []bool{false, true} {
		inTime(t, func(t *testing.T) {
			disk := &vfstest.Faulty{FS: vfstest.Memory()}
			q := open(t, small(t, disk))
			defer shut(t, q)
			m := accept(t, q, message(2, "example.net"), "x")
			l := next(t, q)
			q.Defer(m.ID, indexes(l), time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
			if bounce {
				q.Change(Selector{IDs: []envelope.ID{m.ID}}, Hold, false)
			}
			q.w.flush()
			disk.Decide(once(1, vfstest.Fault{Err: errDisk}, func(op vfstest.Op, name string) bool { return op == vfstest.Read && isSegment(name) }))
			if bounce {
				q.Change(Selector{IDs: []envelope.ID{m.ID}}, Bounce, false)
			}
			began := time.Now()
			l = next(t, q)
			if took := time.Since(began); took < readAgain*time.Second || took > 12*time.Minute || len(l.Recipients) != 2 || l.Recipients[1].Attempts != 1 {
				t.Fatalf("after %v: %+v", took, l)
			}
			if bounce != (l.Why == BounceAsked) {
				t.Fatalf("handed out as %v", l.Why)
			}
			if s := balanced(t, q); s.DamagedRecords != 1 || s.Unreadable != 0 {
				t.Fatalf("%+v", s)
			}
		})
	}
}

// TestActionWhileAMessageCanNotBeRead: what an operator asks for while a message is being read that then
// can't be is done, be it set aside for a while or for good. It is done at once: there is no attempt to
// wait for.
func TestActionWhileAMessageCanNotBeRead(t *testing.T) {
	for what, fault := range map[string]*vfstest.Fault{"no octets": {Err: errDisk}, "wrong octets": nil} {
		for _, from := range []State{StateDeferred, StateParked, StateEnding} {
			for _, a := range []Action{Hold, RetryNow, Bounce, Remove} {
				if from == StateEnding && (a == RetryNow || a == Bounce) {
					continue // make no difference to what is to be bounced
				}
				t.Run(fmt.Sprintf("%s, %v, %v", what, from, a), func(t *testing.T) {
					inTime(t, func(t *testing.T) { actionWhileUnreadable(t, fault, from, a) })
				})
			}
		}
	}
}

func actionWhileUnreadable(t *testing.T, fault *vfstest.Fault, from State, a Action) {
	disk, told := &vfstest.Faulty{FS: vfstest.Memory()}, 0
	cfg := small(t, disk)
	cfg.OnRemoved = func(_ []Item, recorded func()) { told++; recorded() }
	q := open(t, cfg)
	var id envelope.ID
	switch from {
	case StateDeferred:
		id = inState(t, q, StateLeased)
		q.Defer(id, []int{0}, time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
	case StateParked:
		id = inState(t, q, from)
	case StateEnding:
		id = inState(t, q, StateHeld)
	}
	sel := Selector{IDs: []envelope.ID{id}}
	q.w.flush()
	var reads atomic.Int64
	var changing atomic.Bool
	disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
		if op != vfstest.Read || !isSegment(name) {
			return nil
		}
		if changing.Load() {
			return nil
		}
		n := reads.Add(1)
		if fault == nil && (n == 1 || n == 4) { // it is read three times before it is given up, and then sound again
			flip(t, disk.FS, name, 64+store.HeaderSize+store.PreludeSize+3) // in the envelope
		}
		if n > 1 {
			return nil
		}
		if s := q.Stats(); s.Leased != 1 {
			t.Errorf("read while %d are handed out", s.Leased)
		}
		changing.Store(true)
		defer changing.Store(false)
		if n, err := q.Change(sel, a, false); n != 1 || err != nil {
			t.Errorf("%v changed %d, %v", a, n, err)
		}
		return fault
	})
	switch from {
	case StateParked:
		if l := q.Take(siteLine("site"), 1); l != nil {
			t.Fatalf("took %+v", l)
		}
	case StateEnding:
		q.Change(sel, Bounce, false)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*readAgain*time.Second)
	defer cancel()
	began := time.Now()
	l, err := q.Next(ctx)
	switch a {
	case RetryNow, Bounce:
		want := map[Action]Why{RetryNow: Due, Bounce: BounceAsked}[a]
		if err != nil || l.Why != want || time.Since(began) > 2*time.Minute {
			t.Errorf("gave %+v, %v after %v; want it as %v at once", l, err, time.Since(began), want)
		}
		q.Return(id, []int{0})
	default:
		if err == nil {
			t.Errorf("gave %+v; want nothing", l)
		}
		want, removed := StateHeld, 0
		if a == Remove {
			want, removed = 0, 1
		}
		if s := stateOf(t, q, id); s != want || told != removed {
			t.Errorf("is %v, told of %d removals", s, told)
		}
	}
	before := balanced(t, q)
	shut(t, q)
	q = open(t, cfg)
	defer shut(t, q)
	if s := balanced(t, q); s.Recovered != before.Queued || s.Held != before.Held || s.Ending != before.Ending {
		t.Errorf("after a restart %+v, before %+v", s, before)
	}
}

type littleFree struct {
	vfs.FS
	free atomic.Int64
}

func (f *littleFree) Free(string) (int64, error) { return f.free.Load(), nil }

func TestMinFree(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &littleFree{FS: vfstest.Memory()}
		disk.free.Store(1 << 30)
		cfg := small(t, disk)
		cfg.MinFree = 1 << 20
		q := open(t, cfg)
		defer shut(t, q)
		m := accept(t, q, message(1, "example.net"), "x")
		disk.free.Store(1 << 19)
		time.Sleep(time.Second)
		if err := commit(q, message(1, "example.net"), "x"); !errors.Is(err, ErrDiskFull) || !errors.Is(q.Ready(fair.Party{}, 0), ErrDiskFull) {
			t.Fatalf("commit: %v", err)
		}
		if err := commit(q, message(1, "example.net"), strings.Repeat("x", 10000)); !errors.Is(err, ErrDiskFull) || largeFiles(t, disk) != 0 {
			t.Fatalf("commit of a large content: %v", err)
		}
		next(t, q)
		if err := q.Settle(m.ID, []int{0}, Delivered); err != nil { // what makes room goes on
			t.Fatal(err)
		}
		if err := q.w.flush(); err != nil {
			t.Fatal(err)
		}
		disk.free.Store(1 << 30)
		time.Sleep(time.Second)
		accept(t, q, message(1, "example.net"), "x")
	})
}

// TestRandomFaults lets operations of every kind fail at random while a relay works, and then
// opens what is on the disk: what was acknowledged is there or settled, what was refused is not.
func TestRandomFaults(t *testing.T) {
	for seed := range int64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			inTime(t, func(t *testing.T) { randomFaults(t, seed) })
		})
	}
}

func randomFaults(t *testing.T, seed int64) {
	rng := rand.New(rand.NewSource(seed))
	var mu sync.Mutex
	on := true
	rate := 1 + rng.Intn(60)
	disk := &vfstest.Faulty{FS: vfstest.Memory()}
	disk.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if !on || op == vfstest.List || rng.Intn(1000) >= rate {
			return nil
		}
		if op == vfstest.Read && rng.Intn(2) == 0 {
			return &vfstest.Fault{Flip: true}
		}
		return &vfstest.Fault{Err: []error{errDisk, syscall.ENOSPC}[rng.Intn(2)], Done: rng.Intn(2) == 0, Part: rng.Intn(200)}
	})
	setFaults := func(v bool) {
		mu.Lock()
		defer mu.Unlock()
		on = v
	}
	roll := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return rng.Intn(n)
	}
	cfg := small(t, disk)
	cfg.Log = nil
	setFaults(false)
	q := open(t, cfg)
	setFaults(true)
	living := map[envelope.ID]string{}
	refused := 0
	for i := range 300 {
		switch roll(3) {
		case 0:
			body := strings.Repeat(fmt.Sprint(i), 1+roll(800))
			m := message(1, "example.net")
			if commit(q, m, body) == nil {
				living[m.ID] = body
			} else {
				refused++
			}
		default:
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			l, err := q.Next(ctx)
			cancel()
			if err != nil {
				continue
			}
			if roll(3) == 0 {
				q.Defer(l.Message.ID, []int{0}, time.Now().Add(time.Second), Attempt{Reply: greylisted}, site("site"))
			} else {
				q.Settle(l.Message.ID, []int{0}, Delivered)
				delete(living, l.Message.ID)
			}
		}
		balanced(t, q)
	}
	setFaults(false)
	time.Sleep(5 * time.Second)
	if s := balanced(t, q); !s.Healthy || s.Queued != int64(len(living)) {
		t.Fatalf("want %d queued: %+v", len(living), s)
	}
	q.Change(Selector{All: true}, RetryNow, false) // what could not be read can be read now
	shut(t, q)
	q = open(t, small(t, disk.FS))
	defer shut(t, q)
	s := balanced(t, q)
	if s.Queued != int64(len(living)) || s.DamagedRecords != 0 {
		t.Fatalf("%d living, %d refused: %+v", len(living), refused, s)
	}
	for id, body := range living {
		if got := bodyOf(t, q, id); got != body {
			t.Fatalf("message %s has a content of %d octets, want %d", id, len(got), len(body))
		}
	}
}
