package queue

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/vfs/vfstest"
)

// TestRequestsSurvivePowerCuts cuts the power at each write, sync, creation, renaming, removal and truncation while
// clients send requests with keys, and send again what was not answered: some until they are answered, some much
// later. Each message of each request must be accepted exactly once, and a request that was answered must be
// answered so again.
func TestRequestsSurvivePowerCuts(t *testing.T) {
	for seed := *cutFirst; seed < *cutFirst+2*int64(*cutSeeds); seed++ {
		ops := 1
		torn := map[string]int{}
		for cut := 0; cut <= ops; cut += *step {
			ok := t.Run(fmt.Sprintf("seed=%d/cut=%d", seed, cut), func(t *testing.T) {
				inTime(t, func(t *testing.T) {
					n := keyedRun(t, seed, cut, torn)
					if cut == 0 {
						ops = n
					}
				})
			})
			if !ok {
				return
			}
		}
		t.Logf("seed %d: power was cut at every %d. of %d operations; requests found at a start by what was there of them: %v", seed, *step, ops, torn)
		if torn["part"] == 0 || torn["whole"] == 0 || torn["nothing"] == 0 {
			t.Errorf("no cut went through the middle of a request")
		}
	}
}

func keyedRun(t *testing.T, seed int64, cut int, torn map[string]int) (ops int) {
	disk := vfstest.NewDisk(rand.New(rand.NewSource(seed<<20 + int64(cut))))
	w := &clients{t: t, rng: rand.New(rand.NewSource(seed)), ids: map[string]envelope.ID{}, delivered: map[string]envelope.ID{}, torn: torn}
	if seed%2 == 0 {
		w.faults = rand.New(rand.NewSource(seed))
	}
	for range 3 {
		disk.CutAt(cut)
		w.run(disk)
		if cut == 0 {
			return disk.Ops()
		}
		disk = disk.Reboot()
		cut = disk.Ops() + 1 + w.rng.Intn(250)
	}
	disk.CutAt(0)
	w.faults = nil
	w.last(disk)
	return 0
}

// clients send requests, and remember what they were answered.
type clients struct {
	t         *testing.T
	rng       *rand.Rand
	faults    *rand.Rand
	quiet     sync.Mutex // guards faults
	q         *Queue
	disk      *vfstest.Disk
	requests  []*clientRequest
	ids       map[string]envelope.ID // of each message that was seen or named, by sender
	delivered map[string]envelope.ID
	torn      map[string]int
}

// clientRequest is a request as its client knows it.
type clientRequest struct {
	key      Key
	messages int
	size     int
	parts    int // batches that it is committed in
	answered bool
	failed   bool
	ids      map[int]envelope.ID
	answer   string
}

func (r *clientRequest) sum() [16]byte { return [16]byte{r.key[1], r.key[0]} }

func (w *clients) open(disk *vfstest.Disk) error {
	faults := &vfstest.Faulty{FS: disk}
	faults.Decide(func(op vfstest.Op, name string) *vfstest.Fault {
		w.quiet.Lock()
		defer w.quiet.Unlock()
		if w.faults == nil || !isSegment(name) || op != vfstest.Write && op != vfstest.Sync || w.faults.Intn(25) > 0 {
			return nil
		}
		return &vfstest.Fault{Err: errDisk, Done: w.faults.Intn(2) == 0, Part: w.faults.Intn(500)}
	})
	q, err := Open(Config{Dir: "/q", FS: faults, Log: testLog(w.t), SegmentSize: 8 << 10, LargeBody: 1500, MinFree: 1, CacheBytes: 20 << 10})
	w.q, w.disk = q, disk
	return err
}

func (w *clients) run(disk *vfstest.Disk) {
	if err := w.open(disk); err != nil {
		if !disk.IsCut() {
			w.t.Fatal(err)
		}
		return
	}
	defer w.q.Close()
	w.check()
	for range 60 {
		if disk.IsCut() {
			break
		}
		switch w.rng.Intn(10) {
		case 0, 1, 2:
			w.begin()
		case 3:
			w.again()
		case 4, 5, 6, 7, 8:
			w.deliver()
		case 9:
			time.Sleep(time.Duration(w.rng.Intn(8000)) * time.Millisecond)
		}
	}
}

