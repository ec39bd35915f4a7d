package queue

import (
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/vfstest"
)

// testKey is the key with a number, as random as sums are.
func testKey(n int) (k Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(n)*0x9e3779b97f4a7c15+1)
	k[8] = byte(n)
	return k
}

// request commits a whole request with a key.
func request(t testing.TB, q *Queue, n int, bodies ...string) *Batch {
	t.Helper()
	b := batchOf(t, q, bodies...)
	b.Key, b.Request, b.Last, b.Answer, b.Until = testKey(n), testKey(^n), true, []byte(fmt.Sprint("answer ", n)), time.Now().Add(24*time.Hour)
	if committed, err := q.CommitBatch(b); committed != len(bodies) || err != nil {
		t.Fatal(committed, err)
	}
	return b
}

// mustKnow fails the test unless the request is answered as it was at first.
func mustKnow(t testing.TB, q *Queue, b *Batch) {
	t.Helper()
	k, ok, err := q.Keyed(b.Key)
	if err != nil || !ok || !k.Whole || k.Request != b.Request || string(k.Answer) != string(b.Answer) || len(k.IDs) != len(b.Messages) {
		t.Fatalf("%+v, %v, %v; want %s with %d messages", k, ok, err, b.Answer, len(b.Messages))
	}
	for i, m := range b.Messages {
		if k.IDs[b.position(i)] != m.ID {
			t.Fatalf("message %d is %v, was %v", i, k.IDs[b.position(i)], m.ID)
		}
	}
}

func settleAll(t testing.TB, q *Queue) {
	t.Helper()
	for q.Stats().Due > 0 {
		l := next(t, q)
		q.Settle(l.Message.ID, indexes(l), Delivered)
	}
}

// ownedKey is the key with a number of a tenant with a number; tenant 0 is none.
func ownedKey(tenant byte, n int) Key {
	k := testKey(n)
	if tenant == 0 {
		return k
	}
	return envelope.NewRequestKey([4]byte{tenant}, [10]byte(k[:]))
}

// TestKeysLast: a request that was answered is known after restarts, with and without indexes, while its messages
// are there and long after they are gone; and no longer than its time.
func TestKeysLast(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		var all []*Batch
		for i := range 200 {
			all = append(all, request(t, q, i, bodies(i%4, 50+i*10)...))
			if i%3 == 0 {
				settleAll(t, q)
			}
		}
		scheduled := request(t, q, 1000, "scheduled")
		scheduled.Key, scheduled.Until = testKey(1001), time.Now().Add(72*time.Hour)
		late := batchOf(t, q, "late")
		late.Key, late.Request, late.Last, late.Until = testKey(1001), testKey(5), true, time.Now().Add(72*time.Hour)
		if _, err := q.CommitBatch(late); err != nil {
			t.Fatal(err)
		}
		settleAll(t, q)
		for generation := range 6 {
			for _, b := range all {
				mustKnow(t, q, b)
			}
			mustKnow(t, q, late)
			time.Sleep(time.Minute)
			s := balanced(t, q)
			if s.IdempotencyKeys != 202 || s.IdempotencyKeysEvicted != 0 || s.Bytes > 2*s.LiveBytes+2*q.cfg.SegmentSize {
				t.Fatalf("%+v", s)
			}
			if generation == 0 && s.Compacted == 0 {
				t.Fatal("nothing was compacted")
			}
			shut(t, q)
			if r, err := store.Fsck("/q", fs, nil); err != nil || r.Damaged() || r.Keys < 202 || r.Records["keyed"] < r.Keys {
				t.Fatalf("fsck: %+v, %v", r, err)
			}
			if generation%2 == 0 {
				removeIndexes(t, fs)
			}
			q = open(t, small(t, fs))
		}
		defer shut(t, q)
		time.Sleep(25 * time.Hour)
		if _, ok, err := q.Keyed(all[7].Key); ok || err != nil {
			t.Errorf("known after a day: %v", err)
		}
		mustKnow(t, q, late)
		if s := balanced(t, q); s.IdempotencyKeys != 1 || s.Segments > 3 {
			t.Errorf("%+v", s)
		}
		time.Sleep(48 * time.Hour)
		if s := balanced(t, q); s.IdempotencyKeys != 0 || s.LiveBytes != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func removeIndexes(t *testing.T, fs vfs.FS) {
	t.Helper()
	list, err := fs.List("/q")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if strings.HasSuffix(f.Name, store.IndexSuffix) {
			fs.Remove("/q/" + f.Name)
		}
	}
}

