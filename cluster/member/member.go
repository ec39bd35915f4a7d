// Package member is one node's part in a cluster: it keeps its shards, answers what others ask of these, and asks the
// owners of the others. It is arithmetic on messages and moments; its caller has the network, the engine and the clock.
//
// What a round decides leaves only when the engine has acknowledged the call that carries it.
package member

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
)

// Config is a node's.
type Config struct {
	Node        uint16
	Incarnation uint64
	Boot        uint64
	Process     uint64 // larger than that of all earlier processes of the incarnation
	Term        term.Term
	Turn        time.Duration
	Rand        *rand.Rand
	Memory      owner.Memory
	Reserve     bool // after a loss of the engine this node goes on, by a fixed part of each limit
}

// Message goes from one node to another. It has one of an ask, an answer and a nudge.
type Message struct {
	From, To uint16
	Via      uint16 `json:",omitempty"` // the member that passes an ask or answer on; 0: none
	Shard    int
	Ask      *Ask
	Answer   *Answer
	Nudge    bool
}

// Ask carries all that a node holds and wants of a shard.
type Ask struct {
	Order  term.Order
	Known  owner.Mark
	Shares []share.Item
}

// Answer is that to an ask.
type Answer struct {
	Order  term.Order
	Mark   owner.Mark
	Shares []share.Grant
}

// Member is one process of a node.
type Member struct {
	cfg     Config
	keeper  *owner.Keeper
	owned   [owner.Shards]*owned
	holders [owner.Shards]*holding
	routes  map[uint16]uint16 // by owners that do not answer directly: through whom each is asked, too
	members []uint16
	off     map[uint16]uint64
	fault   func(error)
}

// owned is what an owner has of a shard.
type owned struct {
	shares *share.Book
	asks   []Message // since the last round
	round  []Message // answers that wait for the call to be acknowledged
}

// holding is what every node has of a shard.
type holding struct {
	shares *share.Holder
	owner  uint16
	epoch  uint64        // of the row, when owner was read
	since  time.Duration // when those had been read first
	asked  uint16        // the node that has the newest ask
	via    uint16        // through whom it was asked, too
}

// New makes the member of a process that has just begun. fault is given what others sent and is refused.
func New(cfg Config, fault func(error)) *Member {
	m := &Member{cfg: cfg, fault: fault, routes: make(map[uint16]uint16), keeper: owner.New(owner.Config{Node: cfg.Node,
		Incarnation: cfg.Incarnation, Boot: cfg.Boot, Process: cfg.Process, Reserve: cfg.Reserve, Term: cfg.Term,
		Rand: cfg.Rand, Memory: cfg.Memory})}
	first := term.Order{Incarnation: cfg.Incarnation, Process: cfg.Process}
	for s := range m.holders {
		m.holders[s] = &holding{shares: share.NewHolder(cfg.Term, first)}
	}
	return m
}

