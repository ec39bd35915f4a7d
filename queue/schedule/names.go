package schedule

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strings"
)

// Numbering numbers the names that recipients are counted by, as many as are worth a counter: memory stays flat
// however many names there are. While there are fewer than that, all counts are exact. A further name takes
// the counter of one of those with the fewest recipients, and inherits its count as an error ("space-saving",
// Metwally 2005). Recipients keep the number that they were counted under until they leave the queue, so a count
// never runs away, and the sum of all is exact.
//
// Names of one family give their counters to each other only, so the count of a family is exact. Number 0 is for
// recipients whose name is not known.
type Numbering[K comparable] struct {
	family func(K) string
	clone  func(K) K // a copy that keeps nothing else in memory
	counts func(number uint16) *Count
	grow   func() // makes room for the count of one more

	Most     int // counters; families that have few may have more
	byName   map[K]uint16
	All      []named[K] // by number
	Families map[string]*Family
	// lost has, by hash of a name, how many recipients may be counted under a number that the name has lost.
	lost    []uint32
	seed    maphash.Seed
	Version uint64 // grows when a number gets another name
}

// named is the name of a number.
type named[K comparable] struct {
	Name  K
	over  uint32 // recipients that it inherited
	added uint32 // recipients counted under the name since; stops at its maximum
}

// Family is names that give their counters to each other.
type Family struct {
	Numbers []uint16
	victims []uint16 // that had the fewest recipients when they were last compared
	limit   uint32   // and no more than so many
	Lossy   bool     // a name has lost its number while it had recipients
}

const (
	// mostNames bounds the counters, for domains and for origins alike.
	mostNames = 16384
	// fewNames is how many a family may have even so.
	fewNames = 16
)

// NewNumbering makes an empty one: see the fields of Numbering for its functions.
func NewNumbering[K comparable](family func(K) string, clone func(K) K, counts func(uint16) *Count,
	grow func()) *Numbering[K] {
	n := &Numbering[K]{family: family, clone: clone, counts: counts, grow: grow, Most: mostNames,
		seed: maphash.MakeSeed()}
	n.reset()
	return n
}

func (n *Numbering[K]) reset() {
	n.byName, n.Families, n.lost = map[K]uint16{}, map[string]*Family{}, make([]uint32, mostNames)
	n.All = make([]named[K], 1, 64)
}

// Number gives the number of a name, for some recipients that are about to be counted under it.
func (n *Numbering[K]) Number(name K, recipients int) uint16 {
	number, ok := n.byName[name]
	if !ok {
		if number = n.take(name); number == 0 {
			return 0
		}
	}
	n.Count(number, recipients)
	return number
}

// Again is number for a name that had a number before: it is mostly the same.
func (n *Numbering[K]) Again(number uint16, name K, recipients int) uint16 {
	if number == 0 || n.All[number].Name != name {
		return n.Number(name, recipients)
	}
	n.Count(number, recipients)
	return number
}

// Count notes recipients that are about to be counted under a number.
func (n *Numbering[K]) Count(number uint16, recipients int) {
	of := &n.All[number]
	of.added = uint32(min(uint64(of.added)+uint64(recipients), math.MaxUint32))
}

// take gives a name a number; 0 when there is none for it.
func (n *Numbering[K]) take(name K) uint16 {
	name = n.clone(name)
	f := n.FamilyOf(name)
	number := uint16(0)
	switch {
	case len(n.All) > math.MaxUint16 && len(f.Numbers) == 0:
		return 0
	case len(n.All) <= n.Most || len(n.All) <= math.MaxUint16 && len(f.Numbers) < fewNames:
		number = uint16(len(n.All))
		n.All = append(n.All, named[K]{Name: name})
		f.Numbers = append(f.Numbers, number)
		n.grow()
	default:
		number = n.victim(f)
		n.evict(f, number)
		n.All[number] = named[K]{Name: name, over: n.counts(number).Total}
	}
	n.byName[name] = number
	n.Version++
	return number
}

// FamilyOf gives the family of a name, a new one if need be.
func (n *Numbering[K]) FamilyOf(name K) *Family {
	of := n.family(name)
	f := n.Families[of]
	if f == nil {
		f = &Family{}
		n.Families[of] = f
	}
	return f
}

// evict takes its number from a name.
func (n *Numbering[K]) evict(f *Family, number uint16) {
	old := &n.All[number]
	delete(n.byName, old.Name)
	if own := min(n.counts(number).Total, old.added); own > 0 {
		lost := n.LostOf(old.Name)
		*lost = uint32(min(uint64(*lost)+uint64(own), math.MaxUint32))
		f.Lossy = true
	}
}

// LostOf gives the entry of lost for a name.
func (n *Numbering[K]) LostOf(name K) *uint32 {
	return &n.lost[maphash.Comparable(n.seed, name)%uint64(len(n.lost))]
}

// victim gives one of the numbers of a family that have the fewest recipients.
func (n *Numbering[K]) victim(f *Family) uint16 {
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

// compare finds the numbers of a family that have the fewest recipients: an eighth of them, to the nearest power of 2
// of their counts.
func (n *Numbering[K]) compare(f *Family) {
	want := max(len(f.Numbers)/8, 1)
	var bySize [33]int
	for _, number := range f.Numbers {
		bySize[bits.Len32(n.counts(number).Total)]++
	}
	size, sum := 0, bySize[0]
	for sum < want {
		size++
		sum += bySize[size]
	}
	f.limit = uint32(1)<<size - 1
	f.victims = f.victims[:0]
	for _, number := range f.Numbers {
		if n.counts(number).Total <= f.limit && len(f.victims) < want {
			f.victims = append(f.victims, number)
		}
	}
}

// Find gives the number of a name that has one.
func (n *Numbering[K]) Find(name K) (uint16, bool) {
	number, ok := n.byName[name]
	return number, ok
}

// Scattered reports whether a name may have recipients under other numbers than its own, those without a known
// name apart.
func (n *Numbering[K]) Scattered(name K) bool { return *n.LostOf(name) > 0 }

// Leftover is how many recipients of a family may be counted under another name than their own.
func (n *Numbering[K]) Leftover(f *Family) (sum uint32) {
	if !f.Lossy {
		return 0
	}
	for _, number := range f.Numbers {
		sum += n.Inherited(number)
	}
	if sum == 0 {
		if f.Lossy = false; len(n.Families) == 1 {
			clear(n.lost)
		}
	}
	return sum
}

// Inherited is how many recipients of other names may be counted under a number.
func (n *Numbering[K]) Inherited(number uint16) uint32 {
	of := &n.All[number]
	of.over = min(of.over, n.counts(number).Total)
	return of.over
}

// Origin is where a message comes from.
type Origin struct {
	Tenant   string
	Campaign string
	Sender   string // the domain of the sender, "" for the null sender
	Folded   bool   // only the tenant is known
}

// Text is what an index has of an origin, beside the tenant. originOf is the inverse.
func (o *Origin) Text() string { return o.Campaign + "\x00" + o.Sender }

// OriginOf is the inverse of Text.
func OriginOf(tenant, text string) Origin {
	i := max(strings.LastIndexByte(text, 0), 0)
	return Origin{Tenant: tenant, Campaign: text[:i], Sender: text[min(i+1, len(text)):]}
}

// Clone gives a copy that keeps nothing else in memory.
func (o Origin) Clone() Origin {
	o.Tenant, o.Campaign, o.Sender = strings.Clone(o.Tenant), strings.Clone(o.Campaign), strings.Clone(o.Sender)
	return o
}
