package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/mta/cluster/once"
)

// claims is the engine's table of keys.
type claims struct {
	rows        map[string]*once.Row
	incarnation map[uint16]uint64
}

// once carries out a call of a desk.
func (e *engine) once(c once.Call, reply func(once.Result)) {
	if e.away > 0 {
		return
	}
	r := once.Result{Number: c.Number, Forgotten: c.Node.Incarnation != e.incarnation[c.Node.Node]}
	r.Elsewhere = c.Timeline != e.origin.Timeline
	var undo []func()
	for i := range c.Parts {
		if r.Forgotten || r.Elsewhere {
			break
		}
		p := &c.Parts[i]
		was := e.claims.rows[p.Key]
		after, written := p.Apply(was, was != nil && was.Incarnation < e.incarnation[was.Node])
		if r.Rows = append(r.Rows, after); written {
			e.claim(p.Key, after)
			undo = append(undo, func() { e.claim(p.Key, was) })
		}
	}
	if len(undo) == 0 {
		reply(r)
		return
	}
	e.commit(func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}, func() { reply(r) })
}

func (e *engine) claim(key string, row *once.Row) {
	if row == nil {
		delete(e.claims.rows, key)
	} else {
		e.claims.rows[key] = row
	}
}

// left are the rows of a node that have no answer.
func (e *engine) left(node uint16, reply func([]once.Row)) {
	if e.away > 0 {
		return
	}
	var rows []once.Row
	for _, key := range slices.Sorted(maps.Keys(e.claims.rows)) {
		if r := e.claims.rows[key]; r.Node == node && !r.Done {
			rows = append(rows, *r)
		}
	}
	reply(rows)
}

// attempt is a client's request at a node.
type attempt struct {
	key   string
	tries int
}

// request has a client send a request with a key, and again when it gets no final answer.
func (r *run) request(key string, tries int) {
	n := r.nodes[r.w.rand.IntN(len(r.nodes))]
	a := &attempt{key, tries}
	gen := n.gen
	if !n.up || n.paused || n.ending || !n.listed {
		r.again(a)
		return
	}
	number, ok := n.desk.Ask(key, key)
	if !ok {
		r.again(a)
		return
	}
	n.asking[number] = a
	n.claim()
	r.w.after(10*time.Second, func() { // the client is gone
		if n.gen == gen && n.asking[number] == a {
			delete(n.asking, number)
			n.do(gen, func() { n.desk.Refused(number); n.claim() })
			r.again(a)
		}
	})
}

// again is what a client does after a 409 or 503.
func (r *run) again(a *attempt) {
	if a.tries > 0 {
		r.w.after(r.w.between(time.Second, time.Minute), func() { r.request(a.key, a.tries-1) })
	}
}

// claim makes the desk's next call.
func (n *node) claim() {
	c, ok := n.desk.Call(n.local())
	if !ok {
		return
	}
	gen := n.gen
	n.toEngine(n, func() {
		n.engine.once(c, func(r once.Result) {
			n.toEngine(n, func() {
				n.do(gen, func() {
					for _, d := range n.desk.Result(r) {
						n.decided(d)
					}
					n.claim()
				})
			})
		})
	})
}

// decided does with a request what the desk says.
func (n *node) decided(d once.Decision) {
	a := n.asking[d.Number]
	if a == nil {
		n.desk.Refused(d.Number)
		return
	}
	switch d.Outcome {
	case once.Fresh:
		gen := n.gen
		delete(n.asking, d.Number)
		n.w.after(n.w.between(time.Millisecond, 20*time.Millisecond), func() { n.do(gen, func() { n.accept(d, a) }) })
		return
	case once.Repeat:
		if n.judge.repeats++; d.Row.Note == half {
			n.goOn(d, a)
		}
	case once.Running:
		if owner := n.nodes[max(d.Row.Node, 1)-1]; d.Row.Node != 0 {
			n.pass(n, owner, func() { n.do2(owner, func() { owner.resolve(d.Row); owner.claim() }) })
		}
		n.again(a)
	default:
		n.again(a)
	}
	delete(n.asking, d.Number)
}

// accept makes the mail of a fresh request durable, or refuses it.
func (n *node) accept(d once.Decision, a *attempt) {
	if n.w.chance(.01) {
		n.desk.Refused(d.Number)
		n.again(a)
	} else {
		n.mails[a.key] = d.Row.Request
		n.judge.accept(a.key, n.id)
		if n.w.chance(.02) {
			n.halves[a.key] = true
			n.again(a)
		}
		n.desk.Accepted(d.Number, n.end(d.Row), time.Hour)
	}
	n.claim()
}

// half is the end of a request that was cut off half way.
const half = "half"

// end is how a request whose mail is here has ended.
func (n *node) end(row once.Row) string {
	if n.halves[row.Key] {
		return half
	}
	return fmt.Sprint(row.Request)
}

// goOn accepts the rest of a request at its node.
func (n *node) goOn(d once.Decision, a *attempt) {
	if d.Row.Node != n.id {
		n.again(a)
		return
	}
	if n.mails[a.key] != d.Row.Request {
		n.judge.fault("%s: node %d has no part of it", a.key, n.id)
	}
	delete(n.halves, a.key)
	d.Row.Note = n.end(d.Row)
	n.desk.Again(once.Part{Op: once.Settle, Row: d.Row, Keep: time.Hour})
}

func (n *node) resolve(row once.Row) {
	n.desk.Resolve(row, func(row once.Row) (string, time.Duration, bool) {
		return n.end(row), time.Hour, n.mails[row.Key] == row.Request
	})
}

// list has the process settle what earlier ones have left.
func (n *node) list() {
	if n.listed {
		n.claim()
		return
	}
	gen := n.gen
	n.toEngine(n, func() {
		n.engine.left(n.id, func(rows []once.Row) {
			n.toEngine(n, func() {
				n.do(gen, func() {
					n.listed = true
					for _, row := range rows {
						n.resolve(row)
					}
				})
			})
		})
	})
}

// keyed has clients send requests with keys, a third of them more than once.
func (r *run) keyed() {
	for i := range r.cfg.Keys {
		key := fmt.Sprintf("key-%d", i)
		at := r.w.between(0, r.cfg.Length)
		r.w.after(at, func() { r.request(key, 10) })
		if r.w.chance(.33) {
			for range 1 + r.w.rand.IntN(3) {
				gap := time.Duration(r.w.rand.ExpFloat64() * float64([]time.Duration{10 * time.Millisecond, time.Second,
					5 * time.Minute}[r.w.rand.IntN(3)]))
				r.w.after(at+gap, func() { r.request(key, 3) })
			}
		}
	}
}

// accept notes that a node has the mail of a key.
func (j *judge) accept(key string, node uint16) {
	if at, twice := j.mails[key]; twice {
		j.fault("%s: node %d accepts what node %d has accepted", key, node, at)
	}
	j.mails[key] = node
	j.accepted[key] = true
}

// lose notes that the mail of a node is lost.
func (j *judge) lose(node uint16) {
	maps.DeleteFunc(j.mails, func(_ string, at uint16) bool { return at == node })
}