// TestImportsPushOutNoKeys: keys of imports, which are named as their requests are, have a table of their own, those with a
// tenant another, after compaction and restarts with and without indexes, too.
func TestImportsPushOutNoKeys(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.IdempotencyKeys = 50
		q := open(t, cfg)
		var own []*Batch
		imports := [2][]*Batch{}
		for i := range 50 {
			own = append(own, request(t, q, i, "x"))
		}
		for i := range 200 {
			for tenant := range imports {
				b := batchOf(t, q, "imported")
				b.Key, b.Last, b.Answer, b.Until = ownedKey(byte(tenant), 1000+i), true, []byte("a"), time.Now().Add(24*time.Hour)
				b.Request = b.Key
				if _, err := q.CommitBatch(b); err != nil {
					t.Fatal(err)
				}
				imports[tenant] = append(imports[tenant], b)
				settleAll(t, q)
			}
			time.Sleep(time.Minute) // ages are known to the minute
		}
		for _, prepare := range []func(){func() {}, func() { time.Sleep(10 * time.Minute) }, func() { removeIndexes(t, cfg.FS) }} {
			prepare()
			for _, b := range own {
				mustKnow(t, q, b)
			}
			for tenant := range imports {
				for i, b := range imports[tenant] {
					if _, known, err := q.Keyed(b.Key); known != (i >= 150) || err != nil {
						t.Fatalf("import %d of tenant %d: known: %v, %v", i, tenant, known, err)
					}
				}
			}
			if s := q.Stats(); s.IdempotencyKeys != 50 || s.IdempotencyKeysEvicted != 0 || s.ImportKeys != 100 {
				t.Fatalf("%+v", s)
			}
			walked := 0
			err := q.Keys(func(Key) bool { return true }, func(key Key, k *Keyed) error { walked++; return nil })
			if walked != 50 || err != nil { // those with a tenant
				t.Fatalf("%d keys are walked, %v", walked, err)
			}
			shut(t, q)
			q = open(t, cfg)
		}
		shut(t, q)
	})
}

// TestTooManyKeys: the oldest goes, is counted, and stays forgotten when the queue is opened again with as much room.
func TestTooManyKeys(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.IdempotencyKeys = 50
		q := open(t, cfg)
		var all []*Batch
		for i := range 200 {
			all = append(all, request(t, q, i, "x"))
			settleAll(t, q)
			time.Sleep(time.Minute) // compaction carries what lives on
		}
		for range 2 {
			for i, b := range all {
				if i >= 150 {
					mustKnow(t, q, b)
				} else if _, ok, err := q.Keyed(b.Key); ok || err != nil {
					t.Fatalf("key %d is known, %v", i, err)
				}
			}
			if s := q.Stats(); s.IdempotencyKeys != 50 || s.IdempotencyKeysEvicted == 0 {
				t.Fatalf("%+v", s)
			}
			shut(t, q)
			q = open(t, cfg)
		}
		if s := q.Stats(); s.Compacted > 0 {
			t.Logf("%+v", s)
		}
		shut(t, q)
	})
}

