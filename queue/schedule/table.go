package schedule

import (
	"slices"
	"sort"
)

// chunk has its names apart, since with them an entry would take 48 octets for 44.
type chunk struct {
	entries [chunkLen]Entry
	names   [chunkLen]Names
}

// entryOctets is what an entry takes.
const entryOctets = 44

// span is what is known of a chunk without touching it.
type span struct {
	first, last uint64 // ids of its first and last entry, dead ones included
	used, live  int32  // entries that are taken, entries that are living
	sparse      bool   // on the list of those that Tidy looks at
}

// Table is the entries in order of id.
type Table struct {
	chunks []*chunk // by handle; 0 is none
	spans  []span   // by handle
	free   []uint32 // handles without a chunk
	order  []uint32 // handles in order of id
	sparse []uint32 // handles with few living
	pool   []*chunk // one or two to take again

	heads  []head // by the number of a list
	counts [states]int
	by     counts
}

type head struct{ next, prev Slot }

// New gives an empty table.
func New() *Table {
	return &Table{chunks: make([]*chunk, 1), spans: make([]span, 1), by: newCounts()}
}

// Len is the number of living entries.
func (t *Table) Len() int {
	n := 0
	for s := Due; s < states; s++ {
		n += t.counts[s]
	}
	return n
}

// Count is the number of entries in a state.
func (t *Table) Count(s State) int { return t.counts[s] }

// Bytes is the memory that the entries take.
func (t *Table) Bytes() int64 {
	return int64(len(t.order)+len(t.pool)) * chunkLen * entryOctets
}

// At gives the entry in a slot.
func (t *Table) At(s Slot) *Entry { return &t.chunks[s.handle()].entries[s.index()] }

// NamesAt gives the names of the entry in a slot.
func (t *Table) NamesAt(s Slot) Names { return t.chunks[s.handle()].names[s.index()] }

// Append adds an entry, with the key that it is made with. Its id must not be below the last one's, nor, for the same
// id, its recipient.
func (t *Table) Append(e Entry, n Names, s State) Slot {
	h := t.tail()
	sp := &t.spans[h]
	i := int(sp.used)
	e.next, e.prev = None, None
	e.bits = e.bits&^bitsState | uint8(s)
	t.chunks[h].entries[i], t.chunks[h].names[i] = e, n
	t.by.enter(&e, n)
	if i == 0 {
		sp.first = e.ID
	}
	sp.last = e.ID
	sp.used++
	sp.live++
	t.counts[s]++
	return slotOf(h, i)
}

// tail gives the chunk with room at the end.
func (t *Table) tail() uint32 {
	if n := len(t.order); n > 0 && t.spans[t.order[n-1]].used < chunkLen {
		return t.order[n-1]
	}
	h := t.newChunk()
	t.order = append(t.order, h)
	return h
}

func (t *Table) newChunk() uint32 {
	var c *chunk
	if n := len(t.pool); n > 0 {
		c, t.pool = t.pool[n-1], t.pool[:n-1]
	} else {
		c = new(chunk)
	}
	if n := len(t.free); n > 0 {
		h := t.free[n-1]
		t.free = t.free[:n-1]
		t.chunks[h], t.spans[h] = c, span{}
		return h
	}
	t.chunks = append(t.chunks, c)
	t.spans = append(t.spans, span{})
	return uint32(len(t.chunks) - 1)
}

// SetState moves an entry to another state; Dead is Free's.
func (t *Table) SetState(s Slot, to State) {
	e := t.At(s)
	t.by.move(e, t.NamesAt(s), to)
	t.counts[e.State()]--
	t.counts[to]++
	e.bits = e.bits&^bitsState | uint8(to)
}

// Free ends an entry. It is taken off its list.
func (t *Table) Free(s Slot) {
	e := t.At(s)
	t.Unlink(s)
	t.by.leave(e, t.NamesAt(s))
	t.counts[e.State()]--
	e.bits = 0
	sp := &t.spans[s.handle()]
	sp.live--
	if sp.live < chunkLen/4 && !sp.sparse {
		sp.sparse = true
		t.sparse = append(t.sparse, s.handle())
	}
}

