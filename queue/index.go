package queue

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"

	"example.org/mta/queue/journal"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/vfs"
)

// itemKind says what an item of an index stands for.
type itemKind uint8

const (
	itemAccepted itemKind = 1 + iota // a message; at is when it was accepted, rcpt how many recipients it has, due its origin, key the domain of the first: see nameOf
	itemMoved                        // the same, its recipients' states follow as items
	itemLarge                        // the number of the content's own file, in due and key
	itemState                        // a recipient of the moved message before
	itemDeferred
	itemChanged // key is the new release of its message, 0 for none
	itemSettled
	itemTenant  // of the message before: key is the name, octets the size of its content
	itemExpires // of the message before: due is when it is given up whatever its age
	itemPlan    // of the message before: due is its release, key its spread
	itemDomain  // of the message before: key is the domain of its recipients from rcpt on
)

// item is what start-up must know of a record, or of one of its recipients.
type item struct {
	id       uint64
	off      uint32 // of the record, in units of journal.Align
	kind     itemKind
	marks    marks
	rcpt     uint16
	attempts uint16
	size     uint8 // accepted, moved: schedule.SizeClass of the record; state: 1 with a reply
	tier     uint8 // accepted, moved
	due      uint32
	key      uint32 // index in the keys of its index
	at       uint32 // seconds since 1970: when the record was written; 0 where it has no time
}

const itemSize = 32

// octets is the size of a content, which an item about a tenant has in due and attempts.
func (it *item) octets() int64 { return int64(it.attempts)<<32 | int64(it.due) }

func (it *item) setOctets(n int64) {
	n = min(n, 1<<48-1)
	it.due, it.attempts = uint32(n), uint16(n>>32)
}

func (it *item) offset() int64 { return int64(it.off) * journal.Align }

func (it *item) put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, it.id)
	le.PutUint32(b[8:], it.off)
	b[12], b[13], b[14], b[15] = byte(it.kind), byte(it.marks), it.size, 1+it.tier
	le.PutUint16(b[16:], it.rcpt)
	le.PutUint16(b[18:], it.attempts)
	le.PutUint32(b[20:], it.due)
	le.PutUint32(b[24:], it.key)
	le.PutUint32(b[28:], it.at)
}

func (it *item) get(b []byte) {
	le := binary.LittleEndian
	_ = b[itemSize-1]
	it.id, it.off = le.Uint64(b), le.Uint32(b[8:])
	it.kind, it.marks, it.size = itemKind(b[12]), marks(b[13]), b[14]
	it.tier = tierOf(b[15])
	it.rcpt, it.attempts = le.Uint16(b[16:]), le.Uint16(b[18:])
	it.due, it.key, it.at = le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:])
}

// unknownTier stands for the tier where an index was written without: normal mail.
const unknownTier = 3

// tierOf reads what put wrote. Earlier versions wrote 0.
func tierOf(b byte) uint8 {
	if b == 0 {
		return unknownTier
	}
	return b - 1
}

// index is what start-up must know of a sealed segment: a pure function of the segment's records,
// and so to be made again at any time. One that damage has left incomplete is never written down:
// what can't be read today may be readable tomorrow, and compaction takes what is not in an index
// for settled.
type index struct {
	segment journal.Segment
	form    uint8  // the newest version of its records
	end     int64  // what of the segment is to be trusted, in octets
	maxID   uint64 // the largest id in it
	items   []item // by id, and for one id in the order of the journal
	keys    []string
	buried  []burial
	byKey   []keyItem // in the order of the journal

	damaged    []journal.Damage // not in the file
	keyNumbers map[string]uint32
	records    [kindKeyed + 1]int // by kind; not in the file
}

func newIndex(seg journal.Segment) *index {
	return &index{segment: seg, keyNumbers: map[string]uint32{}}
}

