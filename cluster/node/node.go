// Package node drives one process of a cluster's node: it makes a call to the engine each second, sends the asks that
// are due, takes in messages, and keeps on the disk what the protocol needs there (state.go). Delivery uses limits
// through it (limits.go), and submission claims keys (keys.go). What may be done is decided by package member.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"example.org/mta/cluster/link"
	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
	"example.org/mta/internal/faultlog"
)

// Intervals of a node.
const (
	tick    = time.Second            // between two calls
	step    = 200 * time.Millisecond // between two checks which asks are due
	turn    = time.Minute            // of a limit that is too small for all
	goodbye = 5 * time.Second        // in which a process that ends hands over, at most
	gather  = 10 * time.Millisecond  // for what is asked at the same moment
	calm    = 10                     // calls that are on time for each early one
	mostNow = 2                      // early calls one after the other
)

// Engine is the database. After an error nothing was done, or the outcome is unknown. Calls return when their context
// ends.
type Engine interface {
	Shards(context.Context, owner.Call) (owner.Result, error)
	Keys(context.Context, once.Call) (once.Result, error)
	Unsettled(ctx context.Context, node uint16) ([]once.Row, error) // rows of a node without an answer
	// DropKeys deletes some of the rows whose time is over, and returns how many.
	DropKeys(ctx context.Context, most int) (int, error)
}

// Config is a node's.
type Config struct {
	Node   uint16
	Name   string // the nodeid of this relay
	Engine Engine
	Term   term.Term
	Seen   float64 // as of func Seen, when this process began
	Path   string  // of the file that Create has made; nobody else uses it while the data directory is locked
	// Part: after a loss of the database this node goes on by a fixed part of each limit, and does not wait.
	Part bool
	// Clock and Boot are those of func Boot.
	Clock func() time.Duration
	Boot  uint64
	Rand  *rand.Rand
	// Incarnation is a member's, as its row was read last; 0: there is no such member.
	Incarnation func(node uint16) uint64
	// Members are as their rows were read last, nil if that is not known, and off as of share.Book.Census.
	Members func() (all []uint16, off map[uint16]uint64)
	Send    func(link.Message) // does not block
	// Changed is called, unless it is nil, after what this node may use of limits has changed: by an answer, or as
	// grants ended. It does not block.
	Changed func()
	// Mail returns how the request of a row has ended, and for how long that is kept, when this node has its mail. It
	// must not use the Node.
	Mail func(once.Row) (note string, keep time.Duration, ok bool)
	Now  func() time.Time
	Log  *slog.Logger
}

// Node is a process of a node. It is safe for concurrent use.
//
// Goroutines: three, which end with Run.
type Node struct {
	cfg   Config
	keys  keys
	ended chan struct{}
	// lacks and asked have room for one: this node wants a limit of which it has nothing, and an asker does.
	lacks, asked chan struct{}

	away, disk, refused *faultlog.Kind

	mu      sync.Mutex // guards what follows
	member  *member.Member
	faults  []error
	leaving bool
	heard   time.Duration // when the engine's last result came, 0: none has
	whole   time.Duration // since when results have come without a gap
	seen    float64       // by func Seen
	failing error         // why the engine's last call had no result
	standby error         // as of its newest result
	bad     error         // rows that were left out last
	badAt   time.Duration // when

	saving sync.Mutex // held before mu; guards what follows
	state  state      // on the disk
}

// New begins a process.
func New(cfg Config) (*Node, error) {
	s, err := begin(cfg.Path, cfg.Node, cfg.Name, cfg.Seen)
	if err != nil {
		return nil, err
	}
	kind := func(began, ended string) *faultlog.Kind {
		return faultlog.New(cfg.Log, cfg.Now, slog.LevelError, began, ended)
	}
	n := &Node{cfg: cfg, ended: make(chan struct{}), state: s,
		lacks: make(chan struct{}, 1), asked: make(chan struct{}, 1),
		away: kind("the cluster's database does not answer", "the cluster's database answers again"),
		disk: kind("what this node must keep of its cluster can't be written: other nodes get no answers",
			"what this node must keep of its cluster is written again"),
		refused: kind("a message or row of the cluster is refused",
			"no more messages and rows of the cluster are refused")}
	n.keys.init(once.New(cfg.Node, s.Incarnation, s.Process))
	n.member = member.New(member.Config{Node: cfg.Node, Incarnation: s.Incarnation, Boot: cfg.Boot, Process: s.Process,
		Term: cfg.Term, Turn: turn, Rand: cfg.Rand, Memory: s.Memory,
		Reserve: cfg.Part},
		func(err error) { n.faults = append(n.faults, err) })
	return n, nil
}

