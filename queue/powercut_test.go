package queue

import (
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"strings"
	"sync"
	"testing"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/queue/store"
	"example.org/mta/queue/vfs"
	"example.org/mta/queue/vfs/shipping"
	"example.org/mta/queue/vfs/shipping/shippingtest"
	"example.org/mta/queue/vfs/vfstest"
)

var (
	cutSeeds = flag.Int("queue.cutseeds", 1, "workloads in which power is cut at every write")
	cutFirst = flag.Int64("queue.cutseed", 1, "seed of the first of them")
	step     = flag.Int("queue.step", 5, "1: power is cut at every write, and each octet flipped; 5: every fifth")
)

// TestPowerCutAtEveryWrite cuts the power at each write, sync, creation, renaming, removal and
// truncation of a workload, opens what is left, goes on, and cuts again, at a random place.
// Every message that was acknowledged must be there or settled; what was settled durably must
// not come back.
func TestPowerCutAtEveryWrite(t *testing.T) {
	for seed := *cutFirst; seed < *cutFirst+int64(*cutSeeds); seed++ {
		ops := 1
		for cut := 0; cut <= ops; cut += *step {
			ok := t.Run(fmt.Sprintf("seed=%d/cut=%d", seed, cut), func(t *testing.T) {
				inTime(t, func(t *testing.T) {
					n := cutRun(t, seed, cut)
					if cut == 0 {
						ops = n
					}
				})
			})
			if !ok {
				return
			}
		}
		t.Logf("seed %d: power was cut at every %d. of %d operations", seed, *step, ops)
	}
}

// cutRun does a workload with a cut, and then some more.
func cutRun(t *testing.T, seed int64, cut int) (ops int) {
	disk := vfstest.NewDisk(rand.New(rand.NewSource(seed<<20 + int64(cut))))
	w := &workload{t: t, rng: rand.New(rand.NewSource(seed)), known: map[string]*sent{}}
	if seed%2 == 0 {
		w.faults = rand.New(rand.NewSource(seed))
	}
	for generation := range 4 {
		disk.CutAt(cut)
		w.run(disk)
		if cut == 0 {
			return disk.Ops()
		}
		disk = disk.Reboot()
		cut = disk.Ops() + 1 + w.rng.Intn(250)
		if generation == 3 {
			cut = 0
		}
	}
	disk.CutAt(0)
	w.faults = nil
	w.last(disk)
	t.Logf("%d messages; compaction emptied %d segments, moved %d messages, wrote %d burials", w.made, w.total.Compacted, w.total.Moved, w.total.buried)
	return 0
}

// workload does what a relay does, and remembers what it was promised.
type workload struct {
	t      *testing.T
	rng    *rand.Rand
	q      *Queue
	made   int
	disk   *vfstest.Disk
	faults *rand.Rand       // nil: none but the power cuts
	quiet  sync.Mutex       // guards faults
	total  counters         // of all queues
	known  map[string]*sent // by sender, which is different for each message

	log      *shippingtest.Log // nil: the disk has none
	shipping *shipping.FS
	entries  int
}

// sent is a message as the client of the queue knows it.
type sent struct {
	body    string
	acked   bool
	failed  bool     // Commit failed, not for a power cut
	refused bool     // and the journal was written since, so that it must never be seen
	story   []string // what was done with it, for when the test fails
	id      envelope.ID
	rcpts   []sentRecipient
}

type sentRecipient struct {
	settled bool // Settle was called, or Remove is in force
	final   bool // and a sync has ended since
	held    bool // Change(Hold) was acknowledged
	unsure  bool // a change was under way when the power went
	bounce  asked
	// The last deferral, and whether a sync has ended since.
	attempts int
	last     reply.Reply
	key      parking.Key
	deferred bool
	parked   bool // since: the key can be that or this
}

// asked is whether an operator's Bounce is in force.
type asked uint8

const (
	no asked = iota
	yes
	unknown // the power was cut before it was durable
)

// fault lets a write or a sync of a segment fail now and then, before or after it is done.
func (w *workload) fault(op vfstest.Op, name string) *vfstest.Fault {
	w.quiet.Lock()
	defer w.quiet.Unlock()
	if w.faults == nil || !isSegment(name) || op != vfstest.Write && op != vfstest.Sync && op != vfstest.Truncate || w.faults.Intn(12) > 0 {
		return nil
	}
	return &vfstest.Fault{Err: errDisk, Done: w.faults.Intn(2) == 0, Part: w.faults.Intn(500)}
}