// place is the first position in order whose chunk may have id or a later one.
func (t *Table) place(id uint64) int {
	return sort.Search(len(t.order), func(i int) bool { return t.spans[t.order[i]].last >= id })
}

// Run calls f for each living entry of a message until it returns false. f may Free the entry
// and may change it, and must not Append or Tidy.
func (t *Table) Run(id uint64, f func(Slot, *Entry) bool) {
	t.ascend(id, func(s Slot, e *Entry) bool { return e.ID == id && f(s, e) }, id)
}

// Find gives the living entry of a message's recipient.
func (t *Table) Find(id uint64, rcpt uint16) (Slot, *Entry) {
	found, entry := None, (*Entry)(nil)
	for p := t.place(id); p < len(t.order); p++ {
		h := t.order[p]
		sp, c := &t.spans[h], &t.chunks[h].entries
		if sp.first > id {
			break
		}
		i := sort.Search(int(sp.used), func(i int) bool {
			return c[i].ID > id || c[i].ID == id && c[i].Rcpt >= rcpt
		})
		if i < int(sp.used) {
			if e := &c[i]; e.ID == id && e.Rcpt == rcpt && e.State() != Dead {
				found, entry = slotOf(h, i), e
			}
			break
		}
	}
	return found, entry
}

// Ascend calls f for the living entries from id on, in order, until it returns false. f may do
// what it may in Run.
func (t *Table) Ascend(id uint64, f func(Slot, *Entry) bool) { t.ascend(id, f, ^uint64(0)) }

func (t *Table) ascend(id uint64, f func(Slot, *Entry) bool, last uint64) {
	for p := t.place(id); p < len(t.order); p++ {
		h := t.order[p]
		sp, c := &t.spans[h], &t.chunks[h].entries
		if sp.first > last {
			return
		}
		i := 0
		if sp.first < id {
			i = sort.Search(int(sp.used), func(i int) bool { return c[i].ID >= id })
		}
		for ; i < int(sp.used); i++ {
			if c[i].State() != Dead && !f(slotOf(h, i), &c[i]) {
				return
			}
		}
	}
}

// Descend calls f for the living entries from id on down, until it returns false. The
// recipients of a message come last to first.
func (t *Table) Descend(id uint64, f func(Slot, *Entry) bool) {
	p := min(t.place(id), len(t.order)-1)
	// Entries of id may go on in the chunks after the first that has it.
	for p+1 < len(t.order) && t.spans[t.order[p+1]].first <= id {
		p++
	}
	for ; p >= 0; p-- {
		h := t.order[p]
		sp, c := &t.spans[h], &t.chunks[h].entries
		i := int(sp.used)
		if sp.last > id {
			i = sort.Search(i, func(i int) bool { return c[i].ID > id })
		}
		for i--; i >= 0; i-- {
			if c[i].State() != Dead && !f(slotOf(h, i), &c[i]) {
				return
			}
		}
	}
}

// Tidy gives back the memory of chunks in which few are living, by joining neighbours. Slots
// that are not on lists are void afterwards.
func (t *Table) Tidy() {
	if len(t.sparse) == 0 {
		return
	}
	work := t.sparse
	t.sparse = nil
	for _, h := range work {
		if t.spans[h].sparse {
			t.spans[h].sparse = false
			t.squeeze(h)
		}
	}
	if t.sparse == nil {
		t.sparse = work[:0]
	}
}

// squeeze drops an empty chunk, or joins it with a neighbour when both fit in three quarters of
// one. The last chunk is being filled and is left alone until it is full.
func (t *Table) squeeze(h uint32) {
	p := t.positionOf(h)
	if p == len(t.order)-1 && t.spans[h].used < chunkLen {
		return
	}
	if t.spans[h].live == 0 {
		t.drop(p)
		return
	}
	const room = chunkLen * 3 / 4
	switch live := t.spans[h].live; {
	case p > 0 && t.spans[t.order[p-1]].live+live <= room:
		t.join(p-1, p)
	case p+2 < len(t.order) && t.spans[t.order[p+1]].live+live <= room:
		t.join(p, p+1)
	}
}

func (t *Table) positionOf(h uint32) int {
	p := t.place(t.spans[h].last)
	for t.order[p] != h {
		p++
	}
	return p
}