// scanIndex makes the index of a segment from the segment. An error means that the file could
// not be opened, or is of a newer program (formatError); damage inside is in the index.
func scanIndex(fs vfs.FS, name string, seg journal.Segment, end int64) (*index, journal.Result, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, journal.Result{}, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, journal.Result{}, err
	}
	ix := newIndex(seg)
	var odd []journal.Damage
	res, err := journal.Scan(f, size, seg, end, func(rec journal.Record) error {
		err := ix.add(rec)
		if format := (*formatError)(nil); errors.As(err, &format) {
			format.file, format.off, format.kind = name, rec.Offset, rec.Kind
			return format
		}
		if err != nil {
			odd = append(odd, journal.Damage{Offset: rec.Offset, End: rec.Offset + journal.Size(len(rec.Payload)), Err: err})
		}
		return nil
	})
	if err != nil {
		return nil, res, err
	}
	ix.end = res.End
	ix.damaged = append(res.Damaged, odd...)
	ix.salvage(f, size)
	ix.sort()
	ix.dropUnusedKeys()
	ix.dropTornKeys()
	return ix, res, nil
}

// unread reports whether some of the damage may be gone another day: octets that the disk did
// not give, records that a newer version wrote.
func (ix *index) unread() bool {
	return slices.ContainsFunc(ix.damaged, func(d journal.Damage) bool { return d.Err != nil })
}

// add takes note of a record. An error means that the record is sound but can't be understood.
func (ix *index) add(rec journal.Record) error {
	if int(rec.Kind) < len(ix.records) {
		ix.records[rec.Kind]++
	}
	if len(rec.Payload) > 0 {
		ix.form = max(ix.form, rec.Payload[0])
	}
	it := item{id: rec.ID, off: uint32(rec.Offset / journal.Align)}
	switch rec.Kind {
	case kindOpened:
		o, err := decodeOpening(rec.Payload)
		ix.maxID = max(ix.maxID, o.lastID)
		return err
	case kindAccepted, kindMoved:
		return ix.addMessage(it, rec)
	case kindSettled:
		it.kind = itemSettled
		_, err := decodeSettled(rec.Payload, func(r uint16) {
			it.rcpt = r
			ix.items = append(ix.items, it)
		})
		return err
	case kindDeferred:
		f, err := decodeDeferral(rec.Payload)
		if err != nil {
			return err
		}
		it.kind, it.due, it.key = itemDeferred, f.due, ix.key(f.key)
		it.at = f.at
		for i, r := range f.rcpts {
			it.rcpt, it.attempts = r, f.attempts[i]
			ix.items = append(ix.items, it)
		}
	case kindChanged:
		c, err := decodeChange(rec.Payload)
		if err != nil {
			return err
		}
		it.kind, it.due, it.marks = itemChanged, c.due, c.marks
		it.at, it.key = c.at, c.release
		for _, r := range c.rcpts {
			it.rcpt = r
			ix.items = append(ix.items, it)
		}
	case kindBuried:
		g, err := decodeBurial(rec.Payload)
		if err != nil {
			return err
		}
		ix.buried = append(ix.buried, g)
	case kindKeyed:
		return ix.addKey(rec)
	case kindSynced:
		d := decoder{s: string(rec.Payload)}
		d.version()
		return d.err
	default:
		return &formatError{}
	}
	return nil
}

func (ix *index) addMessage(it item, rec journal.Record) error {
	c, err := parseContent(rec.Payload)
	if err != nil {
		return err
	}
	return ix.addContent(it, rec.Kind == kindMoved, &c, journal.Size(len(rec.Payload)))
}