func (w *workload) config(disk *vfstest.Disk) Config {
	var fs vfs.FS
	if w.log == nil {
		faults := &vfstest.Faulty{FS: disk}
		faults.Decide(w.fault)
		fs = faults
	} else if under := w.under(disk); under != nil {
		fs = under
	}
	return Config{Dir: "/q", FS: fs, Log: testLog(w.t), SegmentSize: 8 << 10, LargeBody: 1500, MinFree: 1, CacheBytes: 20 << 10}
}

// run opens the queue, checks it and works until the power is cut or enough is done.
func (w *workload) run(disk *vfstest.Disk) {
	w.disk = disk
	cfg := w.config(disk)
	if cfg.FS == nil {
		return
	}
	q, err := Open(cfg)
	if err != nil {
		if !w.cut() {
			w.t.Fatal(err)
		}
		return
	}
	defer q.Close() // when the test has failed
	w.q = q
	if !w.check(disk) {
		return
	}
	for range 120 {
		if w.cut() {
			break
		}
		switch w.rng.Intn(12) {
		case 0, 1:
			w.accept()
		case 2, 3, 4, 5, 6, 7, 8, 9:
			w.work()
		case 10:
			w.operate()
		case 11:
			time.Sleep(time.Duration(w.rng.Intn(3000)) * time.Millisecond)
			w.flush()
		}
	}
	if err := q.Close(); err == nil {
		w.synced() // Close has synced all
	}
	w.total.Moved += q.count.Moved
	w.total.buried += q.count.buried
	w.total.Compacted += q.count.Compacted
}

// cut reports whether the disk was cut off, or its log.
func (w *workload) cut() bool { return w.disk.IsCut() || w.log != nil && w.log.IsCut() }

func (w *workload) accept() {
	var wg sync.WaitGroup
	for range 1 + w.rng.Intn(4) {
		w.made++
		m := message(1+w.rng.Intn(3), "example.net")
		m.Sender = envelope.Address(fmt.Sprintf("m%d@example.com", w.made))
		s := &sent{body: strings.Repeat(fmt.Sprint(w.made, " "), 1+w.rng.Intn(500)), rcpts: make([]sentRecipient, len(m.Recipients))}
		w.known[string(m.Sender)] = s
		wg.Go(func() {
			if commit(w.q, m, s.body) == nil {
				s.acked, s.id = true, m.ID
			} else {
				s.failed = !w.disk.IsCut()
			}
		})
	}
	wg.Wait()
}

// work takes one lease and does something with each recipient.
func (w *workload) work() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	l, err := w.q.Next(ctx)
	if err != nil {
		for i, line := range parkedLines {
			take := []func(parking.Line, int) []*Lease{w.q.Take, w.q.TakeNewest}[i%2]
			for _, l := range take(line, 2) {
				w.q.Return(l.Message.ID, indexes(l))
			}
		}
		return
	}
	s := w.known[string(l.Message.Sender)]
	outcome := Delivered
	if l.Why == BounceAsked {
		outcome = Bounced
	}
	for _, p := range l.Recipients {
		r, one := &s.rcpts[p.Index], []int{p.Index}
		if ends := l.Why == BounceAsked; ends && r.bounce == no || !ends && r.bounce == yes {
			w.dump(l.Message.ID)
			w.t.Fatalf("%s recipient %d is handed out as %v; asked to be bounced: %v", l.Message.Sender, p.Index, l.Why, r.bounce)
		}
		r.bounce = no
		if l.Why == BounceAsked {
			r.bounce = yes
		}
		switch do := w.rng.Intn(6); {
		case do < 3:
			r.settled = true
			w.q.Settle(l.Message.ID, one, outcome)
		case do == 3:
			w.deferred(l, &p, r)
		case do == 4 && l.Why != BounceAsked:
			r.parked = true
			w.q.Park(l.Message.ID, one, parkedLines[w.rng.Intn(len(parkedLines))], time.Time{})
		default:
			w.q.Return(l.Message.ID, one)
		}
	}
}

var (
	parkedLines  = []parking.Line{siteLine("parked"), {Key: site("parked"), Source: "a"}, {Key: site("parked"), Source: "b"}}
	deferredKeys = []parking.Key{site("site"), {Kind: parking.Tokens, Name: "pool", Provider: "big"}, {Kind: parking.Pause, Name: "tenant acme"}}
)

