package queue

import (
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
)

// Key names a request that is to be taken once, however often it is sent: keyed sums of the tenant and of
// the Idempotency-Key. The zero Key is none.
type Key = envelope.RequestKey

// Keyed is what is known of a request that had a key.
type Keyed struct {
	Request [16]byte            // as in Batch
	IDs     map[int]envelope.ID // of the messages that were accepted, by position in the request
	Whole   bool                // the request came to its end: Answer is there
	Answer  []byte
	Until   time.Time // when the key is forgotten
}

// maxAnswer bounds an answer, in octets.
const maxAnswer = 1 << 20

// Keyed returns what became of the request with a key; false when the key is not known, or not any more. An
// error says that it is known and can't be read just now.
func (q *Queue) Keyed(key Key) (Keyed, bool, error) {
	k, ok, err := q.readKey(key)
	if !ok || err != nil {
		return Keyed{}, false, err
	}
	out := Keyed{Request: k.Request, IDs: make(map[int]envelope.ID, len(k.Earlier)), Whole: k.Whole, Answer: k.Answer,
		Until: time.Unix(int64(k.Until), 0)}
	for _, p := range k.Earlier {
		out.IDs[p.Position] = p.ID
	}
	return out, true, nil
}

// readKey reads the latest record of a key. One that is damaged is forgotten: a request that is sent again is
// taken again.
func (q *Queue) readKey(key Key) (store.Keyed, bool, error) {
	var seg *store.Segment
	k, known, err := chase(q, func() (p store.Place, known bool) {
		p, seg = q.keyPlace(key)
		return p, seg != nil
	}, func(p store.Place) (store.Keyed, error) { return q.readKeyed(p, key, seg.MaxID) })
	if !known || err != nil && q.forgetDamaged(key, seg, err) {
		return store.Keyed{}, false, nil
	}
	return k, err == nil, err
}

// keyPlace is where the latest record of a key lies; nil where the key is not known, or not any more.
func (q *Queue) keyPlace(key Key) (store.Place, *store.Segment) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	t, n := q.findKey(key)
	if n == 0 {
		return store.Place{}, nil
	}
	s := t.Slot(n)
	if s.Until <= q.keysEnd(now) {
		return store.Place{}, nil
	}
	return q.placeOf(s.Loc(), schedule.Octets(s.Size)), q.segs.Of(s.Loc())
}

// readKeyed reads a keyed record from its place.
func (q *Queue) readKeyed(p store.Place, key Key, maxID uint64) (store.Keyed, error) {
	rec, err := q.dir.ReadRecord(p)
	if err != nil {
		return store.Keyed{}, err
	}
	k, err := store.DecodeKeyed(rec.Payload)
	if err == nil && (rec.Kind != store.KindKeyed || k.Key != key) {
		err = errors.New("another record is there")
	}
	if err != nil {
		return store.Keyed{}, &store.DamageError{File: q.dir.SegmentPath(p.ID), Off: p.Off, Err: err}
	}
	k.Bind(maxID)
	return k, nil
}

// forgetDamaged drops a key whose record is not what was written, and reports whether that is so.
func (q *Queue) forgetDamaged(key Key, of *store.Segment, err error) bool {
	damage := (*store.DamageError)(nil)
	if !errors.As(err, &damage) || damage.Disk {
		return false
	}
	q.reportDamage(err, "an idempotency key is lost: a request that is sent again with it is taken as a new one")
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, n := q.findKey(key); n != 0 && q.keySegment(t, n) == of {
		of.Damaged = true
		q.dropKey(t, n)
	}
	return true
}

// keying is the keyed records of a batch that is being written. It is the writer's until the batch has its
// answer.
type keying struct {
	store.Keyed
	last    bool   // the batch is the last of its request
	final   []byte // the answer then
	missing int    // drafts that are not durable yet

	inGroup int   // drafts in the group that is being written
	offset  int64 // where its record of the group was written
	size    int64
}

