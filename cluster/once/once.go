// Package once has a request with an Idempotency-Key accepted by one node of a cluster. The engine keeps a row for each
// key; a node's Desk claims it before the request is accepted.
//
// The rules, each with the failure that it prevents:
//
//   - A request is accepted when the call that claims its key was acknowledged. One of unknown outcome is made again,
//     and writes again: a row that a reader sees may not outlive a failover.
//   - A row belongs to one request of one process of one incarnation. Late and repeated calls of others change nothing.
//   - A refused request releases its claim, again and again until that is acknowledged.
//   - A row whose request is not open at its node is settled there, by what the node's queue has: accepted or released.
//     So a crash between claim and acceptance, and a claim that arrives after its release, keep no key.
//   - A settled row is kept for the time that its node names, by the engine's clock, and any node may drop it then. One
//     that is not settled is never dropped, however long its node is away: its mail may be in the queue there.
//   - A call does nothing on another timeline than the one on which this node last found all that it had written, so
//     that claims which a failover lost are not given again before that is noticed.
//   - A forgotten node's rows are free, since its mail is lost; its late writes are refused, by its incarnation.
package once

import (
	"cmp"
	"slices"
	"time"
)

// Request names a request in the cluster.
type Request struct {
	Node                         uint16
	Incarnation, Process, Number uint64
}

// Row is what the engine has of a key.
type Row struct {
	Key string
	Request
	Done bool
	Note string // what its node has noted: with the claim, and, when Done, how it has ended
}

// Op is what a call does to the row of a key.
type Op uint8

const (
	Claim   Op = iota // insert, unless there is a row of another request; replace that of a forgotten node
	Settle            // note how it has ended, in a row of this request
	Release           // delete a row of this request
)

// Part is one of a call's operations.
type Part struct {
	Op
	Row
	Keep time.Duration // of Settle: for how long the row is kept from now on, by the engine's clock
}

// Apply is what the statement does to a row, nil for none, and whether it writes: a repeated one does. forgotten: the
// row's node has a later incarnation now. A call of a node with a later incarnation changes nothing at all.
func (p *Part) Apply(row *Row, forgotten bool) (after *Row, written bool) {
	mine := row != nil && row.Request == p.Request
	switch {
	case p.Op == Claim && (row == nil || forgotten && !mine):
		return &Row{Key: p.Key, Request: p.Request, Note: p.Note}, true
	case p.Op == Claim && mine:
		return row, true
	case p.Op == Settle && mine:
		return &Row{p.Key, p.Request, true, p.Note}, true
	case p.Op == Release && mine:
		return nil, true
	}
	return row, false
}

// Call is one statement, and a transaction.
type Call struct {
	Number   uint64
	Node     Request // of the process, without a number
	Timeline uint64
	Parts    []Part
}

// Result is the engine's answer to a call: for each part the row after it, nil for none.
type Result struct {
	Number    uint64
	Rows      []*Row
	Forgotten bool  // the node's incarnation has ended, and nothing was done
	Elsewhere bool  // the timeline is another, and nothing was done
	Fault     error // what of the rows names no node: they have node 0
}

// Outcome is what becomes of a request.
type Outcome uint8

const (
	Fresh   Outcome = iota // it may be accepted
	Repeat                 // it was accepted before: Row has its end
	Running                // its key is claimed by Row's request; that node settles it, if it is not open there
	Refuse                 // this node was forgotten
)

// Decision is the outcome of a request.
type Decision struct {
	Number uint64
	Outcome
	Row Row
}

// Limits of a desk.
const (
	patience = 3 * time.Second // after which a call without a result is made again
	most     = 500             // parts of a call
	octets   = 4 << 20         // of its notes, unless it has one part
)

// Desk is one process's.
type Desk struct {
	me      Request
	line    uint64 // the timeline
	open    map[uint64]*request
	keys    map[string]uint64 // of open requests
	pending []*request
	call    Call
	busy    bool
	sent    time.Duration
}

// request is one that is open here, or a row that is settled here.
type request struct {
	Part
	own bool // of this process
}

// New makes the desk of a process.
func New(node uint16, incarnation, process uint64) *Desk {
	return &Desk{me: Request{Node: node, Incarnation: incarnation, Process: process}, open: make(map[uint64]*request),
		keys: make(map[string]uint64)}
}