// deferred puts a recipient off: after an attempt, or since it can't be reported.
func (w *workload) deferred(l *Lease, p *Pending, r *sentRecipient) {
	untried := l.Why == BounceAsked
	r.attempts, r.deferred, r.parked = p.Attempts, false, false
	if !untried {
		r.attempts++
	}
	r.last, r.key = greylisted, deferredKeys[w.rng.Intn(3)]
	r.last.Text = fmt.Sprint("attempt ", r.attempts, " of ", l.Message.Sender)
	until := time.Now().Add(time.Duration(w.rng.Intn(5)) * time.Second)
	w.q.Defer(l.Message.ID, []int{p.Index}, until, Attempt{Reply: r.last, Via: r.last.Text, Untried: untried}, r.key)
}

// operate does to some message what an operator may.
func (w *workload) operate() {
	for _, s := range w.known {
		if !s.acked || w.rng.Intn(3) > 0 {
			continue
		}
		a := []Action{Hold, Unhold, Remove, RetryNow, Bounce}[w.rng.Intn(5)]
		for i := range s.rcpts {
			s.rcpts[i].unsure = true
		}
		n, err := w.q.Change(Selector{IDs: []envelope.ID{s.id}}, a, false)
		s.story = append(s.story, fmt.Sprint(time.Now().Format("05.000 "), a, " ", n, " ", err))
		// With an error it is in force, and not durable: unsure until the next sync.
		for i := range s.rcpts {
			r := &s.rcpts[i]
			switch {
			case r.settled:
			case a == Remove:
				r.settled = true
			case a == Bounce:
				r.held, r.bounce = false, yes
			case a == Hold:
				r.held, r.bounce = true, no
			case a == Unhold:
				r.held = false
			}
		}
		if n > 0 && err == nil { // else there was nothing to sync
			w.synced()
		}
		return
	}
}

func (w *workload) flush() {
	if w.q.w.flush() == nil {
		w.synced()
	}
}

// synced notes that all so far is durable.
func (w *workload) synced() {
	for _, s := range w.known {
		s.refused = s.refused || s.failed
		s.story = append(s.story, time.Now().Format("05.000 synced"))
		for i := range s.rcpts {
			r := &s.rcpts[i]
			r.final, r.unsure = r.settled, false
			r.deferred = r.attempts > 0
		}
	}
}

