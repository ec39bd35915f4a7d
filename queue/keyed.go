package queue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
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

// keyed is the payload of a keyed record. It precedes the messages of its group, and the latest of a key has
// all that is known of the request.
type keyed struct {
	key     Key
	request [16]byte
	whole   bool
	at      uint32 // when the key came first, in seconds since 1970
	until   uint32
	// earlier messages are on the disk if this record is; own ones lie behind it, in the same group, of which a
	// power cut can leave the beginning only: see bind.
	earlier, own []placed
	answer       []byte
}

// placed is a message of a request.
type placed struct {
	position int
	id       envelope.ID
}

func appendKeyed(b []byte, form uint8, k *keyed) []byte {
	e := encoder{b, form}
	e.byte(form)
	e.b = append(append(e.b, k.key[:]...), k.request[:]...)
	e.bool(k.whole)
	e.uint(uint64(k.at))
	e.uint(uint64(k.until))
	e.placed(k.earlier)
	e.placed(k.own)
	e.string(string(k.answer))
	return e.b
}

func (e *encoder) placed(list []placed) {
	e.uint(uint64(len(list)))
	var last placed
	for _, p := range list {
		e.uint(uint64(p.position - last.position))
		e.int(int64(p.id - last.id))
		last = p
	}
}

func decodeKeyed(b []byte) (keyed, error) {
	d := decoder{s: string(b)}
	d.version()
	var k keyed
	copy(k.key[:], d.take(len(k.key)))
	copy(k.request[:], d.take(len(k.request)))
	k.whole = d.bool()
	k.at, k.until = uint32(d.uint()), uint32(d.uint())
	k.earlier, k.own = d.placed(), d.placed()
	k.answer = []byte(d.string())
	if d.err == nil && d.s != "" {
		d.fail(errShort)
	}
	return k, d.err
}

// keyHead is what the start of a keyed record says.
type keyHead struct {
	key       Key
	imported  bool // see Queue.keyTables
	at, until uint32
	// needs is the id of the first message that must be there, 0 when none must: see bind.
	needs uint64
}

// decodeKeyHead reads no more of a keyed record than that: compaction and starts read many.
func decodeKeyHead(b []byte) (h keyHead, err error) {
	if len(b) < keyHeadSize {
		return h, errShort
	}
	if err := checkVersion(b[0]); err != nil {
		return h, err
	}
	h.key = keyOf(b)
	h.imported = h.key == [16]byte(b[1+16:])
	b = b[keyHeadSize:]
	var n [4]uint64 // at, until, earlier messages, own messages
	for i := range n {
		if i == 3 && n[2] > 0 {
			break
		}
		v, size := binary.Uvarint(b)
		if size <= 0 {
			return h, errShort
		}
		n[i], b = v, b[size:]
	}
	if h.at, h.until = uint32(n[0]), uint32(n[1]); n[3] > 0 {
		_, size := binary.Uvarint(b) // its position
		if size <= 0 {
			return h, errShort
		}
		id, size := binary.Varint(b[size:])
		if size <= 0 {
			return h, errShort
		}
		h.needs = uint64(id)
	}
	return h, nil
}

// keyHeadSize is what precedes the times: version, key, request, whether it is whole.
const keyHeadSize = 1 + 16 + 16 + 1

// take reads n octets.
func (d *decoder) take(n int) string {
	if n > len(d.s) {
		d.fail(errShort)
		return ""
	}
	v := d.s[:n]
	d.s = d.s[n:]
	return v
}

func (d *decoder) placed() []placed {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	list := make([]placed, n)
	var last placed
	for i := range list {
		last.position += int(uint32(d.uint()))
		last.id += envelope.ID(d.int())
		list[i] = last
	}
	return list
}

// bind makes one list of the messages, without those of the record's own group that a power cut took away.
// Ids grow along a segment, so those are the ones above maxID, the largest that is left in the segment. An
// answer that speaks of them was never given.
func (k *keyed) bind(maxID uint64) {
	torn := slices.IndexFunc(k.own, func(p placed) bool { return uint64(p.id) > maxID })
	if torn >= 0 {
		k.own, k.whole, k.answer = k.own[:torn], false, nil
	}
	k.earlier, k.own = append(k.earlier, k.own...), nil
}

