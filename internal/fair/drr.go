package fair

// This file is deficit round robin among members that have something waiting: in each round a
// member gets as many turns as its weight says. It knows neither what waits nor a clock; the caller that
// owns a Ring guards it. It starts no goroutines.
//
// The order of use: Join when a member has something, Pick whose turn it is, Took when something
// of that member was taken, Leave when it has nothing left.

// Member is one of a ring. Its zero value is on none.
type Member[T any] struct {
	Value  T
	Weight int // turns in a round; less than 1 is 1

	left       int // turns in this round, 0 before the first
	prev, next *Member[T]
}

// Ring is the members that have something waiting. The zero value is empty.
type Ring[T any] struct {
	turn *Member[T] // whose turn it is; nil when the ring is empty
}

// Empty reports whether nobody is on the ring.
func (r *Ring[T]) Empty() bool { return r.turn == nil }

// Join lets m, which must be on no ring, take part in the round, last.
func (r *Ring[T]) Join(m *Member[T]) {
	m.left = 0
	if r.turn == nil {
		r.turn, m.next, m.prev = m, m, m
		return
	}
	m.next, m.prev = r.turn, r.turn.prev
	m.prev.next, m.next.prev = m, m
}

// Leave takes m off the ring. A turn that it had goes to the next.
func (r *Ring[T]) Leave(m *Member[T]) {
	if m.next == m {
		r.turn = nil
	} else {
		m.prev.next, m.next.prev = m.next, m.prev
		if r.turn == m {
			r.turn = m.next
		}
	}
	m.next, m.prev = nil, nil
}

// Pick gives the member whose turn it is; nil when there is none, or none that may: who may
// not is passed over. It looks at each once.
func (r *Ring[T]) Pick(may func(T) bool) *Member[T] {
	for m, first := r.turn, r.turn; m != nil; {
		if may(m.Value) {
			if m.left == 0 {
				m.left = max(m.Weight, 1)
			}
			r.turn = m
			return m
		}
		if m = m.next; m == first {
			return nil
		}
	}
	return nil
}

// Took notes that something of m, which is on the ring, was taken. It does not have to be m's turn: what
// was taken out of turn counts, too.
func (r *Ring[T]) Took(m *Member[T]) {
	m.left = max(m.left-1, 0)
	if m.left == 0 && r.turn == m {
		r.turn = m.next
	}
}
