package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
)

// most bounds what the engine has yet to be asked about keys. A second of the busiest node has less.
const most = 10_000

// settling is how long the end of a request waits for a claim that takes it along: a claim that comes during a call
// waits for the end of that, and then for its own.
const settling = 20 * time.Millisecond

// ErrAway is why a claim has no outcome: the engine does not answer. The request must be refused for now.
var ErrAway = errors.New("the cluster's database does not answer")

// ErrLost is why a claim has no outcome: no call is made any more.
var ErrLost = errors.New("the cluster's database has lost writes: see 'mta cluster status'")

// ErrEnded is why a claim has no outcome: the process ends.
var ErrEnded = errors.New("this node leaves the cluster")

// keys is the desk, with those who wait at it.
type keys struct {
	wake chan struct{}

	mu      sync.Mutex // guards what follows
	desk    *once.Desk
	waiting map[uint64]chan once.Decision
	later   *time.Timer // until what can wait is due; nil: nothing waits
	due     bool        // a call is to be made at once
	listed  bool        // rows that an earlier process, or a lost write, has left open were asked for
}

func (k *keys) init(d *once.Desk) {
	k.desk, k.wake, k.waiting = d, make(chan struct{}, 1), make(map[uint64]chan once.Decision)
}

// do has f use the desk, and makes its next call soon.
func (k *keys) do(f func(*once.Desk)) {
	k.mu.Lock()
	f(k.desk)
	k.due = true
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// doLater is do for what can wait a moment.
func (k *keys) doLater(f func(*once.Desk)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if f(k.desk); k.later == nil {
		k.later = time.AfterFunc(settling, func() { k.do(func(*once.Desk) {}) })
	}
}

func (k *keys) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.desk.Pending() == 0
}

// Claim claims a key for a new request, with a note that all nodes see, and returns whether the request may be
// accepted. Then Accepted or Refused must follow. It waits for the engine, 5 s at most. After an error nothing is
// claimed.
func (n *Node) Claim(ctx context.Context, key, note string) (d once.Decision, err error) {
	if n.Lost() != nil {
		return d, ErrLost
	} else if n.Silent() > owner.Gap {
		return d, ErrAway
	}
	var decided chan once.Decision
	var number uint64
	n.keys.do(func(desk *once.Desk) {
		if desk.Pending() >= most {
			err = ErrAway
		} else if got, ok := desk.Ask(key, note); ok {
			number, decided = got, make(chan once.Decision, 1)
			n.keys.waiting[number] = decided
		}
	})
	if err != nil || decided == nil {
		return once.Decision{Outcome: once.Running}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, owner.Gap, ErrAway)
	defer cancel()
	select {
	case d := <-decided:
		return d, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-n.ended:
		err = ErrEnded
	}
	n.keys.do(func(desk *once.Desk) {
		delete(n.keys.waiting, number)
		desk.Refused(number)
	})
	return d, err
}

// Accepted notes how a request has ended, when its mail is durable, and for how long that is kept: a fresh one, or one
// of a row of this node that was settled before.
func (n *Node) Accepted(of once.Decision, note string, keep time.Duration) {
	n.keys.doLater(func(d *once.Desk) {
		if of.Row.Note = note; of.Outcome == once.Repeat {
			d.Again(once.Part{Op: once.Settle, Row: of.Row, Keep: keep})
		} else {
			d.Accepted(of.Number, note, keep)
		}
	})
}

// Refused gives up the claim of such a request: nothing of it was accepted.
func (n *Node) Refused(of once.Decision) {
	n.keys.do(func(d *once.Desk) {
		if of.Outcome == once.Repeat {
			d.Again(once.Part{Op: once.Release, Row: of.Row})
		} else {
			d.Refused(of.Number)
		}
	})
}

// resolve settles a row of this node that another one has met, or that an earlier process has left.
func (n *Node) resolve(row once.Row) {
	n.keys.do(func(d *once.Desk) {
		if d.Pending() < most { // or it is met again
			d.Resolve(row, n.cfg.Mail)
		}
	})
}