// Shard is the one of a limit.
func Shard(name string) int {
	h := uint32(2166136261) // FNV-1a
	for i := range len(name) {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int(h % owner.Shards)
}

// Keeper has this node's shards.
func (m *Member) Keeper() *owner.Keeper { return m.keeper }

// Shares is what this node has of the limits of a shard.
func (m *Member) Shares(shard int) *share.Holder { return m.holders[shard].shares }

// Moved reports whether what this node may use of limits has changed since Moved was called last.
func (m *Member) Moved() (moved bool) {
	for _, h := range m.holders {
		moved = h.shares.Moved() || moved
	}
	return moved
}

// Members notes which nodes there are, this one among them; none: that is not known. off is as of share.Book.Census.
func (m *Member) Members(all []uint16, off map[uint16]uint64) { m.members, m.off = all, off }

// Call closes a round, if no call is on its way: it answers all asks so far and makes the call that carries the
// answers.
func (m *Member) Call(now time.Duration) (owner.Call, bool) {
	c, due := m.keeper.Call(now, func(shard int) []owner.Entry { return m.close(now, shard) })
	m.reserve(now)
	return c, due
}

// reserve has the holders know what this node may use after a loss of the engine.
func (m *Member) reserve(now time.Duration) {
	divisor, from := m.keeper.Reserve()
	for _, h := range m.holders {
		h.shares.Reserve(now, divisor, from)
	}
}

// close decides a round of a shard and returns what the engine must have before anybody gets to know.
func (m *Member) close(now time.Duration, shard int) (entries []owner.Entry) {
	o := m.owned[shard]
	o.round = o.round[:0]
	if rest, known := m.keeper.Rest(now); known {
		o.shares.Keep(now, rest)
		o.shares.Census(m.members, m.off)
		o.decide(now)
	}
	o.shares.Changes(func(limit string, node uint16, units int64, o term.Order) {
		n := [4]int64{units, 0, 0, 0}
		if units > 0 {
			n = [4]int64{units, int64(o.Incarnation), int64(o.Process), int64(o.Seq)}
		}
		entries = append(entries, owner.Entry{Name: limit, Node: node, N: n})
	})
	return entries
}

// decide answers asks with the call that is about to be made.
func (o *owned) decide(now time.Duration) {
	grants, asks := o.shares.Round(now), o.asks
	o.asks = o.asks[:0]
	for _, a := range asks {
		shares, answered := grants[a.From]
		if !answered {
			if o.shares.Pending(a.From) {
				o.asks = append(o.asks, a)
			}
			continue
		}
		o.round = append(o.round, Message{From: a.To, To: a.From, Via: a.Via, Shard: a.Shard,
			Answer: &Answer{Order: a.Ask.Order, Shares: shares}})
	}
}

// Result takes in the engine's answer to a call, and gives the answers that may leave now.
func (m *Member) Result(now time.Duration, r owner.Result, send func(Message)) {
	e := m.keeper.Result(now, r)
	m.reserve(now)
	for _, o := range m.owned {
		if e.Used && o != nil {
			o.shares.Empty(now)
		}
	}
	for _, s := range e.Acked {
		o := m.owned[s]
		if o.shares.Written(); e.Hold {
			o.round = o.round[:0]
		}
		for _, a := range o.round {
			a.Answer.Mark = m.keeper.Mark(s)
			send(a)
		}
		for _, node := range o.shares.Nudges(now) {
			send(Message{From: m.cfg.Node, To: node, Shard: s, Nudge: true})
		}
		o.round = o.round[:0]
	}
	for _, t := range e.Taken {
		m.take(now, t)
	}
	for _, s := range e.Gone {
		m.owned[s] = nil
	}
	if e.Heads != nil {
		for s, h := range m.holders { // a book that has begun knows what is in use when all have asked
			if owner, epoch := e.Heads[s].Decides(), e.Heads[s].Epoch; owner != h.owner || epoch != h.epoch {
				h.owner, h.epoch, h.since = owner, epoch, now
				h.shares.Nudge()
			}
		}
	}
}

// Lose and Reset are those of the keeper.
func (m *Member) Lose(err error) {
	m.keeper.Lose(err)
	m.owned = [owner.Shards]*owned{}
	m.reserve(0)
}

func (m *Member) Reset(number uint64) {
	m.keeper.Reset(number)
	m.owned = [owner.Shards]*owned{}
	m.reserve(0)
}

// take begins the books of a shard that this node owns now.
func (m *Member) take(now time.Duration, t owner.Taken) {
	o := &owned{shares: share.NewBook(now, m.cfg.Term, m.cfg.Turn)}
	for _, e := range t.Book {
		if err := o.shares.Load(now, e.Name, e.Node, e.N[0], term.Order{Incarnation: uint64(e.N[1]),
			Process: uint64(e.N[2]), Seq: uint64(e.N[3])}, t.Silent); err != nil {
			m.fault(fmt.Errorf("a row of shard %d in mta_cluster.books: %w", t.Shard, err))
		}
	}
	m.owned[t.Shard] = o
}

func (m *Member) complain(err error) {
	if err != nil {
		m.fault(err)
	}
}

// Asks gives the asks that are due.
func (m *Member) Asks(now time.Duration, send func(Message)) {
	for s, h := range m.holders {
		if h.owner != 0 && h.shares.Due(now) {
			m.newAsk(now, s, send)
		}
	}
}

// Unanswered is for how long another node has not answered what this one has asked it, the longest of all.
func (m *Member) Unanswered(now time.Duration) (node uint16, longest time.Duration) {
	for _, h := range m.holders {
		if d := min(h.shares.Unanswered(now), now-h.since); d > longest && h.owner != m.cfg.Node && h.owner != 0 {
			node, longest = h.owner, d
		}
	}
	return node, longest
}

// newAsk asks the owner of a shard: directly, so that its answer shows when it is in reach again, and through another
// member if it has not answered.
func (m *Member) newAsk(now time.Duration, shard int, send func(Message)) {
	h := m.holders[shard]
	if h.shares.Unanswered(now) > 0 && h.owner != m.cfg.Node && m.routes[h.owner] == h.via {
		m.routes[h.owner] = m.other(h.owner, h.via)
	}
	order, items := h.shares.Ask(now)
	h.asked, h.via = h.owner, m.routes[h.owner]
	msg := Message{From: m.cfg.Node, To: h.owner, Shard: shard, Ask: &Ask{Order: order, Known: m.keeper.Mark(shard),
		Shares: items}}
	if send(msg); h.via != 0 {
		msg.Via = h.via
		send(msg)
	}
}

// other is a member, by chance, to ask a node through: not the last one if there are more; 0: none.
func (m *Member) other(node, last uint16) uint16 {
	all := slices.DeleteFunc(slices.Clone(m.members), func(n uint16) bool { return n == node || n == m.cfg.Node })
	if len(all) > 1 {
		all = slices.DeleteFunc(all, func(n uint16) bool { return n == last })
	}
	if len(all) == 0 {
		return 0
	}
	return all[m.cfg.Rand.IntN(len(all))]
}

// Leave gives up all that this node has: asks report it to the owners, and the next call hands its shards over, with
// what those asks have changed in their books. Connections that are open yet are given up as they end.
func (m *Member) Leave(now time.Duration, send func(Message)) {
	m.keeper.Leave()
	m.reserve(now)
	for s, h := range m.holders {
		if h.shares.Leave() && h.owner != 0 {
			m.newAsk(now, s, send)
		}
	}
}

// Receive takes in a message from another node, or from this one.
func (m *Member) Receive(now time.Duration, msg Message) {
	if msg.Shard < 0 || msg.Shard >= owner.Shards {
		m.fault(fmt.Errorf("node %d names shard %d", msg.From, msg.Shard))
		return
	}
	h := m.holders[msg.Shard]
	switch {
	case msg.Nudge:
		h.shares.Nudge()
	case msg.Ask != nil:
		m.ask(now, msg)
	case msg.Answer != nil:
		awaited := h.shares.Awaits(msg.Answer.Order)
		if msg.From != h.asked && awaited { // its mark could have this node halt
			m.fault(fmt.Errorf("node %d answers for shard %d, which node %d was asked for", msg.From, msg.Shard,
				h.asked))
			return
		}
		if msg.Via != 0 && msg.Via != h.via && awaited {
			m.fault(fmt.Errorf("node %d passes on an answer for shard %d, and was not asked to", msg.Via, msg.Shard))
			return
		}
		if a := msg.Answer; h.shares.Answer(now, a.Order, a.Shares) {
			if m.keeper.Granted(msg.Shard, a.Mark); msg.Via == 0 {
				delete(m.routes, msg.From)
			}
		}
	}
}

// ask keeps an ask for the next round. Who knows of a later beat than this owner has sent has met a row that the engine
// has lost since: that asker halts by itself, and gets nothing here.
func (m *Member) ask(now time.Duration, msg Message) {
	o := m.owned[msg.Shard]
	if o == nil {
		return
	}
	acked := owner.Mark{Epoch: m.keeper.Epoch(msg.Shard), Beat: m.keeper.Acked(msg.Shard)}
	if acked.Before(msg.Ask.Known) {
		m.fault(fmt.Errorf("node %d knows shard %d at %v, and its row is at %v", msg.From, msg.Shard, msg.Ask.Known,
			acked))
		return
	}
	m.complain(o.shares.Hear(now, msg.From, msg.Ask.Order, msg.Ask.Shares))
	o.asks = slices.DeleteFunc(o.asks, func(a Message) bool {
		return a.From == msg.From && msg.Ask.Order.After(a.Ask.Order)
	})
	if !slices.ContainsFunc(o.asks, func(a Message) bool { // each way of an ask has its own answer
		return a.From == msg.From && (a.Via == 0) == (msg.Via == 0)
	}) {
		o.asks = append(o.asks, msg)
	}
}

// Owned are the shards of this node.
func (m *Member) Owned() []int {
	var shards []int
	for s, o := range m.owned {
		if o != nil {
			shards = append(shards, s)
		}
	}
	return shards
}

// Differences are the limits of this node's shards that nodes have had by several definitions for so long.
func (m *Member) Differences(now, long time.Duration) (all []share.Difference) {
	for _, o := range m.owned {
		if o != nil {
			all = append(all, o.shares.Differences(now, long)...)
		}
	}
	return all
}