// Seen notes the database's clock at a reading of the members, in seconds since 1970, and returns the newest that is on
// the disk: this one, unless that can't be written or knows a later one.
func (n *Node) Seen(at float64) float64 {
	n.mu.Lock()
	n.seen = at
	n.mu.Unlock()
	n.save()
	n.saving.Lock()
	defer n.saving.Unlock()
	return n.state.Seen
}

// Run takes part in the cluster until ctx ends, and then hands over what this node has: delivery should have ended.
// That takes a second, and eight at most if the engine does not answer.
func (n *Node) Run(ctx context.Context) {
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	var all sync.WaitGroup
	all.Go(func() {
		for wait(alive, step, n.lacks) && wait(alive, gather, nil) {
			n.act(func(m *member.Member, now time.Duration, send func(member.Message)) { m.Asks(now, send) })
		}
	})
	all.Go(func() { n.desk(alive) })
	n.beat(alive) // it learns which shards its last process has had, and the next call takes them
	for early := calm * mostNow; ; {
		select {
		case <-n.asked: // this call answers it
		default:
		}
		n.beat(alive)
		if early = n.pause(ctx, early); ctx.Err() != nil {
			break
		}
	}
	n.leave(alive)
	end()
	all.Wait()
	close(n.ended)
}

// pause waits until the next call is due: a tick after the last one, or at once for an ask of a node that has nothing
// of a limit, if enough calls have been on time. early is how many were, for early calls to come.
func (n *Node) pause(ctx context.Context, early int) int {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	asked := n.asked
	if early < calm {
		asked = nil
	}
	select {
	case <-timer.C:
		return min(early+1, calm*mostNow)
	case <-asked:
		wait(ctx, gather, nil)
		return early - calm
	case <-ctx.Done():
		return early
	}
}