// keyingOf begins the keyed records of a batch: it has what was committed with the key before.
func (q *Queue) keyingOf(b *Batch) (*keying, error) {
	before, known, err := q.readKey(b.Key)
	if err != nil {
		return nil, err
	}
	k := &keying{last: b.Last, final: b.Answer, missing: len(b.Drafts)}
	k.Key, k.Request, k.At, k.Until = b.Key, b.Request, q.passed(), store.SecondsOf(b.Until)
	if !known || Key(b.Request) == b.Key { // what an import stores takes the place of what was there
		return k, nil
	}
	if before.Request != b.Request || before.Whole {
		return nil, errors.New("queue: the key is that of another request, or of one that came to its end")
	}
	for _, p := range before.Earlier {
		if b.has(p.Position) {
			return nil, fmt.Errorf("queue: message %d of the request was committed before", p.Position)
		}
	}
	k.At, k.Until, k.Earlier = before.At, max(before.Until, k.Until), before.Earlier
	return k, nil
}

// bound is more than the octets of the record for the group.
func (k *keying) bound() int64 {
	return store.RecordSize(64 + (len(k.Earlier)+k.inGroup)*2*10 + len(k.final))
}

// append makes the record for the messages that are its own now. Positions are in order but for those of a
// request that was sent again.
func (k *keying) append(b []byte, form uint8) []byte {
	if k.Whole = k.last && k.missing == len(k.Own); k.Whole {
		k.Answer = k.final
	}
	return store.AppendKeyed(b, form, &k.Keyed)
}

// done notes that the record and the messages of its group are durable.
func (k *keying) done() {
	k.missing -= len(k.Own)
	k.Earlier, k.Own, k.inGroup = append(k.Earlier, k.Own...), k.Own[:0], 0
}

// answered writes down the answer of a request whose end has no messages.
func (q *Queue) answered(k *keying) error {
	q.mu.Lock()
	q.w.note(store.KindKeyed, 0, nil, 0, func(b []byte) []byte { return k.append(b, q.form()) })
	q.mu.Unlock()
	return q.w.flush()
}

// keyWritten enters in the table where the latest record of a key lies.
func (q *Queue) keyWritten(seg *store.Segment, h store.KeyHead, offset, size int64) {
	q.setKey(seg, store.KeyItem{KeyHead: h, Off: uint32(offset / store.Align), Size: schedule.SizeClass(size)})
}

// setKey enters the place of a key's latest record, in place of the one before. Where the table is full another key
// goes: see keyTable. It returns the table and the number of the key's slot.
func (q *Queue) setKey(seg *store.Segment, it store.KeyItem) (t *schedule.KeyTable, n uint32) {
	was, n := q.findKey(it.Key)
	t = q.tableOf(&it.KeyHead)
	if n != 0 && was != t { // by an index of an earlier program, which had one table
		q.dropKey(was, n)
		n = 0
	}
	if n != 0 {
		q.uncountKey(t, n)
	} else {
		if t.Full() {
			t.Evicted++
			q.dropKey(t, t.Evictable())
		}
		n = t.Add(it.Key)
	}
	s := t.Slot(n)
	s.Until, s.Size = it.Until, it.Size
	s.SetLoc(schedule.LocOf(seg.Handle, it.Offset()))
	seg.Keys++
	seg.Live += schedule.Octets(s.Size)
	return t, n
}

// tableOf returns the table that a key belongs to: see Queue.keyTables.
func (q *Queue) tableOf(h *store.KeyHead) *schedule.KeyTable {
	_, ofTenant := h.Key.Tenant()
	switch {
	case !h.Imported:
		return q.keyTables[0]
	case !ofTenant:
		return q.keyTables[1]
	}
	return q.keyTables[2]
}

