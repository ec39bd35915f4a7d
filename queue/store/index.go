package store

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"

	"example.org/mta/queue/schedule"
	"example.org/mta/queue/vfs"
)

// itemKind says what an item of an index stands for.
type itemKind uint8

const (
	// a message; at is when it was accepted, rcpt how many recipients it has, due its origin, key the domain of the
	// first: see nameOf
	ItemAccepted itemKind = 1 + iota
	ItemMoved             // the same, its recipients' states follow as items
	itemLarge             // the number of the content's own file, in due and key
	ItemState             // a recipient of the moved message before
	ItemDeferred
	ItemChanged // key is the new release of its message, 0 for none
	itemSettled
	itemTenant  // of the message before: key is the name, octets the size of its content
	itemExpires // of the message before: due is when it is given up whatever its age
	itemPlan    // of the message before: due is its release, key its spread
	itemDomain  // of the message before: key is the domain of its recipients from rcpt on
)

// Item is what start-up must know of a record, or of one of its recipients.
type Item struct {
	ID       uint64
	Off      uint32 // of the record, in units of Align
	Kind     itemKind
	marks    Marks
	Rcpt     uint16
	attempts uint16
	Size     uint8 // accepted, moved: schedule.SizeClass of the record; state: 1 with a reply
	Tier     uint8 // accepted, moved
	due      uint32
	key      uint32 // index in the keys of its index
	at       uint32 // seconds since 1970: when the record was written; 0 where it has no time
}

// ItemSize is what an item takes in the file, in octets.
const ItemSize = 32

// octets is the size of a content, which an item about a tenant has in due and attempts.
func (it *Item) octets() int64 { return int64(it.attempts)<<32 | int64(it.due) }

func (it *Item) setOctets(n int64) {
	n = min(n, 1<<48-1)
	it.due, it.attempts = uint32(n), uint16(n>>32)
}

// Offset is where the record lies in its segment.
func (it *Item) Offset() int64 { return int64(it.Off) * Align }

// Put writes the item to b.
func (it *Item) Put(b []byte) {
	le := binary.LittleEndian
	le.PutUint64(b, it.ID)
	le.PutUint32(b[8:], it.Off)
	b[12], b[13], b[14], b[15] = byte(it.Kind), byte(it.marks), it.Size, 1+it.Tier
	le.PutUint16(b[16:], it.Rcpt)
	le.PutUint16(b[18:], it.attempts)
	le.PutUint32(b[20:], it.due)
	le.PutUint32(b[24:], it.key)
	le.PutUint32(b[28:], it.at)
}

// Get is the inverse of Put.
func (it *Item) Get(b []byte) {
	le := binary.LittleEndian
	_ = b[ItemSize-1]
	it.ID, it.Off = le.Uint64(b), le.Uint32(b[8:])
	it.Kind, it.marks, it.Size = itemKind(b[12]), Marks(b[13]), b[14]
	it.Tier = tierOf(b[15])
	it.Rcpt, it.attempts = le.Uint16(b[16:]), le.Uint16(b[18:])
	it.due, it.key, it.at = le.Uint32(b[20:]), le.Uint32(b[24:]), le.Uint32(b[28:])
}

// UnknownTier stands for the tier where an index was written without: normal mail.
const UnknownTier = 3

// tierOf reads what put wrote. Earlier versions wrote 0.
func tierOf(b byte) uint8 {
	if b == 0 {
		return UnknownTier
	}
	return b - 1
}

// Index is what start-up must know of a sealed segment: a pure function of the segment's records,
// and so to be made again at any time. One that damage has left incomplete is never written down:
// what can't be read today may be readable tomorrow, and compaction takes what is not in an index
// for settled.
type Index struct {
	segment SegmentID
	Form    uint8  // the newest version of its records
	End     int64  // what of the segment is to be trusted, in octets
	MaxID   uint64 // the largest id in it
	Items   []Item // by id, and for one id in the order of the journal
	Keys    []string
	Buried  []Burial
	byKey   []KeyItem // in the order of the journal

	Damaged    []Damage // not in the file
	keyNumbers map[string]uint32
	Records    [KindKeyed + 1]int // by kind; not in the file
}