// TestKeysOfOthersStay: a tenant whose keys fill the table loses its own oldest ones, and those of earlier versions,
// which have no tenant, count as those of one; after restarts with and without indexes, too.
func TestKeysOfOthersStay(t *testing.T) {
	inTime(t, func(t *testing.T) {
		cfg := small(t, vfstest.Memory())
		cfg.IdempotencyKeys = 60
		q := open(t, cfg)
		all := map[byte][]*Batch{}
		add := func(tenant byte, n int) {
			for range n {
				b := batchOf(t, q, "x")
				i := len(all[tenant])
				b.Key, b.Request, b.Last, b.Until = ownedKey(tenant, i), testKey(^i), true, time.Now().Add(24*time.Hour)
				if _, err := q.CommitBatch(b); err != nil {
					t.Fatal(err)
				}
				all[tenant] = append(all[tenant], b)
				settleAll(t, q)
				time.Sleep(time.Minute) // compaction carries what lives on
			}
		}
		add(0, 30)
		add(1, 10)
		add(2, 200)
		for _, prepare := range []func(){func() {}, func() {}, func() { removeIndexes(t, cfg.FS) }} {
			prepare()
			for tenant, want := range map[byte]int{0: 25, 1: 10, 2: 25} {
				left := 0
				for i, b := range all[tenant] {
					_, known, err := q.Keyed(b.Key)
					if err != nil || left > 0 && !known {
						t.Fatalf("tenant %d, key %d of %d: known: %v, older ones too; %v", tenant, i, len(all[tenant]), known, err)
					}
					if known {
						left++
					}
				}
				if left < want-1 || left > want+1 { // one of those with the most has lost the last key
					t.Errorf("tenant %d has %d keys, want %d", tenant, left, want)
				}
			}
			shut(t, q)
			q = open(t, cfg)
		}
		shut(t, q)
	})
}

// TestRequestInParts: a request whose second part fails is known by its first; sent again, only what is missing is
// taken, and then it is whole. What doesn't fit is refused.
func TestRequestInParts(t *testing.T) {
	inTime(t, func(t *testing.T) {
		disk := &vfstest.Faulty{FS: vfstest.Memory()}
		q := open(t, small(t, disk))
		part := func(last bool, positions ...int) *Batch {
			b := batchOf(t, q, bodies(len(positions), 100)...)
			b.Key, b.Request, b.Positions, b.Until, b.Last = testKey(1), testKey(2), positions, time.Now().Add(time.Hour), last
			b.Answer = []byte("done")
			return b
		}
		must := func(b *Batch, want int, whole bool) Keyed {
			t.Helper()
			if n, err := q.CommitBatch(b); n != len(b.Drafts) || err != nil {
				t.Fatal(n, err)
			}
			k, ok, err := q.Keyed(testKey(1))
			if !ok || err != nil || len(k.IDs) != want || k.Whole != whole || (string(k.Answer) == "done") != whole {
				t.Fatalf("%+v %v %v", k, ok, err)
			}
			return k
		}
		must(part(false, 0, 2), 2, false)
		disk.Decide(once(1, vfstest.Fault{Err: errDisk}, func(op vfstest.Op, name string) bool { return op == vfstest.Write && isSegment(name) }))
		if n, err := q.CommitBatch(part(true, 3, 4)); n != 0 || err == nil {
			t.Fatal(n, err)
		}
		if k, _, _ := q.Keyed(testKey(1)); len(k.IDs) != 2 || k.Whole {
			t.Fatalf("%+v", k)
		}
		for name, b := range map[string]*Batch{
			"there already": part(false, 2, 5), "out of order": part(false, 6, 5), "twice": part(false, 6, 6), "negative": part(false, -1),
			"another request": {Key: testKey(1), Request: testKey(3)}, "long answer": {Key: testKey(1), Request: testKey(2), Last: true, Answer: make([]byte, maxAnswer+1)},
		} {
			if n, err := q.CommitBatch(b); n != 0 || err == nil {
				t.Errorf("%s: %d committed, %v", name, n, err)
			}
		}
		must(part(false, 3), 3, false)
		shut(t, q)
		q = open(t, small(t, disk.FS))
		defer shut(t, q)
		k := must(part(true, 4), 4, true)
		for position, id := range k.IDs {
			if it, err := q.Get(id); err != nil || it.ID != id {
				t.Errorf("position %d: %v", position, err)
			}
		}
		if n, err := q.CommitBatch(part(true, 9)); n != 0 || err == nil {
			t.Errorf("after its end: %d committed, %v", n, err)
		}
		empty := &Batch{Key: testKey(9), Request: testKey(9), Last: true, Answer: []byte("all were refused"), Until: time.Now().Add(time.Hour)}
		if n, err := q.CommitBatch(empty); n != 0 || err != nil {
			t.Fatal(n, err)
		}
		mustKnow(t, q, empty)
	})
}

