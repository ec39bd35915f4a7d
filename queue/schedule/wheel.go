package schedule

import "math/bits"

const (
	wheelBits   = 6
	wheelSlots  = 1 << wheelBits
	wheelLevels = 4
	// Horizon is how many seconds ahead the wheel tells times apart, 194 days. Later times are
	// looked at again then.
	Horizon = 1 << (wheelBits * wheelLevels)
)

// Wheel is a hierarchical timing wheel with seconds: 64 lists of a second each, 64 of 64
// seconds, and so on. Adding and taking off cost the same however many wait; an entry is moved
// at most three times before it is due.
type Wheel struct {
	t     *Table
	now   uint32 // every second up to this one has been handed out
	lists [wheelLevels][wheelSlots]List
	taken [wheelLevels]uint64 // a bit for each list that may have entries
	moved List                // entries of a coarse list on their way to finer ones
	due   List                // entries whose second has come
}

// NewWheel gives a wheel over t that starts at now, in seconds since 1970.
func NewWheel(t *Table, now uint32) *Wheel {
	w := &Wheel{t: t, now: now, moved: t.NewList(), due: t.NewList()}
	for l := range w.lists {
		for i := range w.lists[l] {
			w.lists[l][i] = t.NewList()
		}
	}
	return w
}

// Rewind sets the wheel, which must be empty, to now: the clock was set back.
func (w *Wheel) Rewind(now uint32) {
	w.now = now
	w.taken = [wheelLevels]uint64{}
}

// Add puts an entry, which must be on no list, where its Due says. What is due by now comes out
// with the next Advance.
func (w *Wheel) Add(s Slot) {
	due := w.t.At(s).Due
	if due <= w.now {
		w.t.Push(w.due, s)
		return
	}
	level, i := w.place(due)
	w.t.Push(w.lists[level][i], s)
	w.taken[level] |= 1 << i
}

// place returns which list a later second goes to: that of the highest group of six bits in which
// it differs from now.
func (w *Wheel) place(due uint32) (level, i int) {
	if due-w.now >= Horizon {
		due = w.now + Horizon - 1
	}
	level = min((31-bits.LeadingZeros32(due^w.now))/wheelBits, wheelLevels-1)
	return level, int(due>>(level*wheelBits)) & (wheelSlots - 1)
}

// Advance moves on to now and hands the entries that are due to f, off the wheel, at most n of
// them or so. It reports whether there is more to do for this now.
func (w *Wheel) Advance(now uint32, n int, f func(Slot, *Entry)) (more bool) {
	for ; n > 0; n-- {
		if s := w.t.Front(w.due); s != None {
			w.t.Unlink(s)
			f(s, w.t.At(s))
			continue
		}
		if s := w.t.Front(w.moved); s != None {
			w.t.Unlink(s)
			w.Add(s)
			continue
		}
		if !w.step(now) {
			return false
		}
	}
	return true
}

// step goes to the next second, up to now, at which a list has to be looked at.
func (w *Wheel) step(now uint32) bool {
	next, level, ok := w.next()
	if !ok || next > now {
		w.now = max(w.now, now)
		return false
	}
	w.now = next
	i := int(next>>(level*wheelBits)) & (wheelSlots - 1)
	w.taken[level] &^= 1 << i
	if level == 0 {
		w.t.splice(w.due, w.lists[level][i])
	} else {
		w.t.splice(w.moved, w.lists[level][i])
	}
	return true
}

// next is the earliest second at which a list has to be looked at, and its level.
func (w *Wheel) next() (at uint32, level int, ok bool) {
	for l := range wheelLevels {
		shift := l * wheelBits
		here := int(w.now>>shift) & (wheelSlots - 1)
		// Lists at or before here are for the next turn of this level, which only the highest
		// one has: on the others the carry goes to a list of the level above.
		turned := bits.RotateLeft64(w.taken[l], -(here + 1))
		if turned == 0 {
			continue
		}
		step := uint32(bits.TrailingZeros64(turned)) + 1
		if t := (w.now>>shift + step) << shift; !ok || t < at || t == at && l > level {
			at, level, ok = t, l, true
		}
	}
	return at, level, ok
}

// Next is when Advance has something to do, in seconds since 1970; that can be to sort and not
// to hand out. It is false when the wheel is empty.
func (w *Wheel) Next() (uint32, bool) {
	if !w.t.Empty(w.due) || !w.t.Empty(w.moved) {
		return w.now, true
	}
	at, _, ok := w.next()
	return at, ok
}