// drop takes the chunk at position p out.
func (t *Table) drop(p int) {
	h := t.order[p]
	t.order = slices.Delete(t.order, p, p+1)
	if len(t.pool) < 2 {
		t.pool = append(t.pool, t.chunks[h])
	}
	t.chunks[h], t.spans[h] = nil, span{}
	t.free = append(t.free, h)
}

// join moves the living of the chunk at position q, which follows p, into that at p.
func (t *Table) join(p, q int) {
	to, from := t.order[p], t.order[q]
	n := t.pack(to, to, 0)
	n = t.pack(to, from, n)
	sp := &t.spans[to]
	sp.used, sp.live = int32(n), int32(n)
	sp.first, sp.last = t.chunks[to].entries[0].ID, t.chunks[to].entries[n-1].ID
	t.drop(q)
}

// pack moves the living of one chunk to another, from index n on, and returns the index after
// the last one.
func (t *Table) pack(to, from uint32, n int) int {
	src, dst := t.chunks[from], t.chunks[to]
	for i := range int(t.spans[from].used) {
		if src.entries[i].State() == Dead {
			continue
		}
		if to != from || i != n {
			dst.entries[n], dst.names[n] = src.entries[i], src.names[i]
			t.relink(slotOf(to, n))
		}
		n++
	}
	return n
}

// List is a first-in-first-out list of entries. An entry is on one list at most.
type List uint32

// NewList gives an empty list.
func (t *Table) NewList() List {
	l := List(len(t.heads))
	t.heads = append(t.heads, head{})
	t.Clear(l)
	return l
}

// Clear makes a list empty that has no entries, so that its number can be used again.
func (t *Table) Clear(l List) { t.heads[l] = head{next: l.slot(), prev: l.slot()} }

func (l List) slot() Slot { return headBit | Slot(l) }

func (t *Table) links(s Slot) (next, prev *Slot) {
	if s&headBit != 0 {
		h := &t.heads[s&^headBit]
		return &h.next, &h.prev
	}
	e := t.At(s)
	return &e.next, &e.prev
}

// Push puts an entry, which must be on no list, at the end of l.
func (t *Table) Push(l List, s Slot) { t.insert(t.heads[l].prev, s, l.slot()) }

// PushFront puts an entry that is on no list before all others of one.
func (t *Table) PushFront(l List, s Slot) { t.insert(l.slot(), s, t.heads[l].next) }

func (t *Table) insert(before, s, after Slot) {
	e := t.At(s)
	e.prev, e.next = before, after
	next, _ := t.links(before)
	*next = s
	_, prev := t.links(after)
	*prev = s
}

// Unlink takes an entry off its list, if it is on one.
func (t *Table) Unlink(s Slot) {
	e := t.At(s)
	if e.next == None {
		return
	}
	next, _ := t.links(e.prev)
	*next = e.next
	_, prev := t.links(e.next)
	*prev = e.prev
	e.next, e.prev = None, None
}

// relink notes in the neighbours of an entry that it is at s now.
func (t *Table) relink(s Slot) {
	e := t.At(s)
	if e.next == None {
		return
	}
	next, _ := t.links(e.prev)
	*next = s
	_, prev := t.links(e.next)
	*prev = s
}

// Front is the first entry of l, or None.
func (t *Table) Front(l List) Slot {
	if s := t.heads[l].next; s&headBit == 0 {
		return s
	}
	return None
}

// Back is the last entry of l, or None.
func (t *Table) Back(l List) Slot {
	if s := t.heads[l].prev; s&headBit == 0 {
		return s
	}
	return None
}

// Empty reports whether l has no entries.
func (t *Table) Empty(l List) bool { return t.heads[l].next == l.slot() }

// splice moves all of one list to the end of another.
func (t *Table) splice(to, from List) {
	if t.Empty(from) {
		return
	}
	first, last := t.heads[from].next, t.heads[from].prev
	end := t.heads[to].prev
	next, _ := t.links(end)
	*next = first
	t.At(first).prev = end
	t.At(last).next = to.slot()
	t.heads[to].prev = last
	t.Clear(from)
}
