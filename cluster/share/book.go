package share

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/cluster/term"
)

// Book is the owner's account of the limits of one shard.
type Book struct {
	term   term.Term
	turn   time.Duration
	began  time.Duration
	since  time.Duration // from then on nobody has used a limit without an account
	rest   float64       // the part of each limit that may be given
	limits []*account    // by name
	askers map[uint16]*asker
	whole  bool // all nodes have reported what they use, or have had the time to
	off    map[uint16]uint64
}

// asker is a node that has asked.
type asker struct {
	newest  term.Order
	heard   bool          // it has asked this book
	pending bool          // the next round answers, or a later one
	until   time.Duration // when it answers at the latest
	nudged  time.Duration
	made    int  // accounts that it was the first to ask for
	moved   bool // the round has something for it
	lacks   bool // and it waits for something else
}

// standing is how long an ask may wait for what it wants: so long that units which others give up reach it in the round
// in which they become free.
const standing = 1500 * time.Millisecond

// census is how long a book that has begun gives no more of lasting limits, unless all nodes have asked: they repeat an
// ask after answerWithin.
const census = 10 * time.Second

// account is one limit's.
type account struct {
	Limit                 // the smallest of all holders; only a name: nobody has asked yet
	maker   uint16        // the node that asked first
	holders []*holder     // by node
	spare   bucket        // of the units that nobody can hold
	apart   bool          // its holders have it by several definitions
	since   time.Duration // when they began to
}

// holder is a node's part of a limit.
type holder struct {
	node    uint16
	limit   Limit // as its node has it; none: it has not asked
	held    int64 // what it reported last
	counted int64 // what it may hold or use at most: that, or what it was answered since
	want    int64 // by its own definition
	needs   int64 // the same by the account's
	target  int64
	until   time.Duration // then all that it was granted has ended
	on      bool          // it has a turn
	begun   time.Duration // of its turn, or of its wait for one
	used    bool          // it was given something in its turn

	written, sent int64 // what the engine has, and what it was sent
	unsure        bool  // whether it has that
}

// NewBook makes the book of a shard at which nothing is given out. turn is how long a node has its part of a limit that
// is too small for all.
func NewBook(now time.Duration, t term.Term, turn time.Duration) *Book {
	return &Book{term: t, turn: turn, began: now, since: now, rest: 1, askers: make(map[uint16]*asker)}
}

// Keep has the book give no more than a part of each limit from now on: others may use the rest.
func (b *Book) Keep(now time.Duration, part float64) {
	if part == b.rest {
		return
	}
	for _, a := range b.limits {
		a.fill(b, now)
	}
	if part > b.rest {
		b.since = now // what others have used of a limit is not known
	}
	b.rest = part
}

// Empty has all buckets of units that nobody can hold be empty: it is not known what was used of them.
func (b *Book) Empty(now time.Duration) {
	b.since = now
	for _, a := range b.limits {
		a.spare = bucket{at: now}
	}
}

func (b *Book) find(name string) (int, bool) {
	return slices.BinarySearchFunc(b.limits, name, func(a *account, n string) int { return cmp.Compare(a.Name, n) })
}

// account finds that of a limit, or makes it in the name of a node.
func (b *Book) account(l Limit, maker uint16) *account {
	i, ok := b.find(l.Name)
	if !ok {
		b.limits = slices.Insert(b.limits, i, &account{Limit: l, maker: maker, spare: bucket{at: b.since}})
	}
	return b.limits[i]
}

func (a *account) find(node uint16) (int, bool) {
	return slices.BinarySearchFunc(a.holders, node, func(h *holder, n uint16) int { return cmp.Compare(h.node, n) })
}

func (a *account) holder(node uint16, now time.Duration) *holder {
	i, ok := a.find(node)
	if !ok {
		a.holders = slices.Insert(a.holders, i, &holder{node: node, begun: now})
	}
	return a.holders[i]
}

func (b *Book) asker(node uint16) *asker {
	k := b.askers[node]
	if k == nil {
		k = &asker{}
		b.askers[node] = k
	}
	return k
}

// free is how many units nobody can hold, of those that may be given.
func (a *account) free(b *Book) int64 {
	n := a.Limit.rest(b.rest)
	for _, h := range a.holders {
		n -= h.counted
	}
	return n
}

// fill lets events flow into the bucket of the units that nobody can hold. None flow before it is known how many.
func (a *account) fill(b *Book, now time.Duration) {
	a.spare.fill(now, &a.Limit, max(0, a.free(b)), b.term.Drift)
}

