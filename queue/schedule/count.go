package schedule

// AgeClasses is how many classes of age entries are counted in. The owner says where they end, in ids: see Age.
const AgeClasses = 10

// Count is how many living entries there are of some kind.
type Count struct {
	Total  uint32
	States [states]uint32
	Ages   [AgeClasses]uint32 // the youngest first
}

// Names are the numbers of what the owner counts an entry by, beside its key. 0 is as good as any other.
type Names struct{ Domain, Origin uint16 }

// counts are the entries by what they have in common. Each change of an entry changes a few numbers, and nothing is
// ever looked through for them.
type counts struct {
	keys, domains, origins []Count // by number
	byAge                  [states][AgeClasses]uint32
	// Entries with an id below older[i] are older than class i.
	older [AgeClasses - 1]uint64
}

func newCounts() counts {
	return counts{keys: make([]Count, 1), domains: make([]Count, 1), origins: make([]Count, 1)}
}

// class is the class of age of an id.
func (c *counts) class(id uint64) int {
	for i, end := range c.older {
		if id >= end {
			return i
		}
	}
	return AgeClasses - 1
}

// of gives the counts that an entry is in.
func (c *counts) of(e *Entry, n Names) [3]*Count {
	return [...]*Count{&c.keys[e.Key], &c.domains[n.Domain], &c.origins[n.Origin]}
}

func (c *Count) add(s State, class int) {
	c.Total++
	c.States[s]++
	c.Ages[class]++
}

func (c *Count) remove(s State, class int) {
	c.Total--
	c.States[s]--
	c.Ages[class]--
}

func (c *counts) enter(e *Entry, n Names) {
	s, class := e.State(), c.class(e.ID)
	for _, of := range c.of(e, n) {
		of.add(s, class)
	}
	c.byAge[s][class]++
}

func (c *counts) leave(e *Entry, n Names) {
	s, class := e.State(), c.class(e.ID)
	for _, of := range c.of(e, n) {
		of.remove(s, class)
	}
	c.byAge[s][class]--
}

// move changes the state of an entry, which still has the old one.
func (c *counts) move(e *Entry, n Names, to State) {
	from, class := e.State(), c.class(e.ID)
	for _, of := range c.of(e, n) {
		of.States[from]--
		of.States[to]++
	}
	c.byAge[from][class]--
	c.byAge[to][class]++
}

// rekey changes the key of an entry, which still has the old one.
func (c *counts) rekey(e *Entry, to uint32) {
	s, class := e.State(), c.class(e.ID)
	c.keys[e.Key].remove(s, class)
	c.keys[to].add(s, class)
}

// CountOfKey counts the entries of the line with a number.
func (t *Table) CountOfKey(n uint32) *Count { return &t.by.keys[n] }

// CountOfDomain counts the entries of a domain.
func (t *Table) CountOfDomain(n uint16) *Count { return &t.by.domains[n] }

// CountOfOrigin counts the entries of an origin.
func (t *Table) CountOfOrigin(n uint16) *Count { return &t.by.origins[n] }

// CountByAge counts the entries in a state by age.
func (t *Table) CountByAge(s State) [AgeClasses]uint32 { return t.by.byAge[s] }

// NewDomain makes room for one more domain.
func (t *Table) NewDomain() { t.by.domains = append(t.by.domains, Count{}) }

// NewOrigin makes room for one more origin.
func (t *Table) NewOrigin() { t.by.origins = append(t.by.origins, Count{}) }

// Age moves entries on to their classes of age: those with an id below ends[i] are older than class i. The ends fall
// from class to class; those that are lower than before stay as they were, since entries get no younger. It looks at
// most entries, or those of one message more, and reports whether there are more to move.
func (t *Table) Age(ends [AgeClasses - 1]uint64, most int) (more bool) {
	for i, end := range ends {
		if i > 0 {
			end = min(end, t.by.older[i-1])
		}
		if most = t.age(i, end, most); most < 0 {
			return true
		}
	}
	return false
}

// BeginOld notes, before an entry is appended, that those before it are older than a class. It is for a table that is
// being filled.
func (t *Table) BeginOld(class int, id uint64) { t.by.older[class] = max(t.by.older[class], id) }

// age moves entries with an id below one from a class to the next. What is left of most is negative when there are
// more.
func (t *Table) age(class int, end uint64, most int) int {
	older := &t.by.older[class]
	if *older >= end {
		return most
	}
	last := *older
	t.ascend(*older, func(s Slot, e *Entry) bool {
		if e.ID >= end {
			return false
		}
		if most <= 0 && e.ID != last {
			most, end = -1, e.ID
			return false
		}
		most, last = most-1, e.ID
		for _, of := range t.by.of(e, t.NamesAt(s)) {
			of.Ages[class]--
			of.Ages[class+1]++
		}
		t.by.byAge[e.State()][class]--
		t.by.byAge[e.State()][class+1]++
		return true
	}, end)
	*older = end
	return most
}