// TestKeyRecordCostsNoSync: a request with a key is written with one sync, as one without is.
func TestKeyRecordCostsNoSync(t *testing.T) {
	inTime(t, func(t *testing.T) {
		q := open(t, small(t, vfstest.Memory()))
		defer shut(t, q)
		accept(t, q, message(1, "example.net"), "x")
		before := q.Stats()
		for i := range 5 {
			request(t, q, i, "x")
		}
		if s := q.Stats(); s.Syncs-before.Syncs != 5 || s.Groups-before.Groups != 5 {
			t.Errorf("%d syncs for 5 requests, one after the other", s.Syncs-before.Syncs)
		}
	})
}

// TestCarriedKeyIsNotOlder: while compaction carries the record of a request, the request's next part becomes durable.
// What is carried must not be written behind it: the later place counts at the next start.
func TestCarriedKeyIsNotOlder(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		first := batchOf(t, q, "first")
		first.Key, first.Until = testKey(1), time.Now().Add(time.Hour)
		if _, err := q.CommitBatch(first); err != nil {
			t.Fatal(err)
		}
		q.mu.Lock()
		seg := q.keySegment(q.findKey(testKey(1)))
		q.mu.Unlock()
		k, _, err := q.readKey(testKey(1))
		if err != nil {
			t.Fatal(err)
		}
		for range 20 { // another segment
			accept(t, q, message(1, "example.net"), strings.Repeat("x", 1000))
		}
		second := batchOf(t, q, "second")
		second.Key, second.Until, second.Positions, second.Last = testKey(1), first.Until, []int{1}, true
		if _, err := q.CommitBatch(second); err != nil {
			t.Fatal(err)
		}
		q.mu.Lock() // as carryKey does, had it read the record a moment earlier
		q.w.note(store.KindKeyed, 0, seg, 0, func(b []byte) []byte { return store.AppendKeyed(b, store.CodecVersion, &k) })
		q.mu.Unlock()
		if err := q.w.flush(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if k, ok, err := q.Keyed(testKey(1)); !ok || err != nil || !k.Whole || len(k.IDs) != 2 {
				t.Fatalf("%+v %v %v", k, ok, err)
			}
			shut(t, q)
			q = open(t, small(t, fs))
		}
		shut(t, q)
	})
}

// TestTornKey cuts a group of a key and two messages off at every fourth octet: as
// much of the request is known as there are messages, and the key of none is not known.
func TestTornKey(t *testing.T) {
	seg := store.SegmentID{Number: 1, Salt: 9}
	b, start := store.BeginRecord(nil)
	b = store.FinishRecord(store.AppendOpening(b, store.CodecVersion, store.Opening{LastID: 99, Allocated: 1 << 20}), start, seg, 0, store.KindOpened, 0)
	group := int64(len(b))
	b, start = store.BeginRecord(b)
	until := uint32(time.Now().Add(time.Hour).Unix())
	b = store.FinishRecord(store.AppendKeyed(b, store.CodecVersion, &store.Keyed{Key: testKey(1), Whole: true, Until: until, Own: []store.Placed{{Position: 0, ID: 100}, {Position: 1, ID: 101}}, Answer: []byte("answer")}), start, seg, group, store.KindKeyed, 0)
	for id := uint64(100); id < 102; id++ {
		env := store.AppendEnvelope(nil, store.CodecVersion, message(1, "example.net"))
		p := store.Prelude{Form: store.CodecVersion, Rcpts: 1, EnvLen: uint32(len(env)), EnvCRC: store.Checksum(0, env), BodyLen: 4}
		b, start = store.BeginRecord(b)
		at := len(b)
		b = append(b, make([]byte, store.PreludeSize)...)
		p.Put(b[at:])
		store.Sign(b[at:], id)
		b = store.FinishRecord(append(append(b, env...), "body"...), start, seg, group, store.KindAccepted, id)
	}
	seen := map[int]bool{}
	for cut := int(group); cut <= len(b); cut += 4 {
		fs := vfstest.Memory()
		f, _ := fs.Create("/q/" + store.SegmentBase(seg) + store.SegmentSuffix)
		f.Allocate(1 << 20)
		f.WriteAt(b[:cut], 0)
		for range 2 { // without and with an index
			q := open(t, Config{Dir: "/q", FS: fs, MinFree: 1})
			k, ok, err := q.Keyed(testKey(1))
			queued := int(q.Stats().Queued)
			if err != nil || ok != (queued > 0) || len(k.IDs) != queued || k.Whole != (queued == 2) || (string(k.Answer) == "answer") != k.Whole {
				t.Fatalf("cut at %d: %d messages; %+v, %v, %v", cut, queued, k, ok, err)
			}
			seen[queued] = true
			shut(t, q)
		}
	}
	if len(seen) != 3 {
		t.Errorf("numbers of messages that were left: %v", seen)
	}
}

