package destdb

import "slices"

// ordered is a list in the order of its keys. It is cut into pieces, so that what comes or goes moves
// a piece at most, and not all that lies behind it.
type ordered[K, T any] struct {
	pieces  [][]T // none is empty
	n       int   // how many there are
	key     func(T) K
	compare func(a, b K) int
}

// pieceMax is how long a piece grows before it is cut in two.
const pieceMax = 512

// find gives the place of the first element whose key is not below k, and whether it is k.
func (o *ordered[K, T]) find(k K) (piece, at int, found bool) {
	piece, _ = slices.BinarySearchFunc(o.pieces, k, func(p []T, k K) int { return o.compare(o.key(p[len(p)-1]), k) })
	if piece == len(o.pieces) {
		return piece, 0, false
	}
	at, found = slices.BinarySearchFunc(o.pieces[piece], k, func(x T, k K) int { return o.compare(o.key(x), k) })
	return piece, at, found
}

// insert adds an element whose key is not there yet.
func (o *ordered[K, T]) insert(x T) {
	o.n++
	piece, at, _ := o.find(o.key(x))
	if piece == len(o.pieces) { // behind all others
		if piece == 0 {
			o.pieces = append(o.pieces, []T{x})
			return
		}
		piece--
		at = len(o.pieces[piece])
	}
	p := slices.Insert(o.pieces[piece], at, x)
	o.pieces[piece] = p
	if half := len(p) / 2; len(p) > pieceMax {
		o.pieces = slices.Insert(o.pieces, piece+1, slices.Clone(p[half:]))
		o.pieces[piece] = slices.Delete(p, half, len(p))
	}
}

// remove takes out the element with that key, if there is one.
func (o *ordered[K, T]) remove(k K) {
	piece, at, found := o.find(k)
	if !found {
		return
	}
	o.n--
	o.pieces[piece] = slices.Delete(o.pieces[piece], at, at+1)
	if len(o.pieces[piece]) == 0 {
		o.pieces = slices.Delete(o.pieces, piece, piece+1)
	}
}

// after gives the first n elements whose keys are above k.
func (o *ordered[K, T]) after(k K, n int) []T {
	var list []T
	piece, at, found := o.find(k)
	if found {
		at++
	}
	for ; piece < len(o.pieces) && n > 0; piece, at = piece+1, 0 {
		some := o.pieces[piece][at:]
		some = some[:min(n, len(some))]
		list = append(list, some...)
		n -= len(some)
	}
	return list
}