// define takes the smallest definition of those who hold or want something.
func (a *account) define() {
	first := true
	for h := range a.using {
		if !first {
			a.Limit = a.smaller(&h.limit)
			continue
		}
		a.Limit, first = h.limit, false
	}
	for _, h := range a.holders {
		h.needs = a.worth(h.want, &h.limit)
	}
}

// Load takes in a line of the book as another process left it: a node may hold so many units, given for an ask, until
// it reports with a newer one or a term has passed. ended: the term has passed.
func (b *Book) Load(now time.Duration, limit string, node uint16, units int64, o term.Order, ended bool) error {
	var err error
	if named := limit != "" && len(limit) <= mostName; !named || units < 0 || units > whole {
		err = fmt.Errorf("node %d has %d units of limit %.60q (want 0 to %d, and a name of 1 to %d octets)", node,
			units, limit, int64(whole), mostName)
		if units = whole; !named { // it is not known what the node has
			return err
		}
	}
	h := b.account(Limit{Name: limit}, 0).holder(node, now)
	h.written, h.unsure, h.until = units, true, now+b.term.Waits()
	if !ended {
		h.counted = units
	}
	if k := b.asker(node); o.After(k.newest) {
		k.newest = o
	}
	return err
}

// Hear takes in an ask, which a round answers. One that is not newer than another of its node is left alone, and so is
// one from before what it names has ended. After an error that names a single limit the rest of the ask counts. What
// was loaded is no bar when a term has passed: nothing of it counts then, and somebody may have edited it.
func (b *Book) Hear(now time.Duration, node uint16, o term.Order, items []Item) (err error) {
	k := b.askers[node]
	if k != nil && !o.After(k.newest) && (k.heard || now-b.began < b.term.Waits()) || b.ended(node, items) {
		return nil
	}
	if err := b.check(node, items); err != nil {
		return err
	}
	k = b.asker(node)
	k.newest, k.heard, k.pending, k.until = o, true, true, now+standing
	for _, i := range items {
		if _, ok := b.find(i.Name); ok || i.Want == 0 {
			continue
		}
		if k.made == most {
			err = fmt.Errorf("node %d asks for limit %q, and for %d others that are in use yet", node, i.Name, most)
			break
		}
		k.made++
		b.account(i.Limit, node)
	}
	for _, a := range b.limits {
		for len(items) > 0 && items[0].Name < a.Name {
			items = items[1:]
		}
		var item Item
		if len(items) > 0 && items[0].Name == a.Name {
			item = items[0]
		} else if _, ok := a.find(node); !ok {
			continue
		}
		if item.Name != "" && a.defined() && (a.Connections > 0) != (item.Connections > 0) {
			err = fmt.Errorf("node %d asks for limit %q as a number of connections or a rate, and others as the other",
				node, a.Name)
			item = Item{Held: item.Held}
		}
		a.fill(b, now)
		h := a.holder(node, now)
		if h.want == 0 && item.Want > 0 {
			h.on, h.begun = false, now
		}
		a.spare.content += min(item.Content, a.depth(h.counted-item.Held))
		h.limit, h.held, h.counted = item.Limit, item.Held, max(item.Held, item.Used)
		h.want, h.until = item.Want, now+b.term.Waits()
		a.define()
		if apart := a.differs(); apart != a.apart {
			a.apart, a.since = apart, now
		}
	}
	return err
}

// using yields those who hold or want something, by a definition of their own.
func (a *account) using(yield func(*holder) bool) {
	for _, h := range a.holders {
		if (h.counted > 0 || h.want > 0) && h.limit.Name != "" && !yield(h) {
			return
		}
	}
}

// differs reports whether holders have the limit by several definitions.
func (a *account) differs() bool {
	for h := range a.using {
		if h.limit != a.Limit {
			return true
		}
	}
	return false
}

// Difference is a limit that nodes have by several definitions, the smallest of which counts.
type Difference struct {
	Name  string
	Nodes map[uint16]Limit
}

// String names the nodes with their definitions.
func (d Difference) String() string {
	var all []string
	for _, node := range slices.Sorted(maps.Keys(d.Nodes)) {
		l := d.Nodes[node]
		what := fmt.Sprintf("%d", l.Connections)
		if l.Connections == 0 {
			what = fmt.Sprintf("%.4g a second and a burst of %d", l.Rate, l.Burst)
		}
		all = append(all, fmt.Sprintf("%s at node %d", what, node))
	}
	return fmt.Sprintf("%s: %s", d.Name, strings.Join(all, ", "))
}