// addContent takes note of a message whose record takes size octets.
func (ix *index) addContent(it item, moved bool, c *content, size int64) (err error) {
	var states []recipientState
	var written uint32
	if moved {
		if written, states, err = decodeStates(c.states); err != nil {
			return err
		}
	}
	if err := checkEnvelope(c.env); err != nil {
		return err
	}
	ix.maxID = max(ix.maxID, it.id)
	it.kind, it.rcpt = itemAccepted, c.rcpts
	if moved {
		it.kind = itemMoved
	}
	it.size = schedule.SizeClass(size)
	t := decodeTimes(c.env)
	it.at, it.tier = secondsSince1970(t.received), t.tier
	tenant := ix.addNames(it, c.env)
	if t.plan.scheduled() {
		ix.items = append(ix.items, item{id: it.id, off: it.off, kind: itemPlan, due: t.plan.release, key: t.plan.spread})
	}
	if t.expires != 0 {
		ix.items = append(ix.items, item{id: it.id, off: it.off, kind: itemExpires, due: t.expires})
	}
	if tenant != "" {
		of := item{id: it.id, off: it.off, kind: itemTenant, key: ix.key(tenant)}
		of.setOctets(c.bodyLen)
		ix.items = append(ix.items, of)
	}
	if c.large != 0 {
		ix.items = append(ix.items, item{id: it.id, off: it.off, kind: itemLarge, due: uint32(c.large), key: uint32(c.large >> 32)})
	}
	for i := range states {
		s := &states[i]
		st := item{id: it.id, off: it.off, kind: itemState, marks: s.marks, rcpt: s.rcpt, attempts: s.attempts, due: s.due, key: ix.key(s.key), at: written}
		if s.replied {
			st.size = 1
		}
		ix.items = append(ix.items, st)
	}
	return nil
}

// addNames takes note of a message with the names that its recipients are counted by, and returns its tenant.
func (ix *index) addNames(it item, env []byte) (tenant string) {
	at := len(ix.items)
	ix.items = append(ix.items, it)
	last := uint32(0)
	o, ok := decodeOrigin(env, func(r int, domain string) {
		key := ix.key(domain) + 1
		switch {
		case r == 0:
			ix.items[at].key = key
		case key != last:
			ix.items = append(ix.items, item{id: it.id, off: it.off, kind: itemDomain, rcpt: uint16(r), key: key})
		}
		last = key
	})
	if ok {
		ix.items[at].due = ix.key(o.Text()) + 1
	} else {
		ix.items = ix.items[:at+1]
		ix.items[at].key = 0
	}
	return o.Tenant
}

// nameOf gives the name of a number that an item has for an origin or a domain; false for 0, which stands for a
// name that is not known.
func (ix *index) nameOf(number uint32) (string, bool) {
	if number == 0 || int(number) > len(ix.keys) {
		return "", false
	}
	return ix.keys[number-1], true
}

// mostIndexed bounds the origins and domains that an index names, so that many indexes together stay small. Recipients
// of further ones are counted without a name after a start.
const mostIndexed = 16384

// dropUnusedKeys leaves out the names that no item has any more, and those beyond mostIndexed.
func (ix *index) dropUnusedKeys() {
	numbers := make([]uint32, len(ix.keys)) // new ones, one more each
	var kept []string
	keep := func(n uint32) uint32 {
		if numbers[n] == 0 {
			kept = append(kept, ix.keys[n])
			numbers[n] = uint32(len(kept))
		}
		return numbers[n] - 1
	}
	indexed := 0
	keepName := func(n uint32) uint32 {
		if n == 0 {
			return 0
		}
		if numbers[n-1] == 0 {
			if indexed == mostIndexed {
				return 0
			}
			indexed++
		}
		return keep(n-1) + 1
	}
	for i := range ix.items {
		switch it := &ix.items[i]; it.kind {
		case itemAccepted, itemMoved:
			it.due, it.key = keepName(it.due), keepName(it.key)
		case itemDomain:
			it.key = keepName(it.key)
		case itemTenant, itemDeferred, itemState:
			it.key = keep(it.key)
		}
	}
	ix.keys, ix.keyNumbers = kept, nil
}

func (ix *index) key(name string) uint32 {
	if n, ok := ix.keyNumbers[name]; ok {
		return n
	}
	name = strings.Clone(name) // which is a part of an envelope
	n := uint32(len(ix.keys))
	ix.keys = append(ix.keys, name)
	ix.keyNumbers[name] = n
	return n
}

// sort brings the items in order and leaves out the messages that were accepted and wholly
// settled within the segment, as most are. It must not leave out those that were moved here:
// without them an older copy, if its segment is still there, would come to life again.
func (ix *index) sort() {
	byID := func(a, b item) int { return cmp.Compare(a.id, b.id) }
	if !slices.IsSortedFunc(ix.items, byID) {
		slices.SortStableFunc(ix.items, byID)
	}
	kept := ix.items[:0]
	for i := 0; i < len(ix.items); {
		j := i + 1
		for j < len(ix.items) && ix.items[j].id == ix.items[i].id {
			j++
		}
		if !settledWithin(ix.items[i:j]) {
			kept = append(kept, ix.items[i:j]...)
		}
		i = j
	}
	ix.items = kept
}

