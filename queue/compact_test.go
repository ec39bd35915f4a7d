package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// diskUse is what the directory's files take, in octets.
func diskUse(t *testing.T, fs vfs.FS) (n int64) {
	for _, dir := range []string{"/q", "/q/" + store.LargeDir} {
		list, err := fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			n += f.Size
		}
	}
	return n
}

// TestDiskUseIsBounded keeps some old messages while many come and go, and looks at the disk and
// at what is still readable.
func TestDiskUseIsBounded(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		rng := rand.New(rand.NewSource(3))
		bodies := map[envelope.ID]string{}
		replies := map[envelope.ID]reply.Reply{}
		attempts := map[envelope.ID]int{}
		detours := map[envelope.ID]envelope.Detour{}
		for round := range 60 {
			for i := range 40 {
				body := strings.Repeat(fmt.Sprint(round, ".", i, " "), 1+rng.Intn(150))
				bodies[accept(t, q, message(1, "example.net"), body).ID] = body
			}
			for q.Stats().Due > 0 {
				l := next(t, q)
				id := l.Message.ID
				if l.Recipients[0].Last != replies[id] || l.Recipients[0].Attempts != attempts[id] || l.Recipients[0].Detour != detours[id] {
					t.Fatalf("%s: %+v, want %+v after %d, %+v", id, l.Recipients[0], replies[id], attempts[id], detours[id])
				}
				if rng.Intn(30) == 0 {
					last := greylisted
					last.Text = fmt.Sprint("attempt ", attempts[id], " of ", id)
					replies[id] = last
					attempts[id]++
					q.Defer(id, []int{0}, time.Now().Add(time.Duration(rng.Intn(300))*time.Second), Attempt{Reply: last, Via: "source"}, site("site"))
					if rng.Intn(3) == 0 {
						detours[id] = envelope.Detour{Pool: fmt.Sprint("pool", rng.Intn(3))}
						q.Reroute(Selector{IDs: []envelope.ID{id}}, detours[id], false)
					}
					continue
				}
				q.Settle(id, []int{0}, Delivered)
				delete(bodies, id)
			}
			time.Sleep(time.Minute)
			s := balanced(t, q)
			// What is living is counted in classes of size, up to an eighth too large.
			if limit := 2*s.LiveBytes + 2*q.cfg.SegmentSize; s.Bytes > limit {
				t.Fatalf("round %d: %d octets on disk, %d living", round, s.Bytes, s.LiveBytes)
			}
		}
		s := balanced(t, q)
		if s.Compacted == 0 || s.Moved == 0 {
			t.Fatalf("nothing was compacted: %+v", s)
		}
		t.Logf("compaction emptied %d segments, moved %d messages; %d queued; %d octets on disk (files %d), %d living", s.Compacted, s.Moved, s.Queued, s.Bytes, diskUse(t, fs), s.LiveBytes)
		for range 2 {
			if s.Queued != int64(len(bodies)) {
				t.Fatalf("%d queued, want %d", s.Queued, len(bodies))
			}
			for id, body := range bodies {
				if got := bodyOf(t, q, id); got != body {
					t.Fatalf("message %s has a content of %d octets, want %d", id, len(got), len(body))
				}
			}
			shut(t, q)
			q = open(t, small(t, fs))
			s = balanced(t, q)
		}
		shut(t, q)
	})
}

// TestReopeningLeavesNoHeap opens and closes many times: the small segments that this makes must
// not pile up.
func TestReopeningLeavesNoHeap(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		for i := range 100 {
			q := open(t, small(t, fs))
			accept(t, q, message(1, "example.net"), "x")
			time.Sleep(10 * time.Second)
			if s := balanced(t, q); s.Queued != int64(i+1) || s.Segments > 20 {
				t.Fatalf("%d queued in %d segments", s.Queued, s.Segments)
			}
			shut(t, q)
		}
	})
}

