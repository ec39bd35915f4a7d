package schedule

import "strings"

// Keys are the names that entries wait under, and how many do. A name is there while an entry
// has it. Number 0 is the empty name and is always there.
//
// A name with a NUL in it is a line of the key before the NUL, which is there as long as the line:
// entries wait apart in a line, and are that key's for all else.
type Keys struct {
	t      *Table
	all    []key
	byName map[string]uint32
	free   []uint32
}

type key struct {
	name    string
	of      uint32 // the key that it is a line of, or itself
	entries int    // that have it in any state, and lines of it
	waiting int    // that are on the list
	inLines int    // that are on the list, and on those of its lines
	list    List   // those that wait under it
}

// NewKeys gives the empty set over t.
func NewKeys(t *Table) *Keys {
	k := &Keys{t: t, byName: map[string]uint32{}}
	k.all = append(k.all, key{list: t.NewList()})
	k.byName[""] = 0
	return k
}

// Number gives the number of a name, a new one if need be. Use it, with Set, before the next
// Release of a key, or it may be gone.
func (k *Keys) Number(name string) uint32 {
	if n, ok := k.byName[name]; ok {
		return n
	}
	n := k.unused()
	kk := &k.all[n]
	*kk = key{name: name, of: n, list: kk.list}
	k.byName[name] = n
	if of, _, line := strings.Cut(name, lineMark); line {
		plain := k.Number(of)
		k.all[n].of = plain
		k.all[plain].entries++
	}
	return n
}

// lineMark stands between a key and the rest of the name of a line of it.
const lineMark = "\x00"

// Line is the name of a line of a key; of none it is the key's.
func Line(key, line string) string {
	if line == "" {
		return key
	}
	return key + lineMark + line
}

func (k *Keys) unused() uint32 {
	if l := len(k.free); l > 0 {
		n := k.free[l-1]
		k.free = k.free[:l-1]
		return n
	}
	k.all = append(k.all, key{list: k.t.NewList()})
	return uint32(len(k.all) - 1)
}

// Lookup gives the number of a name that is there.
func (k *Keys) Lookup(name string) (uint32, bool) {
	n, ok := k.byName[name]
	return n, ok
}

// Name is the name of a number, without that of a line.
func (k *Keys) Name(n uint32) string { return k.all[k.all[n].of].name }

// LineOf is the name of a line within its key, "" for a number that is none's.
func (k *Keys) LineOf(n uint32) string {
	_, line, _ := strings.Cut(k.all[n].name, lineMark)
	return line
}

// Of is the number of the key that n is a line of, or n.
func (k *Keys) Of(n uint32) uint32 { return k.all[n].of }

// Len is one more than the largest number.
func (k *Keys) Len() int { return len(k.all) }

// Waiting is how many entries wait under the key.
func (k *Keys) Waiting(n uint32) int { return k.all[n].waiting }

// Set gives an entry another key.
func (k *Keys) Set(e *Entry, n uint32) {
	k.all[n].entries++
	k.Release(e)
	e.Key = n
}

// Hold counts a new entry under the key that it was made with.
func (k *Keys) Hold(e *Entry) { k.all[e.Key].entries++ }

// Release takes its key from an entry that is about to be freed.
func (k *Keys) Release(e *Entry) {
	n := e.Key
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
	delete(k.byName, kk.name)
	kk.name, kk.of = "", n
	k.free = append(k.free, n)
}

// Park puts an entry, which must be on no list, at the end of those that wait under its key.
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

// Unpark takes an entry that waits under its key off the list.
func (k *Keys) Unpark(s Slot) {
	k.more(s, -1)
	k.t.Unlink(s)
}

// InLines is how many entries wait under a key, in all its lines.
func (k *Keys) InLines(n uint32) int { return k.all[n].inLines }

// First is the entry that has waited longest under a key, or None.
func (k *Keys) First(n uint32) Slot { return k.t.Front(k.all[n].list) }

// Last is the entry that was parked last under a key, or None.
func (k *Keys) Last(n uint32) Slot { return k.t.Back(k.all[n].list) }

// Count is how many names there are, the empty one apart.
func (k *Keys) Count() int { return len(k.byName) - 1 }
