package suppression

import (
	"hash/maphash"
	"math/bits"
)

// filter is a Bloom filter that grows: it says for certain that a key is not there, or that it may
// be. When a layer is full the next one has twice its room. Nothing can be taken out: see [List.renew].
type filter struct {
	seed   maphash.Seed
	layers []layer
}

const (
	firstRoom = 1 << 14
	bitsEach  = 10 // for each key: a share of 0.8 % is said to be there wrongly
	probes    = 7
)

// layer has room for a number of keys.
type layer struct {
	bits       []uint64
	room, used int
}

func (f *filter) add(k Key) {
	if len(f.layers) == 0 {
		f.seed = maphash.MakeSeed()
	}
	h := k.hash(f.seed)
	if f.hasHash(h) {
		return
	}
	if n := len(f.layers); n == 0 || f.layers[n-1].used == f.layers[n-1].room {
		room := firstRoom << n
		f.layers = append(f.layers, layer{bits: make([]uint64, room*bitsEach/64), room: room})
	}
	l := &f.layers[len(f.layers)-1]
	l.used++
	for i := range probes {
		word, mask := l.place(h, i)
		l.bits[word] |= mask
	}
}

func (f *filter) has(k Key) bool { return len(f.layers) > 0 && f.hasHash(k.hash(f.seed)) }

func (f *filter) hasHash(h uint64) bool {
	for i := len(f.layers) - 1; i >= 0; i-- {
		if f.layers[i].has(h) {
			return true
		}
	}
	return false
}

func (l *layer) has(h uint64) bool {
	for i := range probes {
		if word, mask := l.place(h, i); l.bits[word]&mask == 0 {
			return false
		}
	}
	return true
}

// place gives the i-th bit of a hash: double hashing with its two halves.
func (l *layer) place(h uint64, i int) (word int, mask uint64) {
	x := h + uint64(i)*(h<<32|h>>32|1)
	at, _ := bits.Mul64(x, uint64(len(l.bits))*64)
	return int(at >> 6), 1 << (at & 63)
}

// keys is how many were added.
func (f *filter) keys() (n int) {
	for i := range f.layers {
		n += f.layers[i].used
	}
	return n
}

func (f *filter) bytes() (n int64) {
	for i := range f.layers {
		n += int64(len(f.layers[i].bits)) * 8
	}
	return n
}
