// Package ledger counts what all nodes send from a warming address, in hours and days of the engine's clock. An
// address's Book, at the owner of its shard, gives tokens in blocks; a node's Holder spends them.
//
// The rules, each with the failure that it prevents:
//
//   - A block is charged in the book before it is given, and whoever takes over reads only the charge: an open block
//     counts as sent.
//   - A token ends with its hour. Its holder counts the rest of that hour from the moment it asked, less drift.
//   - The hour is that of the engine's clock in the beat, which never goes back, and of the book: the later one. Some
//     seconds at each end stay unused, so that a standby whose clock differs opens no hour before the last one ended.
//   - A block that is given back counts once: in the newest ask of its holder, in its hour, at the owner that gave
//     it.
package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"example.org/mta/cluster/term"
)

// guard is how long at the begin and the end of an hour nothing is sent: twice as much as the clocks of the engine's
// machines may differ from the right time.
const guard = 4 * time.Second

// Plan says what an hour is and what it and a day may have. Days have 24 hours.
type Plan struct {
	Hour time.Duration
	Caps func(address, provider string) (hourly, daily int64) // provider "": of all together
}

func (p *Plan) hour(clock int64) int64 { return clock / int64(p.Hour) }

// left is how much of the hour can be used yet at a moment of the engine's clock.
func (p *Plan) left(hour, clock int64) time.Duration {
	if clock-hour*int64(p.Hour) < int64(guard) {
		return 0
	}
	return time.Duration((hour+1)*int64(p.Hour)-clock) - guard
}

// Count is what is charged, as the engine keeps it.
type Count struct{ Hour, Sent, Today int64 }

// Key names a count: of an address and a provider, or of all its providers.
type Key struct{ Address, Provider string }

// Item is what an ask carries about one key: what is wanted, and what is given back of the blocks of an hour.
type Item struct {
	Key
	Want, Back int64
	Hour       int64  // of Back
	Epoch      uint64 // of Back: under which it was given
}

// Grant is a block.
type Grant struct {
	Key
	Tokens, Hour int64
	Epoch        uint64
}

// Book is the owner's account of the addresses of one shard.
type Book struct {
	plan   *Plan
	epoch  uint64
	clock  int64
	counts map[Key]*count
	dirty  map[Key]*count
	out    map[block]int64
	newest map[uint16]term.Order
}

type count struct {
	Count
	sent bool // as it is now
}

type block struct {
	key  Key
	node uint16
	hour int64
}

// NewBook makes the book of an owner's epoch. clock is the engine's when it took the shard.
func NewBook(p *Plan, epoch uint64, clock int64) *Book {
	return &Book{plan: p, epoch: epoch, clock: clock, counts: make(map[Key]*count), dirty: make(map[Key]*count),
		out: make(map[block]int64), newest: make(map[uint16]term.Order)}
}

// Load takes in a line of the book.
func (b *Book) Load(k Key, c Count) error {
	if c.Hour < 0 || c.Sent < 0 || c.Today < c.Sent {
		return fmt.Errorf("the ledger of %s, %s has %d in hour %d and %d in its day", k.Address, k.Provider, c.Sent,
			c.Hour, c.Today)
	}
	b.counts[k] = &count{Count: c}
	b.clock = max(b.clock, c.Hour*int64(b.plan.Hour))
	return nil
}

// Clock sets the engine's clock as of the newest acknowledged beat.
func (b *Book) Clock(now int64) {
	if b.plan.hour(now) > b.plan.hour(b.clock) {
		clear(b.out)
	}
	b.clock = max(b.clock, now)
}

// count gives a count with its windows as of now.
func (b *Book) count(k Key) *count {
	c := b.counts[k]
	if c == nil {
		c = &count{}
		b.counts[k] = c
	}
	if h := b.plan.hour(b.clock); h > c.Hour {
		if h/24 > c.Hour/24 {
			c.Today = 0
		}
		c.Hour, c.Sent = h, 0
	}
	return c
}

func (b *Book) charge(k Key, n int64) {
	for _, k := range []Key{k, {k.Address, ""}} {
		c := b.count(k)
		c.Sent += n
		c.Today += n
		c.sent, b.dirty[k] = false, c
	}
}

// Give takes in an ask and returns the blocks for it, which may leave only when the engine has the changes of the
// book. An ask that is not newer than another of its node gives nothing back and gets nothing.
func (b *Book) Give(node uint16, o term.Order, items []Item) (grants []Grant, err error) {
	if !o.After(b.newest[node]) {
		return nil, nil
	}
	b.newest[node] = o
	hour := b.plan.hour(b.clock)
	open := b.plan.left(hour, b.clock) > 0
	for _, i := range items {
		if i.Want < 0 || i.Back < 0 || i.Provider == "" {
			return grants, fmt.Errorf("node %d asks for %d tokens of %s, %s, with %d", node, i.Want, i.Address,
				i.Provider, i.Back)
		}
		at := block{i.Key, node, hour}
		if i.Hour == hour && i.Epoch == b.epoch {
			if back := min(i.Back, b.out[at]); back > 0 {
				b.out[at] -= back
				b.charge(i.Key, -back)
			}
		}
		n := b.room(i.Key)
		if n = min(i.Want, max(1, n/8), n); n <= 0 || !open {
			continue
		}
		b.out[at] += n
		b.charge(i.Key, n)
		grants = append(grants, Grant{i.Key, n, hour, b.epoch})
	}
	return grants, nil
}

// room is what the caps leave. It makes no counts, as a member can ask for any names.
func (b *Book) room(k Key) int64 {
	n := int64(1 << 62)
	for _, k := range []Key{k, {k.Address, ""}} {
		c := &count{}
		if b.counts[k] != nil {
			c = b.count(k)
		}
		hourly, daily := b.plan.Caps(k.Address, k.Provider)
		n = min(n, hourly-c.Sent, daily-c.Today)
	}
	return max(0, n)
}

// Changes gives what the engine may not have, sorted.
func (b *Book) Changes(yield func(Key, Count)) {
	keys := make([]Key, 0, len(b.dirty))
	for k := range b.dirty {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y Key) int {
		return cmp.Or(cmp.Compare(x.Address, y.Address), cmp.Compare(x.Provider, y.Provider))
	})
	for _, k := range keys {
		b.dirty[k].sent = true
		yield(k, b.dirty[k].Count)
	}
}

// Written notes that the engine has the newest changes. What was charged since then stays changed.
func (b *Book) Written() {
	for k, c := range b.dirty {
		if c.sent {
			delete(b.dirty, k)
		}
	}
}
