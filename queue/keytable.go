package queue

import (
	"encoding/binary"
	"math/bits"

	"example.org/mta/internal/minheap"
	"example.org/mta/queue/schedule"
)

// keyTable has the place of the latest record of each key, with 37 octets for each and no pointers in them.
// When it is full, the oldest key of the tenant with the most keys goes: so a tenant loses keys by those of others only
// while it has more than an equal share. Keys without a tenant count as those of one. A share as of internal/fairshare
// refuses whoever has too much; a key is never refused, so another one has to go.
//
// Slots lie in chunks and are found through words, by open addressing: a word is the number of a slot, and eight
// bits of its key so that a search looks at few others. Slots of a tenant are in a list by age.
type keyTable struct {
	limit  int
	words  []uint32 // tag and number of a slot; 0 is none
	chunks []*[keyChunk]keySlot
	used   uint32 // slots that were ever taken, slot 0 included, which no key has
	idle   uint32 // the first of those that can be taken again, which lead to each other by newer
	swept  uint32 // the slot that sweep has looked at last
	count  int

	owners map[[4]byte]*keyOwner // that have keys
	most   minheap.Heap[*keyOwner]

	evicted uint64 // keys that went since it was full
}

// keyOwner is the keys of a tenant.
type keyOwner struct {
	oldest, newest uint32 // slots; 0 is none
	count          int
	at             int // in keyTable.most
}

const (
	keyChunk    = 4096
	keySlotBits = 24
	keySlotMask = 1<<keySlotBits - 1
	// maxKeys is as many as there can be.
	maxKeys = keySlotMask - 1
)

// keySlot is a key and where its latest record lies.
type keySlot struct {
	key   Key
	until uint32 // seconds since 1970
	locLo uint32
	locHi uint8
	size  uint8   // schedule.SizeClass of the record
	older [3]byte // the neighbours by age; 0 is none
	newer [3]byte
}

func (s *keySlot) loc() schedule.Loc     { return schedule.Loc(s.locHi)<<32 | schedule.Loc(s.locLo) }
func (s *keySlot) setLoc(l schedule.Loc) { s.locLo, s.locHi = uint32(l), uint8(l>>32) }

func get24(b [3]byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }
func put24(n uint32) [3]byte { return [3]byte{byte(n), byte(n >> 8), byte(n >> 16)} }

// newKeyTable makes a table for so many keys. It takes its memory as it fills.
func newKeyTable(limit int) *keyTable {
	more := func(a, b *keyOwner) bool { return a.count > b.count }
	return &keyTable{
		limit: min(limit, maxKeys), owners: make(map[[4]byte]*keyOwner),
		most: minheap.New(more, func(o *keyOwner, at int) { o.at = at }),
	}
}

func (t *keyTable) full() bool { return t.count >= t.limit }

func (t *keyTable) slot(n uint32) *keySlot { return &t.chunks[n/keyChunk][n%keyChunk] }

// home is the first word to look at for a key, and the tag that it has there. Keys are sums, so any of their
// octets will do.
func (t *keyTable) home(key *Key) (at, tag uint32) {
	h, _ := bits.Mul64(binary.LittleEndian.Uint64(key[:]), uint64(len(t.words)))
	return uint32(h), uint32(key[8]) << keySlotBits
}

// look gives the word of a key, or the empty one where it belongs.
func (t *keyTable) look(key *Key) (at, number uint32) {
	at, tag := t.home(key)
	for ; ; at = t.next(at) {
		w := t.words[at]
		if w == 0 {
			return at, 0
		}
		if w&^keySlotMask == tag && t.slot(w&keySlotMask).key == *key {
			return at, w & keySlotMask
		}
	}
}

func (t *keyTable) next(at uint32) uint32 {
	if at++; int(at) == len(t.words) {
		return 0
	}
	return at
}

// find gives the number of a key's slot, 0 when there is none.
func (t *keyTable) find(key Key) uint32 {
	if t.count == 0 {
		return 0
	}
	_, n := t.look(&key)
	return n
}