// Keyed returns what became of the request with a key; false when the key is not known, or not any more. An
// error says that it is known and can't be read just now.
func (q *Queue) Keyed(key Key) (Keyed, bool, error) {
	k, ok, err := q.readKey(key)
	if !ok || err != nil {
		return Keyed{}, false, err
	}
	out := Keyed{Request: k.request, IDs: make(map[int]envelope.ID, len(k.earlier)), Whole: k.whole, Answer: k.answer, Until: time.Unix(int64(k.until), 0)}
	for _, p := range k.earlier {
		out.IDs[p.position] = p.id
	}
	return out, true, nil
}

// readKey reads the latest record of a key. One that is damaged is forgotten: a request that is sent again is
// taken again.
func (q *Queue) readKey(key Key) (k keyed, ok bool, err error) {
	for last := (place{}); ; {
		p, seg := q.keyPlace(key)
		if seg == nil {
			return keyed{}, false, nil
		}
		k, err = q.readKeyed(p, key, seg.maxID)
		switch {
		case err == nil:
			return k, true, nil
		case errors.Is(err, errGone) && p != last:
			last = p
		case q.forgetDamaged(key, seg, q.gone(p, err)):
			return keyed{}, false, nil
		default:
			return keyed{}, false, q.gone(p, err)
		}
	}
}

// keyPlace is where the latest record of a key lies; nil where the key is not known, or not any more.
func (q *Queue) keyPlace(key Key) (place, *segment) {
	now := q.now()
	q.mu.Lock()
	defer q.mu.Unlock()
	t, n := q.findKey(key)
	if n == 0 {
		return place{}, nil
	}
	s := t.Slot(n)
	if s.Until <= q.keysEnd(now) {
		return place{}, nil
	}
	return q.placeOf(s.Loc(), schedule.Octets(s.Size)), q.segs.of(s.Loc())
}

// readKeyed reads a keyed record from its place.
func (q *Queue) readKeyed(p place, key Key, maxID uint64) (keyed, error) {
	rec, err := q.readRecord(p)
	if err != nil {
		return keyed{}, err
	}
	k, err := decodeKeyed(rec.Payload)
	if err == nil && (rec.Kind != kindKeyed || k.key != key) {
		err = errors.New("another record is there")
	}
	if err != nil {
		return keyed{}, &damageError{file: q.segmentPath(p.id), off: p.off, err: err}
	}
	k.bind(maxID)
	return k, nil
}

// forgetDamaged drops a key whose record is not what was written, and reports whether that is so.
func (q *Queue) forgetDamaged(key Key, of *segment, err error) bool {
	damage := (*damageError)(nil)
	if !errors.As(err, &damage) || damage.disk {
		return false
	}
	q.reportDamage(err, "an idempotency key is lost: a request that is sent again with it is taken as a new one")
	q.mu.Lock()
	defer q.mu.Unlock()
	if t, n := q.findKey(key); n != 0 && q.keySegment(t, n) == of {
		of.damaged = true
		q.dropKey(t, n)
	}
	return true
}

// keying is the keyed records of a batch that is being written. It is the writer's until the batch has its
// answer.
type keying struct {
	keyed
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
	k.key, k.request, k.at, k.until = b.Key, b.Request, q.passed(), secondsOf(b.Until)
	if !known || Key(b.Request) == b.Key { // what an import stores takes the place of what was there
		return k, nil
	}
	if before.request != b.Request || before.whole {
		return nil, errors.New("queue: the key is that of another request, or of one that came to its end")
	}
	for _, p := range before.earlier {
		if b.has(p.position) {
			return nil, fmt.Errorf("queue: message %d of the request was committed before", p.position)
		}
	}
	k.at, k.until, k.earlier = before.at, max(before.until, k.until), before.earlier
	return k, nil
}

