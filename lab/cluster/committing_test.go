package cluster

import (
	"maps"
	"slices"
	"time"

	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
)

// engine behaves as PostgreSQL with one synchronous standby does. A commit is acknowledged when the standby has it, and
// readers see it before. A failover loses what the standby lacks.
type engine struct {
	w       *world
	origin  owner.Origin
	rows    [owner.Shards]row
	offset  time.Duration // of its clock
	away    int           // outages under way
	lagging bool          // the standby gets nothing
	pending []commit      // what the standby lacks, in order
	past    []commit      // of the last seconds, for a failover that loses them
	keep    time.Duration
	epoch   int // of failovers: what was on its way before one is lost
	claims
	reserves map[uint16]*owner.Reserve
	off      map[uint16]uint64 // machines that were confirmed to be off, with the first incarnation that is not
}

type row struct {
	owner.Head
	book map[entryKey]owner.Entry
}

type entryKey struct {
	name string
	node uint16
}

type commit struct {
	at   time.Duration
	undo func()
	ack  func()
}

func newEngine(w *world) *engine {
	e := &engine{w: w, origin: owner.Origin{System: 7, Timeline: 1}}
	e.reserves, e.off = make(map[uint16]*owner.Reserve), make(map[uint16]uint64)
	e.claims = claims{make(map[string]*once.Row), make(map[uint16]uint64)}
	for s := range e.rows {
		e.rows[s].book = make(map[entryKey]owner.Entry)
	}
	return e
}

func (e *engine) clock() int64 { return int64(time.Hour + e.w.now + e.offset) }

// commit carries out a transaction that has just been done, and has ack run when the standby has it.
func (e *engine) commit(undo, ack func()) {
	e.pending = append(e.pending, commit{e.w.now, undo, ack})
	if !e.lagging {
		epoch := e.epoch
		e.w.after(e.w.between(time.Millisecond, 4*time.Millisecond), func() { e.replicate(epoch) })
	}
}

// replicate acknowledges all that waits.
func (e *engine) replicate(epoch int) {
	if e.lagging || epoch != e.epoch {
		return
	}
	done := e.pending
	e.pending = nil
	for _, c := range done {
		if c.ack != nil {
			c.ack()
		}
	}
	if e.keep > 0 {
		e.past = append(e.past, done...)
		for len(e.past) > 0 && e.past[0].at < e.w.now-e.keep {
			e.past = e.past[1:]
		}
	}
}

// lag has the standby get nothing for a while.
func (e *engine) lag(d time.Duration) {
	e.lagging = true
	e.w.after(d, func() {
		e.lagging = false
		e.replicate(e.epoch)
	})
}

// outage has the engine gone for a while.
func (e *engine) outage(d time.Duration) {
	e.away++
	e.w.after(d, func() { e.away-- })
}

// failover promotes the standby. It has all acknowledged commits, or lacks those of the last seconds, too.
func (e *engine) failover(safe bool, away time.Duration) {
	lost := e.pending
	if !safe {
		lost = append(e.past, lost...)
	}
	for i := len(lost) - 1; i >= 0; i-- {
		lost[i].undo()
	}
	e.pending, e.past, e.lagging = nil, nil, false
	e.epoch++
	e.origin.Timeline++
	e.offset = e.w.between(-2*time.Second, 2*time.Second)
	e.outage(away)
}

// shards carries out a call of a keeper.
func (e *engine) shards(c owner.Call, reply func(owner.Result)) {
	if e.away > 0 {
		return
	}
	r := owner.Result{Number: c.Number, Origin: e.origin, Heads: new([owner.Shards]owner.Head),
		Books: make(map[int][]owner.Entry)}
	var undo []func()
	if u := e.wish(c.Wish); u != nil {
		undo = append(undo, u)
	}
	for i := range c.Parts {
		p := &c.Parts[i]
		fits := p.Fits(e.rows[p.Shard].Head)
		if r.Done = append(r.Done, fits); fits {
			undo = append(undo, e.write(p))
			if p.Take {
				r.Books[p.Shard] = e.rows[p.Shard].entries()
			}
		}
	}
	for s := range e.rows {
		r.Heads[s] = e.rows[s].Head
	}
	for _, node := range slices.Sorted(maps.Keys(e.reserves)) {
		if !c.Reserves {
			break
		}
		r.Reserves = append(r.Reserves, *e.reserves[node])
	}
	if len(undo) == 0 {
		reply(r) // nothing written: a read doesn't wait for the standby
		return
	}
	e.commit(func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}, func() { reply(r) })
}

// wish carries out a wish, and returns what undoes it; nil: nothing was done.
func (e *engine) wish(w *owner.Wish) func() {
	if w == nil || e.incarnation[w.Node] != w.Order.Incarnation {
		return nil
	}
	was := e.reserves[w.Node]
	var others []owner.Reserve
	for _, r := range e.reserves {
		if r.Node != w.Node {
			others = append(others, *r)
		}
	}
	after, done := w.Apply(was, others, false)
	if !done {
		return nil
	}
	e.reserve(w.Node, after)
	return func() { e.reserve(w.Node, was) }
}

func (e *engine) reserve(node uint16, r *owner.Reserve) {
	if r == nil {
		delete(e.reserves, node)
	} else {
		e.reserves[node] = r
	}
}

// forget has a node begin anew whose machine is known to be off.
func (e *engine) forget(node uint16, incarnation uint64) {
	if e.incarnation[node] != incarnation {
		delete(e.reserves, node)
	}
	e.incarnation[node] = incarnation
}

// dead has an operator confirm that a node's machine is off: what it had before an incarnation is free at once.
func (e *engine) dead(node uint16, incarnation uint64) {
	if e.away > 0 {
		return
	}
	e.forget(node, incarnation)
	e.off[node] = incarnation
	was := e.rows
	for s := range e.rows {
		if h := &e.rows[s].Head; h.Node == node && h.Incarnation < incarnation {
			h.Node, h.Incarnation, h.Boot, h.Beat = 0, 0, 0, h.Beat+1
		}
	}
	e.commit(func() {
		for s := range e.rows {
			e.rows[s].Head = was[s].Head
		}
	}, nil)
}

// write does a part, and returns what undoes it.
func (e *engine) write(p *owner.Part) func() {
	row := &e.rows[p.Shard]
	head := row.Head
	row.Head = p.To
	row.Clock = max(head.Clock, e.clock())
	old := make([]owner.Entry, 0, len(p.Changes))
	for _, c := range p.Changes {
		k := entryKey{c.Name, c.Node}
		was := row.book[k]
		was.Name, was.Node = c.Name, c.Node
		old = append(old, was)
		row.put(c)
	}
	return func() {
		row.Head = head
		for _, c := range old {
			row.put(c)
		}
	}
}

func (r *row) put(c owner.Entry) {
	k := entryKey{c.Name, c.Node}
	if c.Zero() {
		delete(r.book, k)
	} else {
		r.book[k] = c
	}
}

func (r *row) entries() []owner.Entry {
	all := make([]owner.Entry, 0, len(r.book))
	for _, c := range r.book {
		all = append(all, c)
	}
	return all
}
