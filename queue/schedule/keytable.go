package schedule

import (
	"encoding/binary"
	"math/bits"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/minheap"
	"example.org/mta/internal/parking"
)

// KeyTable has the place of the latest record of each key, with 37 octets for each and no pointers in them.
// When it is full, the oldest key of the tenant with the most keys goes: so a tenant loses keys by those of others only
// while it has more than an equal share. Keys without a tenant count as those of one. A share as of internal/fair
// refuses whoever has too much; a key is never refused, so another one has to go.
//
// Slots lie in chunks and are found through words, by open addressing: a word is the number of a slot, and eight
// bits of its key so that a search looks at few others. Slots of a tenant are in a list by age.
type KeyTable struct {
	Limit  int
	words  []uint32 // tag and number of a slot; 0 is none
	chunks []*[KeyChunk]KeySlot
	used   uint32 // slots that were ever taken, slot 0 included, which no key has
	idle   uint32 // the first of those that can be taken again, which lead to each other by newer
	swept  uint32 // the slot that sweep has looked at last
	Count  int

	owners map[[4]byte]*keyOwner // that have keys
	most   minheap.Heap[*keyOwner]

	Evicted uint64 // keys that went since it was full
}

// keyOwner is the keys of a tenant.
type keyOwner struct {
	oldest, newest uint32 // slots; 0 is none
	count          int
	at             int // in keyTable.most
}

const (
	KeyChunk    = 4096
	keySlotBits = 24
	keySlotMask = 1<<keySlotBits - 1
	// MaxKeys is as many as there can be.
	MaxKeys = keySlotMask - 1
)

// KeySlot is a key and where its latest record lies.
type KeySlot struct {
	key   envelope.RequestKey
	Until uint32 // seconds since 1970
	locLo uint32
	locHi uint8
	Size  uint8   // SizeClass of the record
	older [3]byte // the neighbours by age; 0 is none
	newer [3]byte
}

// Loc is where the latest record of the key lies.
func (s *KeySlot) Loc() Loc { return Loc(s.locHi)<<32 | Loc(s.locLo) }

// SetLoc notes where that is.
func (s *KeySlot) SetLoc(l Loc) { s.locLo, s.locHi = uint32(l), uint8(l>>32) }

func get24(b [3]byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }
func put24(n uint32) [3]byte { return [3]byte{byte(n), byte(n >> 8), byte(n >> 16)} }

// NewKeyTable makes a table for so many keys. It takes its memory as it fills.
func NewKeyTable(limit int) *KeyTable {
	more := func(a, b *keyOwner) bool { return a.count > b.count }
	return &KeyTable{
		Limit: min(limit, MaxKeys), owners: make(map[[4]byte]*keyOwner),
		most: minheap.New(more, func(o *keyOwner, at int) { o.at = at }),
	}
}

// Full reports whether a key has to go before another one comes.
func (t *KeyTable) Full() bool { return t.Count >= t.Limit }

// Slot gives the slot with a number.
func (t *KeyTable) Slot(n uint32) *KeySlot { return &t.chunks[n/KeyChunk][n%KeyChunk] }

// home is the first word to look at for a key, and the tag that it has there. Keys are sums, so any of their
// octets will do.
func (t *KeyTable) home(key *envelope.RequestKey) (at, tag uint32) {
	h, _ := bits.Mul64(binary.LittleEndian.Uint64(key[:]), uint64(len(t.words)))
	return uint32(h), uint32(key[8]) << keySlotBits
}

// look gives the word of a key, or the empty one where it belongs.
func (t *KeyTable) look(key *envelope.RequestKey) (at, number uint32) {
	at, tag := t.home(key)
	for ; ; at = t.next(at) {
		w := t.words[at]
		if w == 0 {
			return at, 0
		}
		if w&^keySlotMask == tag && t.Slot(w&keySlotMask).key == *key {
			return at, w & keySlotMask
		}
	}
}

func (t *KeyTable) next(at uint32) uint32 {
	if at++; int(at) == len(t.words) {
		return 0
	}
	return at
}

// Find gives the number of a key's slot, 0 when there is none.
func (t *KeyTable) Find(key envelope.RequestKey) uint32 {
	if t.Count == 0 {
		return 0
	}
	_, n := t.look(&key)
	return n
}

// Add gives a new slot to a key that has none, the newest. The table must not be full.
func (t *KeyTable) Add(key envelope.RequestKey) uint32 {
	if t.words == nil {
		t.words = make([]uint32, t.Limit+t.Limit/4+2)
		t.take() // 0
	}
	at, _ := t.look(&key)
	n := t.take()
	t.words[at] = uint32(key[8])<<keySlotBits | n
	*t.Slot(n) = KeySlot{key: key}
	t.Count++
	owner, _ := key.Tenant()
	o := t.owners[owner]
	if o == nil {
		o = new(keyOwner)
		t.owners[owner] = o
		t.most.Push(o)
	}
	o.count++
	t.most.Fix(o.at)
	t.link(o, n)
	return n
}