// settledWithin reports whether the items of one message begin with its acceptance and settle
// all its recipients.
func settledWithin(items []item) bool {
	if items[0].kind != itemAccepted {
		return false
	}
	settled := 0
	for i := range items {
		switch items[i].kind {
		case itemSettled:
			settled++
		case itemMoved:
			return false
		}
	}
	if settled < int(items[0].rcpt) {
		return false
	}
	// A recipient can be settled twice, after a failed write; count each once.
	seen := make(map[uint16]bool, items[0].rcpt)
	for i := range items {
		if items[i].kind == itemSettled {
			seen[items[i].rcpt] = true
		}
	}
	return len(seen) == int(items[0].rcpt)
}

// The file of an index: a header of 56 octets, the items, the keys of requests, the other keys and burials, and
// the CRC-32C of all that.
const (
	indexMagic      = "mtaidx5\n" // those of older programs have no keys of requests, no tenants or no domains, and are made again
	indexHeaderSize = 56
)

var (
	errIndex      = errors.New("index is damaged")
	errOtherIndex = errors.New("index of another version of mta")
)

// write makes the index's file durable under its name. It is written aside and renamed, so that
// there is a whole one or none.
func (ix *index) write(fs vfs.FS, name string) error {
	keysAt := indexHeaderSize + len(ix.items)*itemSize
	b := make([]byte, keysAt+len(ix.byKey)*keyItemSize, keysAt+len(ix.byKey)*keyItemSize+4096)
	copy(b, indexMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], ix.segment.Number)
	le.PutUint32(b[12:], ix.segment.Salt)
	le.PutUint64(b[16:], uint64(ix.end))
	le.PutUint64(b[24:], ix.maxID)
	le.PutUint64(b[32:], uint64(len(ix.items)))
	b[40] = ix.form
	le.PutUint64(b[48:], uint64(len(ix.byKey)))
	for i := range ix.items {
		ix.items[i].put(b[indexHeaderSize+i*itemSize:])
	}
	for i := range ix.byKey {
		ix.byKey[i].put(b[keysAt+i*keyItemSize:])
	}
	b = ix.appendTail(b)
	b = le.AppendUint32(b, journal.Checksum(0, b))
	return writeFile(fs, name, b)
}

func (ix *index) appendTail(b []byte) []byte {
	e := encoder{b: b}
	e.uint(uint64(len(ix.keys)))
	for _, k := range ix.keys {
		e.string(k)
	}
	e.uint(uint64(len(ix.buried)))
	for i := range ix.buried {
		e.string(string(appendBurial(nil, ix.form, &ix.buried[i])))
	}
	return e.b
}

func decodeTail(b []byte, r *run) error {
	d := decoder{s: string(b)}
	for range d.count(1) {
		r.keys = append(r.keys, d.string())
	}
	for range d.count(1) {
		g, err := decodeBurial([]byte(d.string()))
		if err != nil {
			return err
		}
		r.buried = append(r.buried, g)
	}
	if d.err == nil && d.s != "" {
		return errIndex
	}
	return d.err
}

// run is an index to be read in order, from its file or from memory.
type run struct {
	index          // items are nil when they are in the file
	file  vfs.File // nil when they are in memory
	count int
	keyed int // how many keys of requests
	buf   []byte
	next  int // the item after those in buf, or in items
	pos   int // in buf

	// sums are the file's sums up to where the items, the keys of requests and the tail begin, and to its end. What
	// is read again is held to them: a disk that gives other octets the second time must not make us take a
	// living message for a settled one.
	sums [4]uint32
	sum  uint32 // of the items so far
}

func (ix *index) run() *run { return &run{index: *ix, count: len(ix.items), keyed: len(ix.byKey)} }