// Verified names the timeline on which all that this node has written was found; 0: none, as some is lost.
func (d *Desk) Verified(timeline uint64) { d.line = timeline }

// Ask begins a request and returns its number. One whose key is open at this node is running: it gets none.
func (d *Desk) Ask(key, note string) (number uint64, ok bool) {
	if _, open := d.keys[key]; open {
		return 0, false
	}
	d.me.Number++
	r := &request{Part{Op: Claim, Row: Row{Key: key, Request: d.me, Note: note}}, true}
	d.open[d.me.Number], d.keys[key] = r, d.me.Number
	d.pending = append(d.pending, r)
	return d.me.Number, true
}

// Pending is how much the engine has yet to be asked, or to answer.
func (d *Desk) Pending() int { return len(d.pending) }

// Accepted notes how a fresh request has ended, when its mail is durable, and for how long that is kept.
func (d *Desk) Accepted(number uint64, note string, keep time.Duration) {
	d.finish(number, Settle, note, keep)
}

// Refused gives up the claim of a request, whatever became of it so far.
func (d *Desk) Refused(number uint64) { d.finish(number, Release, "", 0) }

func (d *Desk) finish(number uint64, op Op, note string, keep time.Duration) {
	r := d.open[number]
	if r == nil {
		return
	}
	r.Op, r.Note, r.Keep = op, note, keep
	if !slices.Contains(d.pending, r) {
		d.pending = append(d.pending, r)
	}
}

// Again has a row of this node that was settled before settled anew, or released: its request went on here.
func (d *Desk) Again(p Part) { d.pending = append(d.pending, &request{p, false}) }

// Resolve settles a row of this node that an earlier process left, or that came late; mail returns how the request of a
// row has ended when the node has its mail. It is called with each row at the start, and when another node meets one.
func (d *Desk) Resolve(row Row, mail func(Row) (note string, keep time.Duration, ok bool)) {
	if row.Done || row.Node != d.me.Node || row.Incarnation != d.me.Incarnation || row.Process > d.me.Process {
		return
	}
	if row.Process == d.me.Process && d.open[row.Number] != nil {
		return
	}
	if slices.ContainsFunc(d.pending, func(r *request) bool { return r.Request == row.Request }) {
		return
	}
	r := &request{Part{Op: Release, Row: row}, false}
	if note, keep, ok := mail(row); ok {
		r.Op, r.Note, r.Keep = Settle, note, keep
	}
	d.pending = append(d.pending, r)
}

// Call makes the next call, if there is something to do and none is on its way.
func (d *Desk) Call(now time.Duration) (Call, bool) {
	if d.busy && now-d.sent < patience || len(d.pending) == 0 || d.line == 0 {
		return Call{}, false
	}
	d.call = Call{Number: d.call.Number + 1, Node: d.me, Timeline: d.line}
	noted := 0
	for i, r := range d.pending[:min(len(d.pending), most)] {
		if noted += len(r.Note); noted > octets && i > 0 {
			break
		}
		d.call.Parts = append(d.call.Parts, r.Part)
	}
	d.busy, d.sent = true, now
	return d.call, true
}

// Result takes in the result of the newest call; those of earlier ones are too late.
func (d *Desk) Result(res Result) (decided []Decision) {
	if !d.busy || res.Number != d.call.Number {
		return nil
	}
	d.busy = false
	if res.Elsewhere {
		d.line = 0 // until it is verified
		return nil
	}
	parts := d.call.Parts
	sent := slices.Clone(d.pending[:len(parts)])
	d.pending = d.pending[len(parts):]
	for i, r := range sent {
		if r.Op != parts[i].Op { // it was given up while the call was on its way
			d.pending = append(d.pending, r)
			continue
		}
		var row Row
		if !res.Forgotten && res.Rows[i] != nil {
			row = *res.Rows[i]
		}
		fresh := r.Op == Claim && row.Request == r.Request
		if r.own && !fresh {
			delete(d.open, r.Number)
			delete(d.keys, r.Key)
		}
		if r.Op != Claim {
			continue
		}
		o := Running
		switch {
		case res.Forgotten:
			o = Refuse
		case fresh:
			o = Fresh
		case row.Done:
			o = Repeat
		}
		decided = append(decided, Decision{r.Number, o, row})
	}
	slices.SortFunc(decided, func(a, b Decision) int { return cmp.Compare(a.Number, b.Number) })
	return decided
}