// begin sends a new request.
func (w *clients) begin() {
	r := &clientRequest{messages: w.rng.Intn(9), size: 10 + w.rng.Intn(2000), parts: 1 + w.rng.Intn(2)}
	if w.rng.Intn(3) > 0 {
		r.messages = 1
	}
	binary.LittleEndian.PutUint64(r.key[:], w.rng.Uint64())
	w.requests = append(w.requests, r)
	w.send(r)
}

// again sends a request again, answered or not.
func (w *clients) again() {
	if len(w.requests) > 0 {
		w.send(w.requests[w.rng.Intn(len(w.requests))])
	}
}

func (r *clientRequest) sender(position int) string {
	kind := "r"
	if r.moved() {
		kind = movedKind
	}
	return fmt.Sprintf("%s%x-%d@example.com", kind, r.key[:4], position)
}

// moved reports whether the messages come from another queue, where each was attempted movedAttempts times.
func (r *clientRequest) moved() bool { return r.key[0]&3 == 0 }

const movedKind, movedAttempts = "moved", 3

// send does what a server does with a request that has a key.
func (w *clients) send(r *clientRequest) {
	known, ok, err := w.q.Keyed(r.key)
	switch {
	case err != nil:
		if !w.disk.IsCut() {
			w.t.Fatal(err)
		}
		return
	case ok && known.Request != r.sum():
		w.t.Fatalf("request %x has the sum of another", r.key)
	case ok && known.Whole:
		w.replayed(r, &known)
		return
	case r.answered:
		w.t.Fatalf("request %x was answered, and is %+v", r.key, known)
	}
	answer := fmt.Sprintf("%x: %d messages", r.key, r.messages)
	var left []int
	for i := range r.messages {
		if _, there := known.IDs[i]; !there {
			left = append(left, i)
		}
	}
	ids := maps.Clone(known.IDs)
	if ids == nil {
		ids = map[int]envelope.ID{}
	}
	for part := range r.parts {
		now := left[part*len(left)/r.parts : (part+1)*len(left)/r.parts]
		b := &Batch{Key: r.key, Request: r.sum(), Positions: append([]int{}, now...), Until: time.Now().Add(24 * time.Hour)}
		if b.Last = part == r.parts-1; b.Last {
			b.Answer = []byte(answer)
		}
		for _, i := range now {
			d := w.q.Begin()
			if _, err := d.Write([]byte(strings.Repeat("x", r.size))); err != nil {
				d.Abort() // CommitBatch does so too
			}
			m := message(1, "example.net")
			m.Sender = envelope.Address(r.sender(i))
			if r.moved() {
				d.Continue([]Standing{{Attempts: movedAttempts, Due: time.Now().Add(time.Duration(i%3) * time.Second), Tried: true, Last: Attempt{Reply: greylisted}}})
			}
			b.Drafts, b.Messages = append(b.Drafts, d), append(b.Messages, m)
		}
		n, err := w.q.CommitBatch(b)
		for i, m := range b.Messages[:n] {
			ids[now[i]] = m.ID
		}
		if err != nil {
			r.failed = true
			return // the client gets no answer
		}
	}
	r.answered, r.ids, r.answer = true, ids, answer
}

// replayed compares the answer with the one that the client was given before.
func (w *clients) replayed(r *clientRequest, known *Keyed) {
	if r.answered && (!maps.Equal(r.ids, known.IDs) || r.answer != string(known.Answer)) {
		w.t.Fatalf("request %x was answered %q with %v, and again %q with %v", r.key, r.answer, r.ids, known.Answer, known.IDs)
	}
	if len(known.IDs) != r.messages {
		w.t.Fatalf("request %x has %d messages, and is whole with %v", r.key, r.messages, known.IDs)
	}
	r.answered, r.ids, r.answer = true, known.IDs, string(known.Answer)
}