// Keys calls each with the requests of clients whose keys have a tenant and fit, and with what imports have stored
// under such keys. Its error ends the walk.
func (q *Queue) Keys(fits func(Key) bool, each func(Key, *Keyed) error) error {
	for _, t := range [...]*schedule.KeyTable{q.keyTables[0], q.keyTables[2]} {
		var some []Key
		for next, more := uint32(1), true; more; {
			q.mu.Lock()
			some, next, more = t.Some(some[:0], next)
			q.mu.Unlock()
			for _, key := range some {
				if _, ok := key.Tenant(); !ok || !fits(key) {
					continue
				}
				k, ok, err := q.Keyed(key)
				if ok {
					err = each(key, &k)
				}
				if err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// findKey gives the table that has a key, and its slot there; slot 0 when none has it.
func (q *Queue) findKey(key Key) (*schedule.KeyTable, uint32) {
	for _, t := range q.keyTables {
		if n := t.Find(key); n != 0 {
			return t, n
		}
	}
	return nil, 0
}

// keySegment has the latest record of the key in a slot.
func (q *Queue) keySegment(t *schedule.KeyTable, n uint32) *store.Segment {
	return q.segs.Of(t.Slot(n).Loc())
}

// dropKey forgets the key in a slot.
func (q *Queue) dropKey(t *schedule.KeyTable, n uint32) {
	q.uncountKey(t, n)
	t.Remove(n)
}

func (q *Queue) uncountKey(t *schedule.KeyTable, n uint32) {
	seg := q.keySegment(t, n)
	seg.Keys--
	seg.Live -= schedule.Octets(t.Slot(n).Size)
	if seg.Sealed && seg.Keys == 0 {
		q.nudge(q.kick.janitor)
	}
}

// sweptAtOnce is how many slots the janitor looks at each time, so that a full table is swept every few minutes.
const sweptAtOnce = 64 << 10

// keysEnd is the time by which keys are forgotten: now, or never while the clock is in doubt. Whether it is has to be
// found out first: the clock may have jumped since it was looked at last. The caller has q.mu.
func (q *Queue) keysEnd(now time.Time) uint32 {
	q.lookAtClock(now)
	if q.clock.doubtful(q.clock.running) > 0 {
		return 0
	}
	return uint32(now.Unix())
}

// forgetExpired drops keys whose time is over, unless the clock is in doubt.
func (q *Queue) forgetExpired() {
	for _, t := range q.keyTables {
		for range sweptAtOnce / schedule.KeyChunk {
			now := q.now()
			q.mu.Lock()
			more := t.Sweep(q.keysEnd(now), func(n uint32) { q.dropKey(t, n) })
			q.mu.Unlock()
			if !more {
				break
			}
		}
	}
}

// loseKeys forgets the keys that damage has left in a segment that is emptied of all else. The caller has q.mu.
func (q *Queue) loseKeys(v *store.Segment) {
	if !v.Damaged || v.Keys == 0 {
		return
	}
	for _, t := range q.keyTables {
		t.Each(func(n uint32) {
			if q.keySegment(t, n) == v {
				q.dropKey(t, n)
			}
		})
	}
}

// isCurrent reports whether a keyed record that compaction carries is still the latest of its key.
func (q *Queue) isCurrent(n *note) bool {
	if n.of == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	t, slot := q.findKey(store.KeyOf(n.payload))
	return slot != 0 && q.keySegment(t, slot) == n.of
}

// keyNoteWritten enters a key that was carried, or whose request ended without messages.
func (q *Queue) keyNoteWritten(seg *store.Segment, n *note) {
	h, err := store.DecodeKeyHead(n.payload)
	if err != nil {
		panic("queue: a keyed record of our own making: " + err.Error())
	}
	if n.of != nil {
		if t, slot := q.findKey(h.Key); slot == 0 || q.keySegment(t, slot) != n.of {
			return
		}
	}
	q.keyWritten(seg, h, n.offset, store.RecordSize(len(n.payload)))
}