// verified notes whether the engine has all that this node has written.
func (n *Node) verified(all bool) {
	line := uint64(0)
	if all {
		n.saving.Lock() // a reading of the members may write the state
		line = n.state.Memory.Origin.Timeline
		n.saving.Unlock()
	}
	n.keys.do(func(d *once.Desk) { d.Verified(line) })
}

// desk makes the calls about keys, one at a time.
func (n *Node) desk(ctx context.Context) {
	dropped := n.cfg.Clock()
	for wait(ctx, tick, n.keys.wake) {
		if now := n.cfg.Clock(); now-dropped >= time.Minute {
			dropped = now
			n.dropKeys(ctx)
		}
		n.list(ctx)
		for n.claim(ctx) {
		}
	}
}

// list settles the rows of this node that are open in the engine and not here, once.
func (n *Node) list(ctx context.Context) {
	n.keys.mu.Lock()
	listed := n.keys.listed
	n.keys.listed = true
	n.keys.mu.Unlock()
	if listed {
		return
	}
	err := ErrAway
	var rows []once.Row
	if n.Silent() < owner.Gap {
		waiting, cancel := context.WithTimeout(ctx, owner.Patience)
		if rows, err = n.cfg.Engine.Unsettled(waiting, n.cfg.Node); err != nil {
			n.unheard(ctx, err)
		}
		cancel()
	}
	if err != nil {
		n.keys.mu.Lock()
		n.keys.listed = false
		n.keys.mu.Unlock()
	}
	for _, row := range rows {
		n.resolve(row)
	}
}

// mostDropped is how many old rows go in a call.
const mostDropped = 1000

// dropKeys has the engine forget old keys. Each node does it: what is gone is gone.
func (n *Node) dropKeys(ctx context.Context) {
	for gone := mostDropped; gone == mostDropped && n.Silent() < owner.Gap; {
		waiting, cancel := context.WithTimeout(ctx, owner.Patience)
		var err error
		gone, err = n.cfg.Engine.DropKeys(waiting, mostDropped)
		cancel()
		if err != nil {
			n.unheard(ctx, err)
			return
		}
	}
}

// claim makes a call about keys, and reports whether there may be more to do.
func (n *Node) claim(ctx context.Context) bool {
	n.keys.mu.Lock()
	pending := n.keys.desk.Pending()
	call, calls := once.Call{}, n.keys.due
	if calls {
		call, calls = n.keys.desk.Call(n.cfg.Clock())
	}
	if calls { // it has what can wait, too
		n.keys.due = false
		if n.keys.later != nil {
			n.keys.later.Stop()
			n.keys.later = nil
		}
	}
	n.keys.mu.Unlock()
	if !calls {
		return false
	}
	waiting, cancel := context.WithTimeout(ctx, owner.Patience)
	defer cancel()
	r, err := n.cfg.Engine.Keys(waiting, call)
	if err == nil && !r.Forgotten && !r.Elsewhere && len(r.Rows) != len(call.Parts) {
		err = errors.New("the database's answer lacks rows of keys")
	}
	if err != nil {
		n.keys.mu.Lock()
		n.keys.due = true
		n.keys.mu.Unlock()
		n.unheard(ctx, err)
		return false
	}
	n.leftOut(r.Fault)
	var met []once.Row
	n.keys.mu.Lock()
	n.keys.due = n.keys.due || pending > len(call.Parts)
	for _, d := range n.keys.desk.Result(r) {
		if decided := n.keys.waiting[d.Number]; decided != nil {
			decided <- d
			delete(n.keys.waiting, d.Number)
		} else {
			n.keys.desk.Refused(d.Number)
			n.keys.due = true
		}
		if d.Outcome == once.Running {
			met = append(met, d.Row)
		}
	}
	n.keys.mu.Unlock()
	for _, row := range slices.CompactFunc(met, func(a, b once.Row) bool { return a.Request == b.Request }) {
		switch row.Node {
		case 0:
		case n.cfg.Node:
			n.resolve(row)
		default:
			n.cfg.Send(link.Message{Message: member.Message{From: n.cfg.Node, To: row.Node}, Met: &row})
		}
	}
	return true
}