// NewIndex makes the index of a segment without records.
func NewIndex(seg SegmentID) *Index {
	return &Index{segment: seg, keyNumbers: map[string]uint32{}}
}

// ScanIndex makes the index of a segment from the segment. An error means that the file could
// not be opened, or is of a newer program (formatError); damage inside is in the index.
func ScanIndex(fs vfs.FS, name string, seg SegmentID, end int64) (*Index, ScanResult, error) {
	f, err := fs.Open(name)
	if err != nil {
		return nil, ScanResult{}, err
	}
	defer f.Close()
	size, err := f.Size()
	if err != nil {
		return nil, ScanResult{}, err
	}
	ix := NewIndex(seg)
	var odd []Damage
	res, err := ScanRecords(f, size, seg, end, func(rec Record) error {
		err := ix.Add(rec)
		if format := (*FormatError)(nil); errors.As(err, &format) {
			format.file, format.off, format.kind = name, rec.Offset, rec.Kind
			return format
		}
		if err != nil {
			odd = append(odd, Damage{Offset: rec.Offset, End: rec.Offset + RecordSize(len(rec.Payload)), Err: err})
		}
		return nil
	})
	if err != nil {
		return nil, res, err
	}
	ix.End = res.End
	ix.Damaged = append(res.Damaged, odd...)
	ix.salvage(f, size)
	ix.sort()
	ix.dropUnusedKeys()
	ix.dropTornKeys()
	return ix, res, nil
}

// Unread reports whether some of the damage may be gone another day: octets that the disk did
// not give, records that a newer version wrote.
func (ix *Index) Unread() bool {
	return slices.ContainsFunc(ix.Damaged, func(d Damage) bool { return d.Err != nil })
}

// Add takes note of a record. An error means that the record is sound but can't be understood.
func (ix *Index) Add(rec Record) error {
	if int(rec.Kind) < len(ix.Records) {
		ix.Records[rec.Kind]++
	}
	if len(rec.Payload) > 0 {
		ix.Form = max(ix.Form, rec.Payload[0])
	}
	it := Item{ID: rec.ID, Off: uint32(rec.Offset / Align)}
	switch rec.Kind {
	case KindOpened:
		o, err := DecodeOpening(rec.Payload)
		ix.MaxID = max(ix.MaxID, o.LastID)
		return err
	case KindAccepted, KindMoved:
		return ix.addMessage(it, rec)
	case KindSettled:
		it.Kind = itemSettled
		_, err := decodeSettled(rec.Payload, func(r uint16) {
			it.Rcpt = r
			ix.Items = append(ix.Items, it)
		})
		return err
	case KindDeferred:
		f, err := DecodeDeferral(rec.Payload)
		if err != nil {
			return err
		}
		it.Kind, it.due, it.key = ItemDeferred, f.Due, ix.key(f.Key)
		it.at = f.At
		for i, r := range f.Rcpts {
			it.Rcpt, it.attempts = r, f.Attempts[i]
			ix.Items = append(ix.Items, it)
		}
	case KindChanged:
		c, err := decodeChange(rec.Payload)
		if err != nil {
			return err
		}
		it.Kind, it.due, it.marks = ItemChanged, c.Due, c.Marks
		it.at, it.key = c.At, c.Release
		for _, r := range c.Rcpts {
			it.Rcpt = r
			ix.Items = append(ix.Items, it)
		}
	case KindBuried:
		g, err := decodeBurial(rec.Payload)
		if err != nil {
			return err
		}
		ix.Buried = append(ix.Buried, g)
	case KindKeyed:
		return ix.addKey(rec)
	case KindSynced:
		d := decoder{s: string(rec.Payload)}
		d.version()
		return d.err
	default:
		return &FormatError{}
	}
	return nil
}

func (ix *Index) addMessage(it Item, rec Record) error {
	c, err := ParseContent(rec.Payload)
	if err != nil {
		return err
	}
	return ix.addContent(it, rec.Kind == KindMoved, &c, RecordSize(len(rec.Payload)))
}