// nudge wakes the goroutine that waits for a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait waits for d or until woken, and reports whether ctx goes on.
func wait(ctx context.Context, d time.Duration, woken <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-woken:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// use has f use the member, and returns what it refuses.
func (n *Node) use(f func(m *member.Member, now time.Duration)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	f(n.member, n.cfg.Clock())
	err := errors.Join(n.faults...)
	n.faults = nil
	return err
}

// act has f use the member, and delivers what it sends.
func (n *Node) act(f func(m *member.Member, now time.Duration, send func(member.Message))) {
	var out []member.Message
	n.complain(n.use(func(m *member.Member, now time.Duration) {
		f(m, now, func(msg member.Message) { out = append(out, msg) })
	}))
	n.notify()
	n.deliver(out)
}

// notify has those who use limits look at them anew when there is a reason.
func (n *Node) notify() {
	n.mu.Lock()
	moved := n.member.Moved()
	n.mu.Unlock()
	if moved && n.cfg.Changed != nil {
		n.cfg.Changed()
	}
}

func (n *Node) deliver(out []member.Message) {
	for _, m := range out {
		if m.To == n.cfg.Node {
			n.complain(n.Receive(link.Message{Message: m}))
		} else {
			n.cfg.Send(link.Message{Message: m})
		}
	}
}

func (n *Node) complain(err error) {
	if err != nil {
		n.refused.Failed("", "error", err)
	}
}

// Receive takes in a message from another node, and returns why it is refused.
func (n *Node) Receive(msg link.Message) error {
	if msg.Met != nil {
		n.resolve(*msg.Met)
		return nil
	}
	if msg.Ask != nil && msg.From != n.cfg.Node {
		if is := n.cfg.Incarnation(msg.From); is == 0 || msg.Ask.Order.Incarnation < is {
			return fmt.Errorf("node %d asks as incarnation %d, and its row has %d", msg.From,
				msg.Ask.Order.Incarnation, is)
		}
	}
	err := n.use(func(m *member.Member, now time.Duration) { m.Receive(now, msg.Message) })
	n.notify()
	if msg.Ask != nil && slices.ContainsFunc(msg.Ask.Shares, nothingOf) {
		nudge(n.asked)
	}
	return err
}

// nothingOf reports whether an ask wants a limit of which its node has nothing.
func nothingOf(i share.Item) bool { return i.Held == 0 && i.Want > 0 }

// beat makes a call to the engine. What follows from its result leaves when the disk has what must be there.
func (n *Node) beat(ctx context.Context) {
	var call owner.Call
	var due bool
	var all []uint16
	var off map[uint16]uint64
	if n.cfg.Members != nil {
		all, off = n.cfg.Members()
	}
	n.complain(n.use(func(m *member.Member, now time.Duration) {
		m.Members(all, off)
		call, due = m.Call(now)
	}))
	if !due {
		return
	}
	waiting, cancel := context.WithTimeout(ctx, owner.Patience)
	defer cancel()
	r, err := n.cfg.Engine.Shards(waiting, call)
	if err == nil && (r.Heads == nil || len(r.Done) != len(call.Parts)) {
		err = errors.New("the database's answer lacks rows or parts")
	}
	if err != nil {
		n.unheard(ctx, err)
		n.save()
		return
	}
	n.away.Well()
	if r.Fault == nil {
		n.refused.Well()
	}
	var out []member.Message
	var lost error
	fault := n.plausible(&r)
	n.leftOut(fault, n.use(func(m *member.Member, now time.Duration) {
		m.Result(now, r, func(msg member.Message) { out = append(out, msg) })
		if n.heard == 0 || now-n.heard > owner.Gap {
			n.whole = now
		}
		n.heard, n.failing, n.standby, lost = now, nil, r.Standby, m.Keeper().Lost()
	}))
	if !n.save() {
		return
	}
	if lost != nil {
		n.cfg.Log.Error("the cluster's database has lost writes: this node takes no part until a reset", "error", lost)
	}
	n.verified(lost == nil)
	n.deliver(out)
}

// plausible takes the orders from lines of books that somebody has edited: no ask of their nodes would be newer. It
// returns what of the rows was refused. What the members were read to have may be one incarnation old.
func (n *Node) plausible(r *owner.Result) error {
	fault := r.Fault
	for shard, book := range r.Books {
		for i := range book {
			e := &book[i]
			if is := n.cfg.Incarnation(e.Node); slices.Min(e.N[1:]) < 0 || is != 0 && uint64(e.N[1]) > is+1 {
				fault = cmp.Or(fault, fmt.Errorf("a row of shard %d in mta_cluster.books, of limit %.60q and node %d, "+
					"has incarnation %d, process %d and number %d", shard, e.Name, e.Node, e.N[1], e.N[2], e.N[3]))
				e.N = [4]int64{e.N[0], int64(is)}
			}
		}
	}
	return fault
}

// leftOut notes rows that can't be used as they are.
func (n *Node) leftOut(faults ...error) {
	if err := errors.Join(faults...); err != nil {
		n.complain(err)
		n.mu.Lock()
		n.bad, n.badAt = err, n.cfg.Clock()
		n.mu.Unlock()
	}
}

// LeftOut is which rows could not be used as they are, for ten minutes after they were read last: those of a book are
// read by who takes its shard. Nil: none.
func (n *Node) LeftOut() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cfg.Clock()-n.badAt > 10*time.Minute {
		n.bad = nil
	}
	return n.bad
}

// unheard notes that a call has no result, unless this process does not wait for it.
func (n *Node) unheard(ctx context.Context, err error) {
	if ctx.Err() == nil {
		n.away.Failed("", "error", err)
		n.mu.Lock()
		was := n.failing != nil
		n.failing = err
		n.mu.Unlock()
		if !was && n.cfg.Changed != nil { // what waits has a reason now
			n.cfg.Changed()
		}
	}
}

// save writes what must be on the disk before a result counts, if that has changed, and reports whether it is there.
func (n *Node) save() bool {
	n.saving.Lock()
	defer n.saving.Unlock()
	next := n.state
	n.use(func(m *member.Member, _ time.Duration) {
		next.Memory, next.Seen = *m.Keeper().Memory(), max(next.Seen, n.seen)
	})
	if next == n.state {
		return true
	}
	if err := next.write(n.cfg.Path); err != nil {
		n.disk.Failed("", "file", n.cfg.Path, "error", err)
		return false
	}
	n.disk.Well()
	n.state = next
	return true
}

// leave gives up what this node has, in a bounded time.
func (n *Node) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	n.mu.Lock()
	n.leaving = true
	n.mu.Unlock()
	n.act(func(m *member.Member, now time.Duration, send func(member.Message)) { m.Leave(now, send) })
	for {
		n.beat(ctx)
		owned := len(n.Owned())
		if owned == 0 && n.keys.idle() {
			return
		}
		if !wait(ctx, step, nil) {
			n.cfg.Log.Warn("this node has not handed over all in the cluster: others wait for it", "shards", owned)
			return
		}
	}
}

