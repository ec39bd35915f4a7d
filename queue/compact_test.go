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
	"example.org/mta/queue/journal"
	"example.org/mta/queue/vfs"
)

// diskUse is what the directory's files take, in octets.
func diskUse(t *testing.T, fs vfs.FS) (n int64) {
	for _, dir := range []string{"/q", "/q/" + largeDir} {
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
		fs := vfs.Memory()
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
		fs := vfs.Memory()
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
	cfg := small(t, vfs.Memory())
	cfg.CacheBytes = 100 << 10
	cfg.DelayAfter = time.Millisecond
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

var fuzzMessage = &envelope.Message{
	Sender: "a@example.com", Recipients: []envelope.Recipient{{Address: "b@example.net", Notify: envelope.NotifyDelay, ORcpt: "rfc822;b@example.net"}},
	Body: envelope.Body8BitMIME, UTF8: true, RequireTLS: true, TLSOptional: true, EnvID: "env", Tenant: "t", User: "ann", Campaign: "c", Marks: []string{"x-mta-engaged: yes", "precedence: "}, Tier: 3, HeloName: "helo", Session: "s", Protocol: "ESMTPS",
	Received: time.Unix(1e9, 5).UTC(), Release: time.Unix(2e9, 0).UTC(), Spread: time.Minute, Expires: time.Unix(3e9, 0).UTC(),
	Tags: []string{"a", "b"}, Meta: `{"order":"17"}`, Headers: `{"Subject":"x"}`, Pool: "dedicated", APIKey: "shop", TraceID: "4bf92f3577b34da6a3ce929d0e0e4736",
}

// FuzzCodec gives the decoders octets of any kind: they must not panic nor take more memory than
// the octets justify, and what they accept must come out the same when it goes in again.
func FuzzCodec(f *testing.F) {
	f.Add(uint8(0), appendEnvelope(nil, codecVersion, fuzzMessage))
	f.Add(uint8(1), appendStates(nil, codecVersion, 9, []recipientState{{rcpt: 1, key: "k", replied: true, last: Attempt{Reply: greylisted, Via: "source"}}, {rcpt: 2, key: "k", replied: true, last: Attempt{Reply: greylisted, Via: "source"}}}))
	f.Add(uint8(2), appendDeferral(nil, codecVersion, &deferral{due: 5, key: "k", last: Attempt{Reply: greylisted, Via: "source"}, rcpts: []uint16{1, 7}, attempts: []uint16{1, 2}}))
	f.Add(uint8(3), appendChange(nil, codecVersion, &change{due: 5, marks: markHeld, rcpts: []uint16{1, 7}}))
	f.Add(uint8(4), appendSettled(nil, codecVersion, Bounced, []uint16{0, 9}))
	f.Add(uint8(5), appendBurial(nil, codecVersion, &burial{segment: 3, stretches: []stretch{{16, 64}, {128, 256}}}))
	f.Add(uint8(6), appendOpening(nil, codecVersion, opening{ends: []segmentEnd{{1, 2}}, lastID: 7, created: time.Unix(1e9, 0)}))
	p := prelude{rcpts: 1, envLen: 3, bodyLen: 2}
	head := make([]byte, preludeSize)
	p.put(head)
	f.Add(uint8(7), append(head, "envbo"...))
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		again, ok := recode(kind%8, b)
		if !ok {
			return
		}
		if third, ok := recode(kind%8, again); !ok || string(third) != string(again) {
			t.Fatalf("kind %d: %x becomes %x, then %x %v", kind%8, b, again, third, ok)
		}
	})
}

// recode decodes and encodes again; it reports false when b can't be decoded.
func recode(kind uint8, b []byte) ([]byte, bool) {
	switch kind {
	case 0:
		m, err := decodeEnvelope(b)
		if err != nil {
			return nil, false
		}
		return appendEnvelope(nil, codecVersion, m), true
	case 1:
		at, s, err := decodeStates(b)
		return appendStates(nil, codecVersion, at, s), err == nil
	case 2:
		d, err := decodeDeferral(b)
		return appendDeferral(nil, codecVersion, &d), err == nil
	case 3:
		c, err := decodeChange(b)
		return appendChange(nil, codecVersion, &c), err == nil
	case 4:
		var rcpts []uint16
		o, err := decodeSettled(b, func(r uint16) { rcpts = append(rcpts, r) })
		return appendSettled(nil, codecVersion, o, rcpts), err == nil
	case 5:
		g, err := decodeBurial(b)
		return appendBurial(nil, codecVersion, &g), err == nil
	case 6:
		o, err := decodeOpening(b)
		return appendOpening(nil, codecVersion, o), err == nil
	}
	c, err := parseContent(b)
	if err != nil {
		return nil, false
	}
	head := make([]byte, preludeSize)
	c.put(head)
	return append(append(append(head, c.env...), c.states...), c.body...), true
}

// FuzzIndex gives the whole way of start-up a segment of any kind.
func FuzzIndex(f *testing.F) {
	seg := journal.Segment{Number: 1, Salt: 9}
	b, start := journal.Begin(nil)
	b = journal.Finish(appendOpening(b, codecVersion, opening{}), start, seg, 0, kindOpened, 0)
	b, start = journal.Begin(b)
	b = journal.Finish(appendSettled(b, codecVersion, Delivered, []uint16{0}), start, seg, 0, kindSettled, 5)
	f.Add(uint8(kindSettled), uint64(5), appendSettled(nil, codecVersion, Delivered, []uint16{0}))
	f.Add(uint8(kindBuried), uint64(0), appendBurial(nil, codecVersion, &burial{segment: 1, stretches: []stretch{{0, 64}}}))
	f.Add(uint8(kindDeferred), uint64(5), appendDeferral(nil, codecVersion, &deferral{rcpts: []uint16{3}, attempts: []uint16{1}}))
	f.Fuzz(func(t *testing.T, kind uint8, id uint64, payload []byte) {
		fs := vfs.Memory()
		file := append([]byte(nil), b...)
		for range 2 {
			var start int
			file, start = journal.Begin(file)
			file = journal.Finish(append(file, payload...), start, seg, 0, journal.Kind(kind), id)
		}
		w, _ := fs.Create("/q/" + segmentBase(seg) + segmentSuffix)
		w.WriteAt(file, 0)
		if _, err := Fsck("/q", fs, func(FsckMessage) {}); err != nil {
			t.Fatal(err)
		}
		q, err := Open(Config{Dir: "/q", FS: fs, MinFree: 1})
		if format := (*formatError)(nil); errors.As(err, &format) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		balanced(t, q)
		q.Close()
	})
}

func TestEnvelopeRoundTrip(t *testing.T) {
	for _, m := range []*envelope.Message{fuzzMessage, message(300, "example.org")} {
		got, err := decodeEnvelope(appendEnvelope(nil, codecVersion, m))
		if err != nil || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", m) {
			t.Fatalf("%v\n got %+v\nwant %+v", err, got, m)
		}
	}
}