// addContent takes note of a message whose record takes size octets.
func (ix *Index) addContent(it Item, moved bool, c *Content, size int64) (err error) {
	var states []RecipientState
	var written uint32
	if moved {
		if written, states, err = DecodeStates(c.States); err != nil {
			return err
		}
	}
	if err := CheckEnvelope(c.Env); err != nil {
		return err
	}
	ix.MaxID = max(ix.MaxID, it.ID)
	it.Kind, it.Rcpt = ItemAccepted, c.Rcpts
	if moved {
		it.Kind = ItemMoved
	}
	it.Size = schedule.SizeClass(size)
	t := decodeTimes(c.Env)
	it.at, it.Tier = SecondsSince1970(t.received), t.tier
	tenant := ix.addNames(it, c.Env)
	if t.plan.Scheduled() {
		ix.Items = append(ix.Items,
			Item{ID: it.ID, Off: it.Off, Kind: itemPlan, due: t.plan.Release, key: t.plan.spread})
	}
	if t.expires != 0 {
		ix.Items = append(ix.Items, Item{ID: it.ID, Off: it.Off, Kind: itemExpires, due: t.expires})
	}
	if tenant != "" {
		of := Item{ID: it.ID, Off: it.Off, Kind: itemTenant, key: ix.key(tenant)}
		of.setOctets(c.BodyLen)
		ix.Items = append(ix.Items, of)
	}
	if c.Large != 0 {
		ix.Items = append(ix.Items,
			Item{ID: it.ID, Off: it.Off, Kind: itemLarge, due: uint32(c.Large), key: uint32(c.Large >> 32)})
	}
	for i := range states {
		s := &states[i]
		st := Item{ID: it.ID, Off: it.Off, Kind: ItemState, marks: s.Marks, Rcpt: s.Rcpt, attempts: s.Attempts,
			due: s.Due, key: ix.key(s.Key), at: written}
		if s.Replied {
			st.Size = 1
		}
		ix.Items = append(ix.Items, st)
	}
	return nil
}

// addNames takes note of a message with the names that its recipients are counted by, and returns its tenant.
func (ix *Index) addNames(it Item, env []byte) (tenant string) {
	at := len(ix.Items)
	ix.Items = append(ix.Items, it)
	last := uint32(0)
	o, ok := decodeOrigin(env, func(r int, domain string) {
		key := ix.key(domain) + 1
		switch {
		case r == 0:
			ix.Items[at].key = key
		case key != last:
			ix.Items = append(ix.Items, Item{ID: it.ID, Off: it.Off, Kind: itemDomain, Rcpt: uint16(r), key: key})
		}
		last = key
	})
	if ok {
		ix.Items[at].due = ix.key(o.Text()) + 1
	} else {
		ix.Items = ix.Items[:at+1]
		ix.Items[at].key = 0
	}
	return o.Tenant
}

// NameOf gives the name of a number that an item has for an origin or a domain; false for 0, which stands for a
// name that is not known.
func (ix *Index) NameOf(number uint32) (string, bool) {
	if number == 0 || int(number) > len(ix.Keys) {
		return "", false
	}
	return ix.Keys[number-1], true
}

// mostIndexed bounds the origins and domains that an index names, so that many indexes together stay small. Recipients
// of further ones are counted without a name after a start.
const mostIndexed = 16384