// add gives a new slot to a key that has none, the newest. The table must not be full.
func (t *keyTable) add(key Key) uint32 {
	if t.words == nil {
		t.words = make([]uint32, t.limit+t.limit/4+2)
		t.take() // 0
	}
	at, _ := t.look(&key)
	n := t.take()
	t.words[at] = uint32(key[8])<<keySlotBits | n
	*t.slot(n) = keySlot{key: key}
	t.count++
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
func (t *keyTable) take() uint32 {
	if n := t.idle; n != 0 {
		t.idle = get24(t.slot(n).newer)
		return n
	}
	if int(t.used) == len(t.chunks)*keyChunk {
		t.chunks = append(t.chunks, new([keyChunk]keySlot))
	}
	t.used++
	return t.used - 1
}

// link makes a slot the newest of its owner.
func (t *keyTable) link(o *keyOwner, n uint32) {
	s := t.slot(n)
	s.older, s.newer = put24(o.newest), put24(0)
	t.join(o, o.newest, n)
	t.join(o, n, 0)
}

// join makes two slots neighbours in the list of an owner; 0 is an end of the list.
func (t *keyTable) join(o *keyOwner, older, newer uint32) {
	if older == 0 {
		o.oldest = newer
	} else {
		t.slot(older).newer = put24(newer)
	}
	if newer == 0 {
		o.newest = older
	} else {
		t.slot(newer).older = put24(older)
	}
}

// evictable is the slot of the key that goes when the table is full, which it must be.
func (t *keyTable) evictable() uint32 { return t.most.Top().oldest }

// remove takes a key out.
func (t *keyTable) remove(n uint32) {
	s := t.slot(n)
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
	*s = keySlot{newer: put24(t.idle)}
	t.idle = n
	t.count--
	t.fill(at)
}

// fill closes the gap that a word has left, so that no search ends there too early.
func (t *keyTable) fill(gap uint32) {
	size := uint32(len(t.words))
	for at := t.next(gap); t.words[at] != 0; at = t.next(at) {
		home, _ := t.home(&t.slot(t.words[at] & keySlotMask).key)
		if (at+size-home)%size >= (at+size-gap)%size {
			t.words[gap] = t.words[at]
			gap = at
		}
	}
	t.words[gap] = 0
}

// each calls f for each key; f may remove it.
func (t *keyTable) each(f func(n uint32)) {
	for n := uint32(1); n < t.used; n++ {
		if t.slot(n).until != 0 {
			f(n)
		}
	}
}

// some appends the keys of the next chunk of slots to list, and returns where the one after begins; false at the end.
func (t *keyTable) some(list []Key, from uint32) (_ []Key, next uint32, more bool) {
	for next = from; next < t.used && next < from+keyChunk; next++ {
		if s := t.slot(next); s.until != 0 {
			list = append(list, s.key)
		}
	}
	return list, next, next < t.used
}

// sweep drops what is over by now from the next chunk of slots. It reports false at the end of the table.
func (t *keyTable) sweep(now uint32, drop func(n uint32)) bool {
	for range keyChunk {
		if t.swept++; t.swept >= t.used {
			t.swept = 0
			return false
		}
		if s := t.slot(t.swept); s.until != 0 && s.until <= now {
			drop(t.swept)
		}
	}
	return true
}

// order puts the keys of each owner in the order of their age, as at has it by number of a slot, to the minute; those of
// one minute stay in their order. It is for a start: what compaction has carried stands behind younger keys in the
// journal.
func (t *keyTable) order(at []uint32) {
	first, last, sorted := ^uint32(0), uint32(0), true
	t.aged(func(n uint32) {
		first, last = min(first, at[n]), max(last, at[n])
		older := get24(t.slot(n).older)
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
	sort := make([]uint32, t.count)
	t.aged(func(n uint32) {
		i := (at[n] - first) / step
		sort[starts[i]] = n
		starts[i]++
	})
	for _, o := range t.owners {
		o.oldest, o.newest = 0, 0
	}
	for _, n := range sort {
		owner, _ := t.slot(n).key.Tenant()
		t.link(t.owners[owner], n)
	}
}

// aged calls f for the number of each slot, the oldest of each owner first.
func (t *keyTable) aged(f func(n uint32)) {
	for _, o := range t.owners {
		for n := o.oldest; n != 0; n = get24(t.slot(n).newer) {
			f(n)
		}
	}
}
