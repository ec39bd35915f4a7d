package queue

import (
	"hash/maphash"
	"math"
	"math/bits"

	"example.org/mta/queue/schedule"
)

// names numbers the names that recipients are counted by, as many as are worth a counter: memory stays flat
// however many names there are. While there are fewer than that, all counts are exact. A further name takes
// the counter of one of those with the fewest recipients, and inherits its count as an error ("space-saving",
// Metwally 2005). Recipients keep the number that they were counted under until they leave the queue, so a count
// never runs away, and the sum of all is exact.
//
// Names of one family give their counters to each other only, so the count of a family is exact. Number 0 is for
// recipients whose name is not known.
type names[K comparable] struct {
	family func(K) string
	clone  func(K) K // a copy that keeps nothing else in memory
	counts func(number uint16) *schedule.Count
	grow   func() // makes room for the count of one more

	most     int // counters; families that have few may have more
	byName   map[K]uint16
	all      []named[K] // by number
	families map[string]*family
	// lost has, by hash of a name, how many recipients may be counted under a number that the name has lost.
	lost    []uint32
	seed    maphash.Seed
	version uint64 // grows when a number gets another name
}

// named is the name of a number.
type named[K comparable] struct {
	name  K
	over  uint32 // recipients that it inherited
	added uint32 // recipients counted under the name since; stops at its maximum
}

// family is names that give their counters to each other.
type family struct {
	numbers []uint16
	victims []uint16 // that had the fewest recipients when they were last compared
	limit   uint32   // and no more than so many
	lossy   bool     // a name has lost its number while it had recipients
}

const (
	// mostNames bounds the counters, for domains and for origins alike.
	mostNames = 16384
	// fewNames is how many a family may have even so.
	fewNames = 16
)

func newNames[K comparable](family func(K) string, clone func(K) K, counts func(uint16) *schedule.Count, grow func()) *names[K] {
	n := &names[K]{family: family, clone: clone, counts: counts, grow: grow, most: mostNames, seed: maphash.MakeSeed()}
	n.reset()
	return n
}

func (n *names[K]) reset() {
	n.byName, n.families, n.lost = map[K]uint16{}, map[string]*family{}, make([]uint32, mostNames)
	n.all = make([]named[K], 1, 64)
}

// number gives the number of a name, for some recipients that are about to be counted under it.
func (n *names[K]) number(name K, recipients int) uint16 {
	number, ok := n.byName[name]
	if !ok {
		if number = n.take(name); number == 0 {
			return 0
		}
	}
	n.count(number, recipients)
	return number
}

// again is number for a name that had a number before: it is mostly the same.
func (n *names[K]) again(number uint16, name K, recipients int) uint16 {
	if number == 0 || n.all[number].name != name {
		return n.number(name, recipients)
	}
	n.count(number, recipients)
	return number
}

func (n *names[K]) count(number uint16, recipients int) {
	of := &n.all[number]
	of.added = uint32(min(uint64(of.added)+uint64(recipients), math.MaxUint32))
}

// take gives a name a number; 0 when there is none for it.
func (n *names[K]) take(name K) uint16 {
	name = n.clone(name)
	f := n.familyOf(name)
	number := uint16(0)
	switch {
	case len(n.all) > math.MaxUint16 && len(f.numbers) == 0:
		return 0
	case len(n.all) <= n.most || len(n.all) <= math.MaxUint16 && len(f.numbers) < fewNames:
		number = uint16(len(n.all))
		n.all = append(n.all, named[K]{name: name})
		f.numbers = append(f.numbers, number)
		n.grow()
	default:
		number = n.victim(f)
		n.evict(f, number)
		n.all[number] = named[K]{name: name, over: n.counts(number).Total}
	}
	n.byName[name] = number
	n.version++
	return number
}

func (n *names[K]) familyOf(name K) *family {
	of := n.family(name)
	f := n.families[of]
	if f == nil {
		f = &family{}
		n.families[of] = f
	}
	return f
}

// evict takes its number from a name.
func (n *names[K]) evict(f *family, number uint16) {
	old := &n.all[number]
	delete(n.byName, old.name)
	if own := min(n.counts(number).Total, old.added); own > 0 {
		lost := n.lostOf(old.name)
		*lost = uint32(min(uint64(*lost)+uint64(own), math.MaxUint32))
		f.lossy = true
	}
}

func (n *names[K]) lostOf(name K) *uint32 {
	return &n.lost[maphash.Comparable(n.seed, name)%uint64(len(n.lost))]
}

// victim gives one of the numbers of a family that have the fewest recipients.
func (n *names[K]) victim(f *family) uint16 {
	for {
		for len(f.victims) > 0 {
			number := f.victims[0]
			if f.victims = f.victims[1:]; n.counts(number).Total <= f.limit {
				return number
			}
		}
		n.compare(f)
	}
}

// compare finds the numbers of a family that have the fewest recipients: an eighth of them, to the nearest power of 2 of
// their counts.
func (n *names[K]) compare(f *family) {
	want := max(len(f.numbers)/8, 1)
	var bySize [33]int
	for _, number := range f.numbers {
		bySize[bits.Len32(n.counts(number).Total)]++
	}
	size, sum := 0, bySize[0]
	for sum < want {
		size++
		sum += bySize[size]
	}
	f.limit = uint32(1)<<size - 1
	f.victims = f.victims[:0]
	for _, number := range f.numbers {
		if n.counts(number).Total <= f.limit && len(f.victims) < want {
			f.victims = append(f.victims, number)
		}
	}
}

// find gives the number of a name that has one.
func (n *names[K]) find(name K) (uint16, bool) {
	number, ok := n.byName[name]
	return number, ok
}

// scattered reports whether a name may have recipients under other numbers than its own, those without a known
// name apart.
func (n *names[K]) scattered(name K) bool { return *n.lostOf(name) > 0 }

// leftover is how many recipients of a family may be counted under another name than their own.
func (n *names[K]) leftover(f *family) (sum uint32) {
	if !f.lossy {
		return 0
	}
	for _, number := range f.numbers {
		sum += n.inherited(number)
	}
	if sum == 0 {
		if f.lossy = false; len(n.families) == 1 {
			clear(n.lost)
		}
	}
	return sum
}

// inherited is how many recipients of other names may be counted under a number.
func (n *names[K]) inherited(number uint16) uint32 {
	of := &n.all[number]
	of.over = min(of.over, n.counts(number).Total)
	return of.over
}