// bound is more than the octets of the record for the group.
func (k *keying) bound() int64 {
	return journal.Size(64 + (len(k.earlier)+k.inGroup)*2*10 + len(k.final))
}

// append makes the record for the messages that are its own now. Positions are in order but for those of a
// request that was sent again.
func (k *keying) append(b []byte, form uint8) []byte {
	if k.whole = k.last && k.missing == len(k.own); k.whole {
		k.answer = k.final
	}
	return appendKeyed(b, form, &k.keyed)
}

// done notes that the record and the messages of its group are durable.
func (k *keying) done() {
	k.missing -= len(k.own)
	k.earlier, k.own, k.inGroup = append(k.earlier, k.own...), k.own[:0], 0
}

// answered writes down the answer of a request whose end has no messages.
func (q *Queue) answered(k *keying) error {
	q.mu.Lock()
	q.w.note(kindKeyed, 0, nil, 0, func(b []byte) []byte { return k.append(b, q.form()) })
	q.mu.Unlock()
	return q.w.flush()
}

// keyWritten enters in the table where the latest record of a key lies.
func (q *Queue) keyWritten(seg *segment, h keyHead, offset, size int64) {
	q.setKey(seg, keyItem{keyHead: h, off: uint32(offset / journal.Align), size: schedule.SizeClass(size)})
}

// setKey enters the place of a key's latest record, in place of the one before. Where the table is full another key
// goes: see keyTable. It returns the table and the number of the key's slot.
func (q *Queue) setKey(seg *segment, it keyItem) (t *schedule.KeyTable, n uint32) {
	was, n := q.findKey(it.key)
	t = q.tableOf(&it.keyHead)
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
		n = t.Add(it.key)
	}
	s := t.Slot(n)
	s.Until, s.Size = it.until, it.size
	s.SetLoc(schedule.LocOf(seg.handle, it.offset()))
	seg.keys++
	seg.live += schedule.Octets(s.Size)
	return t, n
}

// tableOf returns the table that a key belongs to: see Queue.keyTables.
func (q *Queue) tableOf(h *keyHead) *schedule.KeyTable {
	_, ofTenant := h.key.Tenant()
	switch {
	case !h.imported:
		return q.keyTables[0]
	case !ofTenant:
		return q.keyTables[1]
	}
	return q.keyTables[2]
}

// Keys calls each with the requests of clients whose keys have a tenant and fit, and with what imports have stored under
// such keys. Its error ends the walk.
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
func (q *Queue) keySegment(t *schedule.KeyTable, n uint32) *segment {
	return q.segs.of(t.Slot(n).Loc())
}

// dropKey forgets the key in a slot.
func (q *Queue) dropKey(t *schedule.KeyTable, n uint32) {
	q.uncountKey(t, n)
	t.Remove(n)
}

func (q *Queue) uncountKey(t *schedule.KeyTable, n uint32) {
	seg := q.keySegment(t, n)
	seg.keys--
	seg.live -= schedule.Octets(t.Slot(n).Size)
	if seg.sealed && seg.keys == 0 {
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
func (q *Queue) loseKeys(v *segment) {
	if !v.damaged || v.keys == 0 {
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
	t, slot := q.findKey(keyOf(n.payload))
	return slot != 0 && q.keySegment(t, slot) == n.of
}

// keyOf is the key of a keyed record's payload.
func keyOf(payload []byte) (key Key) {
	copy(key[:], payload[1:])
	return key
}

// keyNoteWritten enters a key that was carried, or whose request ended without messages.
func (q *Queue) keyNoteWritten(seg *segment, n *note) {
	h, err := decodeKeyHead(n.payload)
	if err != nil {
		panic("queue: a keyed record of our own making: " + err.Error())
	}
	if n.of != nil {
		if t, slot := q.findKey(h.key); slot == 0 || q.keySegment(t, slot) != n.of {
			return
		}
	}
	q.keyWritten(seg, h, n.offset, journal.Size(len(n.payload)))
}

// noBound is the bound of a segment that was begun since Open: all that its keys name is there.
const noBound = math.MaxUint64