// TestEverythingAtOnce runs acceptors, workers, operators and listings side by side and looks
// all the time whether every recipient is accounted for. It is for the race detector.
func TestEverythingAtOnce(t *testing.T) {
	cfg := small(t, vfstest.Memory())
	cfg.CacheBytes = 100 << 10
	cfg.DelayAfter = func() time.Duration { return time.Millisecond }
	cfg.MaxAge = func() time.Duration { return time.Second }
	q := open(t, cfg)
	const messages = 3000
	ctx, cancel := context.WithCancel(context.Background())
	var senders, others sync.WaitGroup
	for w := range 4 {
		senders.Go(func() {
			rng := rand.New(rand.NewSource(int64(w)))
			for range messages / 4 {
				if err := commit(q, message(1+rng.Intn(4), "example.net"), strings.Repeat("x", rng.Intn(3000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for w := range 3 {
		others.Go(func() { workAtRandom(ctx, t, q, rand.New(rand.NewSource(int64(w)))) })
	}
	others.Go(func() {
		rng := rand.New(rand.NewSource(9))
		for ctx.Err() == nil {
			q.Change(Selector{Filter: Filter{NewerThan: 20 * time.Millisecond}}, Action(1+rng.Intn(5)), rng.Intn(4) == 0)
			q.Change(Selector{Filter: Filter{States: []State{StateHeld}}}, Unhold, false)
			q.List(Filter{Domain: "example.net"}, Page{Order: Order(rng.Intn(3)), Limit: 20})
			q.Summary(Filter{})
		}
	})
	others.Go(func() {
		for ctx.Err() == nil {
			balanced(t, q)
		}
	})
	senders.Wait()
	for deadline := time.Now().Add(5 * time.Minute); q.Stats().Queued > 0; {
		q.Change(Selector{Filter: Filter{States: []State{StateHeld, StateDeferred}}}, Remove, false)
		for _, l := range q.Take(siteLine("site"), 100) {
			q.Settle(l.Message.ID, indexes(l), Delivered)
		}
		if time.Now().After(deadline) {
			t.Fatalf("not empty: %+v", q.Stats())
		}
	}
	cancel()
	others.Wait()
	s := balanced(t, q)
	shut(t, q)
	t.Logf("%+v", s)
	q = open(t, cfg)
	if s := balanced(t, q); s.Recovered != 0 {
		t.Fatalf("%d came back", s.Recovered)
	}
	shut(t, q)
}

func workAtRandom(ctx context.Context, t *testing.T, q *Queue, rng *rand.Rand) {
	for {
		l, err := q.Next(ctx)
		if err != nil {
			return
		}
		id, all := l.Message.ID, indexes(l)
		switch {
		case l.Why == DelayWarning:
			q.Warned(id, all)
		case l.Why == Expired:
			q.Settle(id, all, Expired)
		case l.Why == BounceAsked:
			q.Settle(id, all, Bounced)
		case rng.Intn(5) == 0:
			q.Park(id, all, siteLine("site"), time.Now().Add(time.Duration(rng.Intn(100))*time.Millisecond))
		case rng.Intn(5) == 0:
			q.Defer(id, all, time.Now().Add(time.Duration(rng.Intn(3))*time.Second), Attempt{Reply: greylisted}, site("short"))
		case rng.Intn(10) == 0:
			q.Return(id, all)
		default:
			if _, err := q.Body(id); err != nil {
				t.Error(err)
			}
			for _, r := range all {
				q.Settle(id, []int{r}, Delivered)
			}
		}
	}
}

// FuzzIndex gives the whole way of start-up a segment of any kind.
func FuzzIndex(f *testing.F) {
	seg := store.SegmentID{Number: 1, Salt: 9}
	b, start := store.BeginRecord(nil)
	b = store.FinishRecord(store.AppendOpening(b, store.CodecVersion, store.Opening{}), start, seg, 0, store.KindOpened, 0)
	b, start = store.BeginRecord(b)
	b = store.FinishRecord(store.AppendSettled(b, store.CodecVersion, uint8(Delivered), []uint16{0}), start, seg, 0, store.KindSettled, 5)
	f.Add(uint8(store.KindSettled), uint64(5), store.AppendSettled(nil, store.CodecVersion, uint8(Delivered), []uint16{0}))
	f.Add(uint8(store.KindBuried), uint64(0), store.AppendBurial(nil, store.CodecVersion, &store.Burial{Segment: 1, Stretches: []store.Stretch{{From: 0, To: 64}}}))
	f.Add(uint8(store.KindDeferred), uint64(5), store.AppendDeferral(nil, store.CodecVersion, &store.Deferral{Rcpts: []uint16{3}, Attempts: []uint16{1}}))
	f.Fuzz(func(t *testing.T, kind uint8, id uint64, payload []byte) {
		fs := vfstest.Memory()
		file := append([]byte(nil), b...)
		for range 2 {
			var start int
			file, start = store.BeginRecord(file)
			file = store.FinishRecord(append(file, payload...), start, seg, 0, store.Kind(kind), id)
		}
		w, _ := fs.Create("/q/" + store.SegmentBase(seg) + store.SegmentSuffix)
		w.WriteAt(file, 0)
		if _, err := store.Fsck("/q", fs, func(store.FsckMessage) {}); err != nil {
			t.Fatal(err)
		}
		q, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1})
		if format := (*store.FormatError)(nil); errors.As(err, &format) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, q)
		q.Close()
	})
}