// check looks at each request after a start.
func (w *clients) check() {
	for _, r := range w.requests {
		known, ok, err := w.q.Keyed(r.key)
		if w.disk.IsCut() {
			return
		}
		if err != nil {
			w.t.Fatal(err)
		}
		switch {
		case r.answered && !(ok && known.Whole):
			w.t.Fatalf("request %x was answered, and is %+v", r.key, known)
		case r.answered || ok && known.Whole:
			if w.replayed(r, &known); r.messages > 1 {
				w.torn["whole"]++
			}
		case ok:
			w.torn["part"]++
		default:
			w.torn["nothing"]++
		}
		for i, id := range known.IDs {
			w.saw(r.sender(i), id)
		}
	}
}

// saw notes the id of a message. It must always be the same: another one is the message accepted twice.
func (w *clients) saw(sender string, id envelope.ID) {
	if before, ok := w.ids[sender]; ok && before != id {
		w.t.Fatalf("message %s was accepted twice, as %s and %s", sender, before, id)
	}
	w.ids[sender] = id
}

func (w *clients) leased(l *Lease) {
	w.saw(string(l.Message.Sender), l.Message.ID)
	w.delivered[string(l.Message.Sender)] = l.Message.ID
	if w.disk.IsCut() {
		return // its reply may not have been there to be read
	}
	if r := &l.Recipients[0]; strings.HasPrefix(string(l.Message.Sender), movedKind) && (r.Attempts < movedAttempts || r.Last != greylisted) {
		w.t.Fatalf("%s came with %d attempts, the last %v", l.Message.Sender, r.Attempts, r.Last)
	}
}

func (w *clients) deliver() {
	for range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		l, err := w.q.Next(ctx)
		cancel()
		if err != nil {
			return
		}
		w.leased(l)
		if w.rng.Intn(8) == 0 {
			w.q.Defer(l.Message.ID, indexes(l), time.Now().Add(time.Minute), Attempt{Reply: greylisted}, site("site"))
		} else {
			w.q.Settle(l.Message.ID, indexes(l), Delivered)
		}
	}
}

// last has each client send until it is answered, delivers all, and looks whether each message came once.
func (w *clients) last(disk *vfstest.Disk) {
	if err := w.open(disk); err != nil {
		w.t.Fatal(err)
	}
	defer w.q.Close() // when the test has failed
	w.check()
	for _, r := range w.requests {
		for range 2 {
			if w.send(r); !r.answered {
				w.t.Fatalf("request %x is not answered", r.key)
			}
		}
	}
	w.q.Change(Selector{All: true}, RetryNow, false)
	for w.q.Stats().Queued > 0 {
		l := next(w.t, w.q)
		w.leased(l)
		w.q.Settle(l.Message.ID, indexes(l), Delivered)
	}
	want := map[string]envelope.ID{}
	for _, r := range w.requests {
		for i, id := range r.ids {
			want[r.sender(i)] = id
		}
	}
	if !maps.Equal(want, w.delivered) {
		w.t.Fatalf("delivered %v\nanswered %v", slices.Sorted(maps.Keys(w.delivered)), slices.Sorted(maps.Keys(want)))
	}
	w.forgotten()
}

// forgotten looks whether the disk is empty when all is settled and all keys are over.
func (w *clients) forgotten() {
	time.Sleep(time.Minute) // for compaction
	if s := balanced(w.t, w.q); s.DamagedRecords > 0 || s.IdempotencyKeys != len(w.requests) || s.Bytes > 2*s.LiveBytes+3*w.q.cfg.SegmentSize {
		w.t.Fatalf("%d requests, %+v", len(w.requests), s)
	}
	if w.rng.Intn(8) > 0 {
		shut(w.t, w.q)
		return // a day takes a while, in virtual time too
	}
	time.Sleep(25 * time.Hour)
	s := balanced(w.t, w.q)
	if s.IdempotencyKeys != 0 || s.LiveBytes != 0 || s.Segments > 2 {
		w.t.Fatalf("all is over, and there are %+v", s)
	}
	shut(w.t, w.q)
}