// Differences are the limits that nodes have had by several definitions for so long: longer than a reload of all nodes
// takes one after the other.
func (b *Book) Differences(now, long time.Duration) (all []Difference) {
	for _, a := range b.limits {
		if !a.apart || now-a.since < long || !a.differs() {
			continue
		}
		d := Difference{a.Name, make(map[uint16]Limit)}
		for h := range a.using {
			d.Nodes[h.node] = h.limit
		}
		all = append(all, d)
	}
	return all
}

// defined reports whether it is known how much there is.
func (a *account) defined() bool { return a.Connections > 0 || a.Rate > 0 }

// ended reports whether a node asks with units of which nothing is counted any more. Such asks have been on their way
// since before this owner, or its process, was paused for a term: one for each three seconds.
func (b *Book) ended(node uint16, items []Item) bool {
	return slices.ContainsFunc(items, func(i Item) bool { return i.Held > 0 && b.counted(node, i.Name) == 0 })
}

// counted is how many units of a limit a node may hold or use at most.
func (b *Book) counted(node uint16, limit string) int64 {
	if at, ok := b.find(limit); ok {
		if h, ok := b.limits[at].find(node); ok {
			return b.limits[at].holders[h].counted
		}
	}
	return 0
}

// check finds items that no holder of this book can send.
func (b *Book) check(node uint16, items []Item) error {
	if len(items) > most {
		return fmt.Errorf("node %d asks for %d limits, from %.60q on (at most %d)", node, len(items), items[0].Name,
			most)
	}
	for n, i := range items {
		if err := i.check(); err != nil {
			return fmt.Errorf("node %d asks for %w", node, err)
		}
		if n > 0 && i.Name <= items[n-1].Name {
			return fmt.Errorf("node %d asks for limit %q after %q", node, i.Name, items[n-1].Name)
		}
		counted := b.counted(node, i.Name)
		if i.Held < 0 || i.Held > counted || i.Want < 0 || !(i.Content >= 0 && i.Content <= mostOf) {
			return fmt.Errorf("node %d asks for %d units of limit %q with %d and %g events, and was given %d", node,
				i.Want, i.Name, i.Held, i.Content, counted)
		}
		if most := int64(mostOf); i.Used < 0 || i.Used > most || i.Used > 0 && !i.Lasting {
			return fmt.Errorf("node %d asks with %d units of limit %q in use (at most %d, of a lasting limit)",
				node, i.Used, i.Name, most)
		}
	}
	return nil
}

// Pending reports whether the newest ask of a node waits for a round.
func (b *Book) Pending(node uint16) bool {
	k := b.askers[node]
	return k != nil && k.pending
}

// Census notes which nodes there are. When all of them have asked, it is known what is in use. off are nodes whose
// machines are known to be off, with the first incarnation that is not: what earlier ones had is free at once.
func (b *Book) Census(nodes []uint16, off map[uint16]uint64) {
	b.off = off
	b.whole = b.whole || len(nodes) > 0 && !slices.ContainsFunc(nodes, func(n uint16) bool {
		k := b.askers[n]
		return k == nil || !k.heard
	})
}

// Round answers asks. The answers may leave only when the engine has the changes of the book.
func (b *Book) Round(now time.Duration) map[uint16][]Grant {
	answers := make(map[uint16][]Grant)
	for node, k := range b.askers {
		if k.moved, k.lacks = false, false; k.pending {
			answers[node] = nil
		}
	}
	b.limits = slices.DeleteFunc(b.limits, func(a *account) bool { return a.expire(b, now) })
	b.whole = b.whole || now-b.began >= census
	for _, a := range b.limits {
		a.divide(b, now)
		free := a.free(b)
		if a.Lasting && !b.whole {
			free = min(free, 0)
		}
		for _, h := range a.holders {
			k := b.asker(h.node)
			if !k.pending {
				continue
			}
			g := Grant{a.Limit, h.held, 0}
			switch raised := min(h.target, h.counted+free); {
			case h.target <= h.held:
				g.Units = h.target
			case raised > h.held && raised >= a.Least():
				g.Units, g.Content = raised, a.spare.part(raised-h.held, free)
				free -= max(0, raised-h.counted)
				h.counted, h.unsure = max(h.counted, raised), true // so that the next book knows which ask it was for
				if !h.used {
					h.used, h.begun = true, now
				}
			default:
				k.lacks = true
			}
			k.moved = k.moved || g.Units != h.held
			answers[h.node] = append(answers[h.node], g)
		}
	}
	for node, k := range b.askers {
		if k.lacks && !k.moved && now < k.until {
			delete(answers, node)
		} else if k.pending {
			k.pending, k.nudged = false, 0
		}
	}
	return answers
}