// dropUnusedKeys leaves out the names that no item has any more, and those beyond mostIndexed.
func (ix *Index) dropUnusedKeys() {
	numbers := make([]uint32, len(ix.Keys)) // new ones, one more each
	var kept []string
	keep := func(n uint32) uint32 {
		if numbers[n] == 0 {
			kept = append(kept, ix.Keys[n])
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
	for i := range ix.Items {
		switch it := &ix.Items[i]; it.Kind {
		case ItemAccepted, ItemMoved:
			it.due, it.key = keepName(it.due), keepName(it.key)
		case itemDomain:
			it.key = keepName(it.key)
		case itemTenant, ItemDeferred, ItemState:
			it.key = keep(it.key)
		}
	}
	ix.Keys, ix.keyNumbers = kept, nil
}

func (ix *Index) key(name string) uint32 {
	if n, ok := ix.keyNumbers[name]; ok {
		return n
	}
	name = strings.Clone(name) // which is a part of an envelope
	n := uint32(len(ix.Keys))
	ix.Keys = append(ix.Keys, name)
	ix.keyNumbers[name] = n
	return n
}

// sort brings the items in order and leaves out the messages that were accepted and wholly
// settled within the segment, as most are. It must not leave out those that were moved here:
// without them an older copy, if its segment is still there, would come to life again.
func (ix *Index) sort() {
	byID := func(a, b Item) int { return cmp.Compare(a.ID, b.ID) }
	if !slices.IsSortedFunc(ix.Items, byID) {
		slices.SortStableFunc(ix.Items, byID)
	}
	kept := ix.Items[:0]
	for i := 0; i < len(ix.Items); {
		j := i + 1
		for j < len(ix.Items) && ix.Items[j].ID == ix.Items[i].ID {
			j++
		}
		if !settledWithin(ix.Items[i:j]) {
			kept = append(kept, ix.Items[i:j]...)
		}
		i = j
	}
	ix.Items = kept
}

// settledWithin reports whether the items of one message begin with its acceptance and settle
// all its recipients.
func settledWithin(items []Item) bool {
	if items[0].Kind != ItemAccepted {
		return false
	}
	settled := 0
	for i := range items {
		switch items[i].Kind {
		case itemSettled:
			settled++
		case ItemMoved:
			return false
		}
	}
	if settled < int(items[0].Rcpt) {
		return false
	}
	// A recipient can be settled twice, after a failed write; count each once.
	seen := make(map[uint16]bool, items[0].Rcpt)
	for i := range items {
		if items[i].Kind == itemSettled {
			seen[items[i].Rcpt] = true
		}
	}
	return len(seen) == int(items[0].Rcpt)
}

// The file of an index: a header of 56 octets, the items, the keys of requests, the other keys and burials, and
// the CRC-32C of all that.
const (
	// those of older programs have no keys of requests, no tenants or no domains, and are made again
	IndexMagic      = "mtaidx5\n"
	indexHeaderSize = 56
)

var (
	errIndex      = errors.New("index is damaged")
	errOtherIndex = errors.New("index of another version of mta")
)

// Write makes the index's file durable under its name. It is written aside and renamed, so that
// there is a whole one or none.
func (ix *Index) Write(fs vfs.FS, name string) error {
	keysAt := indexHeaderSize + len(ix.Items)*ItemSize
	b := make([]byte, keysAt+len(ix.byKey)*keyItemSize, keysAt+len(ix.byKey)*keyItemSize+4096)
	copy(b, IndexMagic)
	le := binary.LittleEndian
	le.PutUint32(b[8:], ix.segment.Number)
	le.PutUint32(b[12:], ix.segment.Salt)
	le.PutUint64(b[16:], uint64(ix.End))
	le.PutUint64(b[24:], ix.MaxID)
	le.PutUint64(b[32:], uint64(len(ix.Items)))
	b[40] = ix.Form
	le.PutUint64(b[48:], uint64(len(ix.byKey)))
	for i := range ix.Items {
		ix.Items[i].Put(b[indexHeaderSize+i*ItemSize:])
	}
	for i := range ix.byKey {
		ix.byKey[i].put(b[keysAt+i*keyItemSize:])
	}
	b = ix.appendTail(b)
	b = le.AppendUint32(b, Checksum(0, b))
	return writeFile(fs, name, b)
}

func (ix *Index) appendTail(b []byte) []byte {
	e := encoder{b: b}
	e.uint(uint64(len(ix.Keys)))
	for _, k := range ix.Keys {
		e.string(k)
	}
	e.uint(uint64(len(ix.Buried)))
	for i := range ix.Buried {
		e.string(string(AppendBurial(nil, ix.Form, &ix.Buried[i])))
	}
	return e.b
}

func decodeTail(b []byte, r *Run) error {
	d := decoder{s: string(b)}
	for range d.count(1) {
		r.Keys = append(r.Keys, d.string())
	}
	for range d.count(1) {
		g, err := decodeBurial([]byte(d.string()))
		if err != nil {
			return err
		}
		r.Buried = append(r.Buried, g)
	}
	if d.err == nil && d.s != "" {
		return errIndex
	}
	return d.err
}

// Run is an index to be read in order, from its file or from memory.
type Run struct {
	Index          // items are nil when they are in the file
	file  vfs.File // nil when they are in memory
	count int
	Keyed int // how many keys of requests
	buf   []byte
	next  int // the item after those in buf, or in items
	pos   int // in buf

	// sums are the file's sums up to where the items, the keys of requests and the tail begin, and to its end. What
	// is read again is held to them: a disk that gives other octets the second time must not make us take a
	// living message for a settled one.
	sums [4]uint32
	sum  uint32 // of the items so far
}

// Run gives the index to be read from memory.
func (ix *Index) Run() *Run { return &Run{Index: *ix, count: len(ix.Items), Keyed: len(ix.byKey)} }

// OpenIndex opens an index file and checks it whole. The items are read later, bit by bit.
func OpenIndex(fs vfs.FS, name string, seg SegmentID) (_ *Run, err error) {
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
	if size == 0 {
		return nil, errOtherIndex // that of a segment in use
	}
	head := make([]byte, indexHeaderSize)
	if err := readFull(f, head, 0); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	r := &Run{Index: Index{segment: seg}, file: f, count: int(le.Uint64(head[32:])), Keyed: int(le.Uint64(head[48:]))}
	r.End, r.MaxID, r.Form = int64(le.Uint64(head[16:])), le.Uint64(head[24:]), head[40]
	tailAt := r.keysAt() + int64(r.Keyed)*keyItemSize
	if magic := string(head[:8]); magic != IndexMagic && magic[:6] == IndexMagic[:6] && magic[7] == IndexMagic[7] {
		return nil, errOtherIndex
	}
	if string(head[:8]) != IndexMagic || le.Uint32(head[8:]) != seg.Number || le.Uint32(head[12:]) != seg.Salt ||
		r.count < 0 || int64(r.count) > size/ItemSize || r.Keyed < 0 || int64(r.Keyed) > size/keyItemSize ||
		tailAt+4 > size {
		return nil, errIndex
	}
	if err := r.checkSums(size, indexHeaderSize, r.keysAt(), tailAt, size-4); err != nil {
		return nil, err
	}
	tail := make([]byte, size-4-tailAt)
	if err := readFull(f, tail, tailAt); err != nil {
		return nil, err
	}
	if r.sum = r.sums[0]; Checksum(0, head) != r.sums[0] || Checksum(r.sums[2], tail) != r.sums[3] {
		return nil, errIndex
	}
	if err := decodeTail(tail, r); err != nil {
		return nil, err
	}
	return r, checkVersion(max(r.Form, oldestVersion))
}

// checkSums reads the whole file, compares its sum with that at its end, and notes the sums up to some places.
func (r *Run) checkSums(size int64, places ...int64) error {
	buf := make([]byte, 256<<10)
	crc, off := uint32(0), int64(0)
	for i, end := range places {
		for off < end {
			b := buf[:min(int64(len(buf)), end-off)]
			if err := readFull(r.file, b, off); err != nil {
				return err
			}
			crc = Checksum(crc, b)
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

// Read gives the next item; it reports false at the end. bufSize is what to read at once.
func (r *Run) Read(it *Item, bufSize int) (bool, error) {
	if r.file == nil {
		if r.next == len(r.Items) {
			return false, nil
		}
		*it = r.Items[r.next]
		r.next++
		return true, nil
	}
	if r.pos == len(r.buf) {
		n := min(max(bufSize/ItemSize, 1), r.count-r.next)
		if n == 0 {
			return false, nil
		}
		r.buf = slices.Grow(r.buf[:0], n*ItemSize)[:n*ItemSize]
		if err := readFull(r.file, r.buf, indexHeaderSize+int64(r.next)*ItemSize); err != nil {
			return false, err
		}
		r.next += n
		r.pos = 0
		if r.sum = Checksum(r.sum, r.buf); r.next == r.count && r.sum != r.sums[1] {
			return false, errIndex
		}
	}
	it.Get(r.buf[r.pos:])
	r.pos += ItemSize
	return true, nil
}

// Close ends the reading.
func (r *Run) Close() {
	if r.file != nil {
		r.file.Close()
	}
	r.file, r.buf, r.Items = nil, nil, nil
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
	if err := fs.Remove(tmp); err != nil && !IsNotExist(err) {
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
