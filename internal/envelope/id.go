package envelope

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// ID names a message on its node, and each is larger than the one before. Mostly the upper 44 bits are
// milliseconds since 1970, and the lower 20 a sequence; but ids never go back, and after the clock was
// ahead once they go on from there. So an id says nothing about when its message was accepted. In a cluster the lowest
// 10 bits are the number of the node, so that no two nodes make one id. Its text form has 13 characters and sorts as
// the number does.
type ID uint64

const (
	idSeqBits = 20
	idNodes   = 1 << 10
	idLen     = 13
	idDigits  = "0123456789abcdefghjkmnpqrstvwxyz" // Crockford's base 32: no i, l, o, u
)

// String gives the text form.
func (id ID) String() string {
	var b [idLen]byte
	for i := idLen - 1; i >= 0; i-- {
		b[i] = idDigits[id&31]
		id >>= 5
	}
	return string(b[:])
}

// ParseID reads the text form, in either case. It does not keep s, so that a caller can convert octets for it
// without an allocation.
func ParseID(s string) (ID, error) {
	if len(s) != idLen {
		return 0, fmt.Errorf(
			"message id %q: want %d characters, as in the ID column of 'mta queue list' and 'mta bounce list'",
			strings.Clone(s), idLen)
	}
	var id ID
	for i := range idLen {
		d := idValues[s[i]]
		if d < 0 || i == 0 && d > 15 {
			return 0, fmt.Errorf("message id %q: character %d is not one that ids have", strings.Clone(s), i+1)
		}
		id = id<<5 | ID(d)
	}
	return id, nil
}

// idValues has the values of the octets that are digits of ids, and -1 for others.
var idValues = func() (v [256]int8) {
	for c := range v {
		v[c] = -1
	}
	for i, c := range []byte(idDigits) {
		v[c] = int8(i)
		if 'a' <= c && c <= 'z' {
			v[c-'a'+'A'] = int8(i)
		}
	}
	return v
}()

// Time is when the id was made, to the millisecond, if the clock was right and had never been ahead
// before. It is for what has no other time.
func (id ID) Time() time.Time { return time.UnixMilli(int64(id >> idSeqBits)) }

// Node is the number of the node of a cluster that has made the id. Of an id that was made by a relay which had not
// joined one it is any number, often 0.
func (id ID) Node() int { return int(id % idNodes) }

// FirstID is the smallest id that can be made at t, for ranges by time.
func FirstID(t time.Time) ID { return ID(t.UnixMilli()) << idSeqBits }

// IDs makes ids that only grow. It is safe for use by many goroutines.
type IDs struct {
	last atomic.Uint64
	node atomic.Uint32
}

// OfNode has all later ids end with the number of a node, from 1 to 1,023.
func (g *IDs) OfNode(number uint16) { g.node.Store(uint32(number)) }

// Next gives a new id for the time now, larger than all before it.
func (g *IDs) Next(now time.Time) ID {
	want, node := uint64(FirstID(now)), uint64(g.node.Load())
	for {
		last := g.last.Load()
		next := max(want, last+1)
		if node != 0 {
			next += (node - next) % idNodes // up to the next that ends so
		}
		if g.last.CompareAndSwap(last, next) {
			return ID(next)
		}
	}
}

// Observe makes sure that all later ids are larger than id.
func (g *IDs) Observe(id ID) {
	for {
		if last := g.last.Load(); last >= uint64(id) || g.last.CompareAndSwap(last, uint64(id)) {
			return
		}
	}
}