// TestDamagedKey flips a bit in each octet of a keyed record: the key is forgotten, or known as it was; its message is
// there in any case.
func TestDamagedKey(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		accept(t, q, message(1, "example.net"), "before")
		b := request(t, q, 1, "body")
		accept(t, q, message(1, "example.net"), "behind")
		q.mu.Lock()
		_, n := q.findKey(b.Key)
		s := q.keyTables[0].Slot(n)
		name, off, size := q.dir.SegmentPath(q.segs.Of(s.Loc()).ID), s.Loc().Offset(), schedule.Octets(s.Size)
		q.mu.Unlock()
		shut(t, q)
		forgotten := 0
		for at := off; at < off+size; at++ {
			for _, running := range []bool{false, true} {
				disk := copyOf(t, fs)
				if !running {
					flip(t, disk, name, at)
				}
				book := &logBook{}
				cfg := small(t, disk)
				cfg.Log = book.logger()
				q := open(t, cfg)
				if running {
					flip(t, disk, name, at)
				}
				k, ok, err := q.Keyed(b.Key)
				if err != nil || ok && (k.IDs[0] != b.Messages[0].ID || string(k.Answer) != string(b.Answer)) {
					t.Fatalf("octet %d: %+v %v %v", at-off, k, ok, err)
				}
				if !ok {
					if forgotten++; !strings.Contains(book.String(), "DAMAGE") {
						t.Fatalf("octet %d: forgotten without a word", at-off)
					}
				}
				if s := q.Stats(); s.Queued != 3 {
					t.Fatalf("octet %d: %d messages", at-off, s.Queued)
				}
				shut(t, q)
			}
		}
		if forgotten < 50 {
			t.Errorf("only %d flips were found", forgotten)
		}
	})
}

// TestDamagedKeyIsNotCarried: a segment with a damaged keyed record can be emptied all the same.
func TestDamagedKeyIsNotCarried(t *testing.T) {
	inTime(t, func(t *testing.T) {
		fs := vfstest.Memory()
		q := open(t, small(t, fs))
		b := request(t, q, 1, "body")
		q.mu.Lock()
		_, n := q.findKey(b.Key)
		loc := q.keyTables[0].Slot(n).Loc()
		name := q.dir.SegmentPath(q.segs.Of(loc).ID)
		q.mu.Unlock()
		flip(t, fs, name, loc.Offset()+store.HeaderSize+20)
		for i := 2; i < 100; i++ {
			request(t, q, i, strings.Repeat("x", 1000))
			settleAll(t, q)
		}
		time.Sleep(5 * time.Minute)
		if s := balanced(t, q); s.IdempotencyKeys != 98 || s.DamagedRecords == 0 || s.Compacted == 0 || s.Segments > 10 {
			t.Errorf("%+v", s)
		}
		shut(t, q)
		q = open(t, small(t, fs))
		if s := balanced(t, q); s.IdempotencyKeys != 98 {
			t.Errorf("%+v", s)
		}
		shut(t, q)
	})
}

// TestKeysOutliveAnUncertainClock: while the clock is in doubt no key is forgotten.
func TestKeysOutliveAnUncertainClock(t *testing.T) {
	inTime(t, func(t *testing.T) {
		clock := &wrongClock{}
		q := open(t, clock.config(small(t, vfstest.Memory())))
		defer shut(t, q)
		b := request(t, q, 1, "x")
		clock.set(30 * time.Hour)
		mustKnow(t, q, b) // before anything else has looked at the clock
		clock.set(0)
		time.Sleep(time.Hour)
		clock.set(30 * time.Hour)
		q.forgetExpired()
		time.Sleep(time.Hour)
		mustKnow(t, q, b)
		clock.set(0)
		time.Sleep(time.Hour)
		mustKnow(t, q, b)
	})
}