// take gives a slot that is free.
func (t *KeyTable) take() uint32 {
	if n := t.idle; n != 0 {
		t.idle = get24(t.Slot(n).newer)
		return n
	}
	if int(t.used) == len(t.chunks)*KeyChunk {
		t.chunks = append(t.chunks, new([KeyChunk]KeySlot))
	}
	t.used++
	return t.used - 1
}

// link makes a slot the newest of its owner.
func (t *KeyTable) link(o *keyOwner, n uint32) {
	s := t.Slot(n)
	s.older, s.newer = put24(o.newest), put24(0)
	t.join(o, o.newest, n)
	t.join(o, n, 0)
}

// join makes two slots neighbours in the list of an owner; 0 is an end of the list.
func (t *KeyTable) join(o *keyOwner, older, newer uint32) {
	if older == 0 {
		o.oldest = newer
	} else {
		t.Slot(older).newer = put24(newer)
	}
	if newer == 0 {
		o.newest = older
	} else {
		t.Slot(newer).older = put24(older)
	}
}

// Evictable is the slot of the key that goes when the table is full, which it must be.
func (t *KeyTable) Evictable() uint32 { return t.most.Top().oldest }

// Remove takes a key out.
func (t *KeyTable) Remove(n uint32) {
	s := t.Slot(n)
	at, _ := t.look(&s.key)
	owner, _ := s.key.Tenant()
	o := t.owners[owner]
	t.join(o, get24(s.older), get24(s.newer))
	if o.count--; o.count > 0 {
		t.most.Fix(o.at)
	} else {
		t.most.Remove(o.at)
		delete(t.owners, owner)
	}
	*s = KeySlot{newer: put24(t.idle)}
	t.idle = n
	t.Count--
	t.fill(at)
}

// fill closes the gap that a word has left, so that no search ends there too early.
func (t *KeyTable) fill(gap uint32) {
	size := uint32(len(t.words))
	for at := t.next(gap); t.words[at] != 0; at = t.next(at) {
		home, _ := t.home(&t.Slot(t.words[at] & keySlotMask).key)
		if (at+size-home)%size >= (at+size-gap)%size {
			t.words[gap] = t.words[at]
			gap = at
		}
	}
	t.words[gap] = 0
}

// Each calls f for each key; f may remove it.
func (t *KeyTable) Each(f func(n uint32)) {
	for n := uint32(1); n < t.used; n++ {
		if t.Slot(n).Until != 0 {
			f(n)
		}
	}
}

// Some appends the keys of the next chunk of slots to list, and returns where the one after begins; false at the end.
func (t *KeyTable) Some(list []envelope.RequestKey, from uint32) (_ []envelope.RequestKey, next uint32, more bool) {
	for next = from; next < t.used && next < from+KeyChunk; next++ {
		if s := t.Slot(next); s.Until != 0 {
			list = append(list, s.key)
		}
	}
	return list, next, next < t.used
}

// Sweep drops what is over by now from the next chunk of slots. It reports false at the end of the table.
func (t *KeyTable) Sweep(now uint32, drop func(n uint32)) bool {
	for range KeyChunk {
		if t.swept++; t.swept >= t.used {
			t.swept = 0
			return false
		}
		if s := t.Slot(t.swept); s.Until != 0 && s.Until <= now {
			drop(t.swept)
		}
	}
	return true
}

// Order puts the keys of each owner in the order of their age, as at has it by number of a slot, to the minute; those
// of one minute stay in their order. It is for a start: what compaction has carried stands behind younger keys in the
// journal.
func (t *KeyTable) Order(at []uint32) {
	first, last, sorted := ^uint32(0), uint32(0), true
	t.aged(func(n uint32) {
		first, last = min(first, at[n]), max(last, at[n])
		older := get24(t.Slot(n).older)
		sorted = sorted && (older == 0 || at[n]/60 >= at[older]/60)
	})
	if sorted {
		return
	}
	step := max(60, (last-first)>>20+1)
	starts := make([]uint32, (last-first)/step+2)
	t.aged(func(n uint32) { starts[(at[n]-first)/step+1]++ })
	for i := 1; i < len(starts); i++ {
		starts[i] += starts[i-1]
	}
	sort := make([]uint32, t.Count)
	t.aged(func(n uint32) {
		i := (at[n] - first) / step
		sort[starts[i]] = n
		starts[i]++
	})
	for _, o := range t.owners {
		o.oldest, o.newest = 0, 0
	}
	for _, n := range sort {
		owner, _ := t.Slot(n).key.Tenant()
		t.link(t.owners[owner], n)
	}
}

