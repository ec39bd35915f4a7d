package schedule

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
