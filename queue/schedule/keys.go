package schedule

import "example.org/mta/internal/parking"

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