// aged calls f for the number of each slot, the oldest of each owner first.
func (t *KeyTable) aged(f func(n uint32)) {
	for _, o := range t.owners {
		for n := o.oldest; n != 0; n = get24(t.Slot(n).newer) {
			f(n)
		}
	}
}

// Keys numbers the lines that entries wait in and counts those that do. A line is there while an entry
// has it, and its key, which is the line with nothing but that key, as long as the line. Number 0 is
// the zero key and is always there.
type Keys struct {
	t       *Table
	all     []key
	numbers map[parking.Line]uint32
	free    []uint32
}

type key struct {
	line    parking.Line
	of      uint32 // the number of its key
	entries int    // that have it in any state; of a key, also its lines
	waiting int    // entries on the list
	inLines int    // of a key: entries on the lists of all its lines
	list    List
}

// NewKeys gives the empty set over t.
func NewKeys(t *Table) *Keys {
	k := &Keys{t: t, numbers: map[parking.Line]uint32{}}
	k.all = append(k.all, key{list: t.NewList()})
	k.numbers[parking.Line{}] = 0
	return k
}

// Number gives the number of a line, a new one if need be. Use it, with Set, before the next
// Release of a key, or it may be gone.
func (k *Keys) Number(line parking.Line) uint32 {
	if n, ok := k.numbers[line]; ok {
		return n
	}
	n, line := k.unused(), line.Clone()
	kk := &k.all[n]
	*kk = key{line: line, of: n, list: kk.list}
	k.numbers[line] = n
	if plain := (parking.Line{Key: line.Key}); line != plain {
		of := k.Number(plain)
		k.all[n].of = of
		k.all[of].entries++
	}
	return n
}

func (k *Keys) unused() uint32 {
	if l := len(k.free); l > 0 {
		n := k.free[l-1]
		k.free = k.free[:l-1]
		return n
	}
	k.all = append(k.all, key{list: k.t.NewList()})
	k.t.by.keys = append(k.t.by.keys, Count{})
	return uint32(len(k.all) - 1)
}

// Lookup gives the number of a line that is there.
func (k *Keys) Lookup(line parking.Line) (uint32, bool) {
	n, ok := k.numbers[line]
	return n, ok
}

// Line gives the line of a number.
func (k *Keys) Line(n uint32) parking.Line { return k.all[n].line }

// Key gives the key of a number.
func (k *Keys) Key(n uint32) parking.Key { return k.all[n].line.Key }

// Of is the number of the key of line n.
func (k *Keys) Of(n uint32) uint32 { return k.all[n].of }

// Len is one more than the largest number.
func (k *Keys) Len() int { return len(k.all) }

// Waiting is how many entries wait in a line.
func (k *Keys) Waiting(n uint32) int { return k.all[n].waiting }

// Set gives an entry another key.
func (k *Keys) Set(e *Entry, n uint32) {
	k.all[n].entries++
	before := e.Key
	k.t.by.rekey(e, n)
	e.Key = n
	k.release(before)
}

// Hold counts a new entry under the key that it was made with.
func (k *Keys) Hold(e *Entry) { k.all[e.Key].entries++ }

// Release takes its key from an entry that is about to be freed.
func (k *Keys) Release(e *Entry) {
	n := e.Key
	k.t.by.rekey(e, 0)
	e.Key = 0
	k.release(n)
}

func (k *Keys) release(n uint32) {
	kk := &k.all[n]
	if kk.entries--; kk.entries > 0 || n == 0 {
		return
	}
	if kk.of != n {
		k.release(kk.of)
	}
	delete(k.numbers, kk.line)
	kk.line, kk.of = parking.Line{}, n
	k.free = append(k.free, n)
}

// Park puts an entry, which must be on no list, at the end of its line.
func (k *Keys) Park(s Slot) {
	kk := k.more(s, 1)
	k.t.Push(kk.list, s)
}

// ParkFirst is Park before all others.
func (k *Keys) ParkFirst(s Slot) {
	kk := k.more(s, 1)
	k.t.PushFront(kk.list, s)
}

// more counts n more entries on the list of an entry's key, and on those of all its lines.
func (k *Keys) more(s Slot, n int) *key {
	kk := &k.all[k.t.At(s).Key]
	kk.waiting += n
	k.all[kk.of].inLines += n
	return kk
}

// Unpark takes an entry off its line.
func (k *Keys) Unpark(s Slot) {
	k.more(s, -1)
	k.t.Unlink(s)
}

// InLines is how many entries wait under a key, in all its lines.
func (k *Keys) InLines(n uint32) int { return k.all[n].inLines }

// First is the entry that has waited longest in a line, or None.
func (k *Keys) First(n uint32) Slot { return k.t.Front(k.all[n].list) }

// Last is the entry that was parked last in a line, or None.
func (k *Keys) Last(n uint32) Slot { return k.t.Back(k.all[n].list) }

// Count is how many lines there are, the zero one apart.
func (k *Keys) Count() int { return len(k.numbers) - 1 }