// TestKeysAtOnce commits requests, asks for them and has their messages delivered, all at once, while compaction carries
// what is left of them. It is for the race detector.
func TestKeysAtOnce(t *testing.T) {
	cfg := small(t, vfstest.Memory())
	cfg.Log = nil
	q := open(t, cfg)
	ctx, cancel := context.WithCancel(context.Background())
	var senders, others sync.WaitGroup
	done := make([][]*Batch, 4)
	for w := range done {
		senders.Go(func() {
			for i := range 200 {
				done[w] = append(done[w], request(t, q, w*1000+i, bodies(1+i%3, 10+i*5)...))
				mustKnow(t, q, done[w][i/2])
			}
		})
	}
	for range 2 {
		others.Go(func() {
			for {
				l, err := q.Next(ctx)
				if err != nil {
					return
				}
				q.Settle(l.Message.ID, indexes(l), Delivered)
			}
		})
	}
	others.Go(func() {
		for ctx.Err() == nil {
			balanced(t, q)
			q.mu.Lock()
			q.keyTables[0].Sweep(q.passed(), func(n uint32) { q.dropKey(q.keyTables[0], n) })
			q.mu.Unlock()
		}
	})
	senders.Wait()
	for q.Stats().Queued > 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	others.Wait()
	s := q.Stats()
	t.Logf("compaction emptied %d segments", s.Compacted)
	if s.IdempotencyKeys != 800 || s.Compacted == 0 {
		t.Errorf("%+v", s)
	}
	for range 2 {
		for _, list := range done {
			for _, b := range list {
				mustKnow(t, q, b)
			}
		}
		shut(t, q)
		q = open(t, cfg)
	}
	shut(t, q)
}

var keyScale = flag.Int("queue.keys", 20_000, "keys in TestOpenWithManyKeys")

// TestOpenWithManyKeys fills a queue with keys whose messages are gone, opens it again, and prints how long that takes
// and how much memory.
func TestOpenWithManyKeys(t *testing.T) {
	dir := t.TempDir()
	cfg := Config{Dir: dir, MinFree: 1, IdempotencyKeys: max(*keyScale, 1000), Log: testLog(t)}
	q := open(t, cfg)
	ids, began := envelope.ID(0), time.Now()
	until := time.Now().Add(24 * time.Hour)
	for n := 0; n < *keyScale; {
		for range 2000 { // as compaction writes them
			ids = q.ids.Next(time.Now())
			k := store.Keyed{Key: testKey(n), Whole: true, At: uint32(until.Unix()) - 86400, Until: uint32(until.Unix()), Earlier: []store.Placed{{Position: 0, ID: ids}}}
			q.mu.Lock()
			q.w.note(store.KindKeyed, 0, nil, 0, func(b []byte) []byte { return store.AppendKeyed(b, store.CodecVersion, &k) })
			q.mu.Unlock()
			n++
		}
		if err := q.w.flush(); err != nil {
			t.Fatal(err)
		}
	}
	s := q.Stats()
	t.Logf("%d keys written in %v: %d MB, %.0f octets each", s.IdempotencyKeys, time.Since(began).Round(time.Millisecond), s.Bytes>>20, float64(s.LiveBytes)/float64(s.IdempotencyKeys))
	shut(t, q)
	for _, what := range []string{"the last segment without an index", "all with indexes"} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		began = time.Now()
		q = open(t, cfg)
		took := time.Since(began)
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := q.Stats().IdempotencyKeys
		t.Logf("%d keys opened in %v, %s: %.1f octets of memory each", n, took.Round(time.Millisecond), what, float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/float64(n))
		if n != *keyScale {
			t.Fatalf("%d keys, want %d", n, *keyScale)
		}
		shut(t, q)
	}
	os.RemoveAll(dir)
}