// openIndex opens an index file and checks it whole. The items are read later, bit by bit.
func openIndex(fs vfs.FS, name string, seg journal.Segment) (_ *run, err error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	head := make([]byte, indexHeaderSize)
	if err := readFull(f, head, 0); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	r := &run{index: index{segment: seg}, file: f, count: int(le.Uint64(head[32:])), keyed: int(le.Uint64(head[48:]))}
	r.end, r.maxID, r.form = int64(le.Uint64(head[16:])), le.Uint64(head[24:]), head[40]
	tailAt := r.keysAt() + int64(r.keyed)*keyItemSize
	if magic := string(head[:8]); magic != indexMagic && magic[:6] == indexMagic[:6] && magic[7] == indexMagic[7] {
		return nil, errOtherIndex
	}
	if string(head[:8]) != indexMagic || le.Uint32(head[8:]) != seg.Number || le.Uint32(head[12:]) != seg.Salt ||
		r.count < 0 || int64(r.count) > size/itemSize || r.keyed < 0 || int64(r.keyed) > size/keyItemSize || tailAt+4 > size {
		return nil, errIndex
	}
	if err := r.checkSums(size, indexHeaderSize, r.keysAt(), tailAt, size-4); err != nil {
		return nil, err
	}
	tail := make([]byte, size-4-tailAt)
	if err := readFull(f, tail, tailAt); err != nil {
		return nil, err
	}
	if r.sum = r.sums[0]; journal.Checksum(0, head) != r.sums[0] || journal.Checksum(r.sums[2], tail) != r.sums[3] {
		return nil, errIndex
	}
	if err := decodeTail(tail, r); err != nil {
		return nil, err
	}
	return r, checkVersion(max(r.form, oldestVersion))
}

// checkSums reads the whole file, compares its sum with that at its end, and notes the sums up to some places.
func (r *run) checkSums(size int64, places ...int64) error {
	buf := make([]byte, 256<<10)
	crc, off := uint32(0), int64(0)
	for i, end := range places {
		for off < end {
			b := buf[:min(int64(len(buf)), end-off)]
			if err := readFull(r.file, b, off); err != nil {
				return err
			}
			crc = journal.Checksum(crc, b)
			off += int64(len(b))
		}
		r.sums[i] = crc
	}
	if err := readFull(r.file, buf[:4], size-4); err != nil {
		return err
	}
	if binary.LittleEndian.Uint32(buf) != crc {
		return errIndex
	}
	return nil
}

// read gives the next item; it reports false at the end. bufSize is what to read at once.
func (r *run) read(it *item, bufSize int) (bool, error) {
	if r.file == nil {
		if r.next == len(r.items) {
			return false, nil
		}
		*it = r.items[r.next]
		r.next++
		return true, nil
	}
	if r.pos == len(r.buf) {
		n := min(max(bufSize/itemSize, 1), r.count-r.next)
		if n == 0 {
			return false, nil
		}
		r.buf = slices.Grow(r.buf[:0], n*itemSize)[:n*itemSize]
		if err := readFull(r.file, r.buf, indexHeaderSize+int64(r.next)*itemSize); err != nil {
			return false, err
		}
		r.next += n
		r.pos = 0
		if r.sum = journal.Checksum(r.sum, r.buf); r.next == r.count && r.sum != r.sums[1] {
			return false, errIndex
		}
	}
	it.get(r.buf[r.pos:])
	r.pos += itemSize
	return true, nil
}

func (r *run) close() {
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.buf, r.items = nil, nil, nil
}

// readFull reads len(b) octets at off, all or an error.
func readFull(r io.ReaderAt, b []byte, off int64) error {
	n, err := r.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// writeFile makes a file with content b under name, whole or not at all. The name is durable
// when the directory is synced next.
func writeFile(fs vfs.FS, name string, b []byte) error {
	tmp := name + tmpSuffix
	if err := fs.Remove(tmp); err != nil && !isNotExist(err) {
		return err
	}
	f, err := fs.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = fs.Rename(tmp, name)
	}
	if err != nil {
		fs.Remove(tmp) // what is left of it goes at the next start otherwise
	}
	return err
}