// Owned are the shards for which this node decides.
func (n *Node) Owned() (shards []int) {
	n.use(func(m *member.Member, _ time.Duration) { shards = m.Owned() })
	return shards
}

// Lost is why this node takes no part any more: the engine has lost writes.
func (n *Node) Lost() (err error) {
	n.use(func(m *member.Member, _ time.Duration) { err = m.Keeper().Lost() })
	return err
}

// Lose notes that the engine has lost writes: this node takes no part until Reset.
func (n *Node) Lose(err error) {
	n.use(func(m *member.Member, _ time.Duration) { m.Lose(err) })
}

// Resets is the newest reset that this node has followed.
func (n *Node) Resets() (number uint64) {
	n.use(func(m *member.Member, _ time.Duration) { number = m.Keeper().Memory().Reset })
	return number
}

// Reset follows a reset of the engine: this node begins anew there, with its process. Grants of before it end as they
// would have.
func (n *Node) Reset(number uint64) {
	n.use(func(m *member.Member, _ time.Duration) { m.Reset(number) })
	n.verified(false)
	n.keys.mu.Lock()
	n.keys.listed = false
	n.keys.mu.Unlock()
	n.cfg.Log.Info("this node begins anew in its cluster after a reset", "reset", number)
}

// Unanswered is for how long another node has not answered what this one has asked it, the longest of all: since the
// engine answers without a break.
func (n *Node) Unanswered() (node uint16, d time.Duration) {
	n.use(func(m *member.Member, now time.Duration) {
		node, d = m.Unanswered(now)
		d = min(d, now-n.whole)
	})
	return node, d
}

// long is for how long an owner may be silent when its node counts as gone.
const long = 2 * owner.Gap

// Orphans are the shards that have an owner no more, as far as the engine shows, and wait for another one.
func (n *Node) Orphans() (all []owner.Silence) {
	var silent []owner.Silence
	n.use(func(m *member.Member, now time.Duration) {
		for shard := range owner.Shards {
			silent = append(silent, m.Keeper().Silent(now, shard))
		}
	})
	for _, s := range silent {
		if s.Head.Node != 0 && (s.For >= long || s.Head.Incarnation == 0 ||
			s.Head.Incarnation < n.cfg.Incarnation(s.Head.Node)) {
			all = append(all, s)
		}
	}
	return all
}

// Lacks is why nobody can give this node a part of a limit now; "" otherwise.
func (n *Node) Lacks(limit string) string {
	shard := member.Shard(limit)
	var s owner.Silence
	var lost error
	n.use(func(m *member.Member, now time.Duration) {
		s, lost = m.Keeper().Silent(now, shard), m.Keeper().Lost()
	})
	switch {
	case lost != nil:
		return ErrLost.Error()
	case n.Failing() != nil || n.Silent() > owner.Gap:
		return ErrAway.Error()
	case s.Head.Node != 0 && (s.For >= long || s.Head.Incarnation == 0):
		return "no node decides about it yet: see 'mta cluster status'"
	}
	return ""
}

// Differences are the limits for which this node decides that nodes have had by several definitions for so long.
func (n *Node) Differences(long time.Duration) (all []share.Difference) {
	n.use(func(m *member.Member, now time.Duration) { all = m.Differences(now, long) })
	return all
}

// Silent is how long the engine has not answered; longer than the node's life if it never has.
func (n *Node) Silent() (d time.Duration) {
	n.use(func(_ *member.Member, now time.Duration) { d = now - n.heard })
	return d
}

// Failing is why the engine's last call had no result; nil: it had one.
func (n *Node) Failing() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.failing
}

// Standby is why a failover of the engine may lose what it has acknowledged, as of its newest result; nil: it can't.
func (n *Node) Standby() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.standby
}

// KnowsReserves notes that the engine's schema has reserves.
func (n *Node) KnowsReserves() {
	n.use(func(m *member.Member, _ time.Duration) { m.Keeper().Knows() })
}

// Reserve is the part of each limit that this node goes on with, one in divisor, when the engine has not answered for
// the given time more; 0: none, it waits.
func (n *Node) Reserve() (divisor int64, in time.Duration) {
	n.use(func(m *member.Member, now time.Duration) {
		divisor, in = m.Keeper().Reserve()
		in = max(0, in-now)
	})
	return divisor, in
}
