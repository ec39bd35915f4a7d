package share

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/cluster/term"
)

// Book is the owner's account of the limits of one shard.
type Book struct {
	term   term.Term
	turn   time.Duration
	limits []*account // by name
	askers map[uint16]*asker
}

// asker is a node that has asked.
type asker struct {
	newest  term.Order
	pending bool          // the next round answers, or a later one
	until   time.Duration // when it answers at the latest
	nudged  time.Duration
	moved   bool // the round has something for it
	lacks   bool // and it waits for something else
}

// standing is how long an ask may wait for what it wants: so long that units which others give up reach it in the round
// in which they become free.
const standing = 1500 * time.Millisecond

// account is one limit's.
type account struct {
	Limit
	holders []*holder // by node
	spare   bucket    // of the units that nobody can hold
}

// holder is a node's part of a limit.
type holder struct {
	node    uint16
	held    int64 // what it reported last
	counted int64 // what it may hold at most: that, or what it was answered since
	want    int64
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
func NewBook(now time.Duration, t term.Term, turn time.Duration, limits []Limit) *Book {
	b := &Book{term: t, turn: turn, askers: make(map[uint16]*asker)}
	for _, l := range limits {
		b.limits = append(b.limits, &account{Limit: l, spare: bucket{at: now}})
	}
	slices.SortFunc(b.limits, func(x, y *account) int { return cmp.Compare(x.Name, y.Name) })
	return b
}

func (b *Book) account(name string) *account {
	i, ok := slices.BinarySearchFunc(b.limits, name, func(a *account, n string) int { return cmp.Compare(a.Name, n) })
	if !ok {
		return nil
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

// free is how many units nobody can hold.
func (a *account) free() int64 {
	n := a.Units()
	for _, h := range a.holders {
		n -= h.counted
	}
	return n
}

// Load takes in a line of the book as another process left it: a node may hold so many units, given for an ask, until
// it reports with a newer one or a term has passed. ended: the term has passed.
func (b *Book) Load(now time.Duration, limit string, node uint16, units int64, o term.Order, ended bool) error {
	a := b.account(limit)
	if a == nil {
		return nil // it is not shared any more
	}
	if units < 0 || units > a.Units() {
		return fmt.Errorf("the book of limit %q gives node %d %d units of %d", limit, node, units, a.Units())
	}
	h := a.holder(node, now)
	h.written, h.unsure, h.until = units, true, now+b.term.Waits()
	if !ended {
		h.counted = units
	}
	if k := b.asker(node); o.After(k.newest) {
		k.newest = o
	}
	return nil
}

// Hear takes in an ask, which a round answers: the next one if it is urgent. One that is not newer than another of its
// node is left alone.
func (b *Book) Hear(now time.Duration, node uint16, o term.Order, items []Item, urgent bool) error {
	if k := b.askers[node]; k != nil && !o.After(k.newest) {
		return nil
	}
	if err := b.check(node, items); err != nil {
		return err
	}
	k := b.asker(node)
	k.newest, k.pending, k.until = o, true, now+standing
	if urgent {
		k.until = now
	}
	for _, a := range b.limits {
		var item Item
		if i := slices.IndexFunc(items, func(i Item) bool { return i.Limit == a.Name }); i >= 0 {
			item = items[i]
		} else if _, ok := a.find(node); !ok {
			continue
		}
		a.spare.fill(now, &a.Limit, a.free(), b.term.Drift)
		a.spare.content += item.Content
		h := a.holder(node, now)
		if h.want == 0 && item.Want > 0 {
			h.on, h.begun = false, now
		}
		h.held, h.counted, h.want, h.until = item.Held, item.Held, min(item.Want, a.Units()), now+b.term.Waits()
	}
	return nil
}

// check finds items that no holder of this book can send.
func (b *Book) check(node uint16, items []Item) error {
	if len(items) > len(b.limits) {
		return fmt.Errorf("node %d asks for %d limits of %d", node, len(items), len(b.limits))
	}
	for _, i := range items {
		a := b.account(i.Limit)
		if a == nil {
			return fmt.Errorf("node %d asks for %q, which is not a shared limit", node, i.Limit)
		}
		var counted int64
		if at, ok := a.find(node); ok {
			counted = a.holders[at].counted
		}
		if i.Held < 0 || i.Held > counted || i.Want < 0 || !(i.Content >= 0 && i.Content <= float64(a.Burst)) {
			return fmt.Errorf("node %d asks for %d units of limit %q with %d and %g events, and was given %d", node,
				i.Want, i.Limit, i.Held, i.Content, counted)
		}
	}
	return nil
}

// Pending reports whether the newest ask of a node waits for a round.
func (b *Book) Pending(node uint16) bool {
	k := b.askers[node]
	return k != nil && k.pending
}

// Round answers asks. The answers may leave only when the engine has the changes of the book.
func (b *Book) Round(now time.Duration) map[uint16][]Grant {
	answers := make(map[uint16][]Grant)
	for node, k := range b.askers {
		if k.moved, k.lacks = false, false; k.pending {
			answers[node] = nil
		}
	}
	for _, a := range b.limits {
		a.expire(b, now)
		a.divide(b, now)
		free := a.free()
		for _, h := range a.holders {
			k := b.asker(h.node)
			if !k.pending {
				continue
			}
			g := Grant{a.Name, h.held, 0}
			switch raised := min(h.target, h.held+free); {
			case h.target <= h.held:
				g.Units = h.target
			case raised > h.held && raised >= a.Least():
				g.Units, g.Content = raised, a.spare.part(raised-h.held, free)
				free -= raised - h.held
				h.counted, h.unsure = raised, true // so that the next book knows which ask it was for
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

// expire frees what was granted to nodes that have not been heard of for a term.
func (a *account) expire(b *Book, now time.Duration) {
	a.spare.fill(now, &a.Limit, a.free(), b.term.Drift)
	for _, h := range a.holders {
		if now >= h.until {
			h.counted, h.held, h.want, h.on = 0, 0, 0, false
		}
	}
	a.holders = slices.DeleteFunc(a.holders, func(h *holder) bool {
		return h.counted == 0 && h.want == 0 && h.written == 0 && !h.unsure
	})
}

// divide sets the target of each holder: max-min by want, or turns where the limit is too small.
func (a *account) divide(b *Book, now time.Duration) {
	least, left := a.Least(), a.Units()
	var sharing []*holder
	for _, h := range a.holders {
		if h.target = 0; h.want > 0 {
			sharing = append(sharing, h)
		}
	}
	if int64(len(sharing))*least > left {
		sharing = a.turn(b, now, sharing, int(left/least))
	}
	slices.SortStableFunc(sharing, func(x, y *holder) int { return cmp.Compare(x.want, y.want) })
	for i, h := range sharing {
		h.target = min(max(h.want, least), left/int64(len(sharing)-i))
		left -= h.target
	}
}

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

// Nudges are the nodes that should ask now: others wait for what they have, or there is something for them.
func (b *Book) Nudges(now time.Duration) (nodes []uint16) {
	for _, a := range b.limits {
		free, lacking := a.free(), false
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