// expire frees what was granted to nodes that have not been heard of for a term, or are off, and reports whether the
// account can be made anew when somebody asks.
func (a *account) expire(b *Book, now time.Duration) bool {
	a.fill(b, now)
	for _, h := range a.holders {
		if now >= h.until || b.asker(h.node).newest.Incarnation < b.off[h.node] {
			h.counted, h.held, h.want, h.on = 0, 0, 0, false
		}
	}
	a.holders = slices.DeleteFunc(a.holders, func(h *holder) bool {
		return h.counted == 0 && h.want == 0 && h.written == 0 && !h.unsure
	})
	a.define()
	switch {
	case len(a.holders) > 0 || a.spare.content < a.depth(a.Limit.rest(b.rest)):
		return false
	case !a.defined():
		b.since = now // nobody knows how full its bucket is
	case a.maker != 0:
		b.asker(a.maker).made--
	}
	return true
}

// divide sets the target of each holder: max-min by want, or turns where the limit is too small. While more units of a
// lasting limit are in use than there are nobody takes any.
func (a *account) divide(b *Book, now time.Duration) {
	least, left := a.Least(), a.Limit.rest(b.rest)
	var sharing []*holder
	for _, h := range a.holders {
		if h.target = 0; h.needs > 0 {
			sharing = append(sharing, h)
		}
	}
	if int64(len(sharing))*least > left {
		sharing = a.turn(b, now, sharing, int(left/least))
	}
	slices.SortStableFunc(sharing, func(x, y *holder) int { return cmp.Compare(x.needs, y.needs) })
	for i, h := range sharing {
		h.target = min(max(h.needs, least), left/int64(len(sharing)-i)/a.step()*a.step())
		left -= h.target
	}
	if a.over(b) {
		for _, h := range a.holders {
			h.target = 0
		}
	}
}

// over reports whether nodes have more of a lasting limit in use than there is.
func (a *account) over(b *Book) bool { return a.Lasting && a.free(b) < 0 }

// prompt is how soon a node must ask for what its turn gives it, or the turn goes on to the next.
const prompt = 5 * time.Second

// turn chooses the holders that have a turn.
func (a *account) turn(b *Book, now time.Duration, wanting []*holder, slots int) []*holder {
	for _, h := range wanting {
		length := b.turn
		if !h.used {
			length = prompt
		}
		if h.on && now-h.begun >= length {
			h.on, h.begun = false, now
		}
	}
	slices.SortStableFunc(wanting, func(x, y *holder) int {
		if x.on != y.on {
			return cmp.Compare(btoi(y.on), btoi(x.on))
		}
		return cmp.Compare(x.begun, y.begun)
	})
	for _, h := range wanting[:slots] {
		if !h.on {
			h.on, h.begun, h.used = true, now, h.counted > 0
		}
	}
	for _, h := range wanting[slots:] {
		h.on = false
	}
	return wanting[:slots]
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Nudges are the nodes that should ask now: others wait for what they have, there is something for them, or nobody may
// take any.
func (b *Book) Nudges(now time.Duration) (nodes []uint16) {
	for _, a := range b.limits {
		free, lacking := a.free(b), a.over(b)
		for _, h := range a.holders {
			lacking = lacking || h.target > h.counted
		}
		for _, h := range a.holders {
			more := h.target - h.counted
			if !lacking || more == 0 || more > max(free, 0) && free < a.Least() {
				continue
			}
			if k := b.askers[h.node]; k != nil && !k.pending && (k.nudged == 0 || now-k.nudged > prompt) {
				k.nudged = now
				nodes = append(nodes, h.node)
			}
		}
	}
	return nodes
}

// Changes gives what the engine may not have: how many units each node may hold, and its newest ask.
func (b *Book) Changes(yield func(limit string, node uint16, units int64, o term.Order)) {
	for _, a := range b.limits {
		for _, h := range a.holders {
			if h.unsure || h.counted != h.written {
				h.unsure, h.sent = true, h.counted
				yield(a.Name, h.node, h.counted, b.asker(h.node).newest)
			}
		}
	}
}

// Written notes that the engine has the newest changes.
func (b *Book) Written() {
	for _, a := range b.limits {
		for _, h := range a.holders {
			if h.unsure {
				h.written, h.unsure = h.sent, false
			}
		}
	}
}