// check compares what the queue has with what was promised, and goes on with what is found. It
// reports false when the power was cut meanwhile.
func (w *workload) check(disk *vfstest.Disk) bool {
	t, q := w.t, w.q
	found := map[string]Item{}
	for cursor := ""; ; {
		l, err := q.List(Filter{}, Page{Cursor: cursor})
		if w.cut() {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range l.Items {
			if it.Unreadable {
				t.Fatalf("message %s can't be read", it.ID)
			}
			found[string(it.Sender)] = it
		}
		if cursor = l.Next; cursor == "" {
			break
		}
	}
	wrong := miscounted(q)
	if w.cut() {
		return false
	}
	if wrong != "" {
		t.Fatal(wrong)
	}
	if s := balanced(t, q); s.DamagedRecords > 0 || s.DamagedFiles > 0 || s.Unreadable > 0 {
		t.Fatalf("a power cut was taken for damage: %+v", s)
	}
	for sender, s := range w.known {
		it, ok := found[sender]
		delete(found, sender)
		w.checkMessage(sender, s, it, ok)
	}
	for sender := range found {
		t.Fatalf("message of %s was never sent", sender)
	}
	return true
}

func (w *workload) checkMessage(sender string, s *sent, it Item, ok bool) {
	t := w.t
	there := map[int]ItemRecipient{}
	for _, r := range it.Recipients {
		there[r.Index] = r
	}
	if ok && !s.acked && len(there) != len(s.rcpts) {
		t.Fatalf("message of %s was accepted for %d of %d recipients", sender, len(there), len(s.rcpts))
	}
	if ok && s.refused {
		w.dump(it.ID)
		t.Fatalf("message of %s was refused, durably, and is there", sender)
	}
	if s.acked && ok && s.id != it.ID {
		t.Fatalf("message of %s has id %s, was %s", sender, it.ID, s.id)
	}
	s.story = append(s.story, time.Now().Format("05.000 found "), fmt.Sprint(it.Recipients))
	s.refused = s.refused || !s.acked && !ok
	if ok {
		s.failed = false
		s.acked, s.id = true, it.ID // the client does not know; the queue does
		w.checkBody(s, it)
	}
	for i := range s.rcpts {
		r := &s.rcpts[i]
		is, living := there[i]
		switch {
		case !s.acked:
			r.settled, r.final = true, true // refused, and so it stays
		case living && r.final:
			w.dump(it.ID)
			t.Fatalf("%s recipient %d was settled durably and is back: %+v", sender, i, is)
		case living:
			w.checkRecipient(sender, r, &is)
			bounce := r.bounce
			if r.unsure {
				bounce = unknown
			}
			*r = sentRecipient{bounce: bounce, held: is.State == StateHeld, attempts: is.Attempts, last: is.Last, key: is.Line.Key, deferred: is.Attempts > 0}
		case !r.settled && !r.unsure:
			w.dump(s.id)
			t.Fatalf("%s recipient %d is lost", sender, i)
		default:
			r.settled, r.final = true, true
		}
	}
}

func (w *workload) checkRecipient(sender string, r *sentRecipient, is *ItemRecipient) {
	if !r.unsure && r.held != (is.State == StateHeld) {
		w.dump(w.known[sender].id)
		w.t.Fatalf("%s recipient %d: held is %v, want %v", sender, is.Index, is.State, r.held)
	}
	if r.deferred && (is.Attempts != r.attempts || is.Last != r.last || is.Via != r.last.Text || is.Line.Key != r.key && !r.parked) {
		w.dump(w.known[sender].id)
		w.t.Fatalf("%s recipient %d: %+v, want %+v", sender, is.Index, is, r)
	}
}

func (w *workload) checkBody(s *sent, it Item) {
	body, err := w.q.Body(it.ID)
	if err != nil {
		if strings.Contains(err.Error(), vfstest.ErrCut.Error()) {
			return
		}
		w.t.Fatal(err)
	}
	defer body.Close()
	b, err := io.ReadAll(body)
	if err == nil && string(b) != s.body {
		w.t.Fatalf("message %s has a content of %d octets, want %d", it.ID, len(b), len(s.body))
	}
	if err != nil && !strings.Contains(err.Error(), vfstest.ErrCut.Error()) {
		w.t.Fatal(err)
	}
}

// last settles everything on a disk that works, and looks whether the disk is empty then.
func (w *workload) last(disk *vfstest.Disk) {
	q := open(w.t, w.config(disk))
	w.q, w.disk = q, disk
	w.check(disk)
	q.Change(Selector{All: true}, Unhold, false)
	q.Change(Selector{All: true}, RetryNow, false)
	for q.Stats().Queued > 0 {
		l := next(w.t, q)
		q.Settle(l.Message.ID, indexes(l), Delivered)
	}
	w.flush()
	time.Sleep(10 * time.Second)
	s := balanced(w.t, q)
	if s.LiveBytes != 0 || s.Bytes > 2*q.cfg.SegmentSize || s.Segments > 2 {
		w.t.Fatalf("all is settled, and the disk has %d octets in %d segments, %d of them living", s.Bytes, s.Segments, s.LiveBytes)
	}
	shut(w.t, q)
	q = open(w.t, w.config(disk))
	if s := q.Stats(); s.Queued != 0 {
		w.t.Fatalf("%d recipients came back", s.Queued)
	}
	shut(w.t, q)
}

// dump logs what the disk has of a message.
func (w *workload) dump(id envelope.ID) {
	for sender, s := range w.known {
		if s.id == id {
			w.t.Logf("%s: %s", sender, strings.Join(s.story, "; "))
		}
	}
	list, _ := w.disk.List("/q")
	for _, f := range list {
		seg, suffix, ok := store.ParseSegmentName(f.Name)
		if !ok || suffix != store.SegmentSuffix {
			w.t.Log(f.Name, f.Size)
			continue
		}
		ix := store.NewIndex(seg)
		file, _ := w.disk.Open("/q/" + f.Name)
		res, _ := store.ScanRecords(file, f.Size, seg, store.UnknownEnd, func(r store.Record) error {
			if r.Kind == store.KindOpened {
				o, _ := store.DecodeOpening(r.Payload)
				w.t.Logf("%s opened %+v", f.Name, o)
			}
			return ix.Add(r)
		})
		w.t.Logf("%s size %d, %+v, records %v", f.Name, f.Size, res, ix.Records)
		for _, it := range ix.Items {
			if it.ID == uint64(id) {
				w.t.Logf("   %+v offset %d", it, it.Offset())
			}
		}
		w.t.Logf("   buried %+v", ix.Buried)
	}
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	for seg := range w.q.segs.All {
		w.t.Logf("memory: segment %d messages %d notes %d neededBy %d trimmed %v gone %v", seg.ID.Number, seg.Messages, seg.Notes, seg.NeededBy, seg.Trimmed, seg.Gone)
		for d, why := range seg.Deps {
			w.t.Logf("     needs %d %+v", d.ID.Number, why)
		}
	}
}
