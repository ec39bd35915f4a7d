package cluster

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/usage"
)

// Intervals of a node.
const (
	tick = time.Second
	step = 200 * time.Millisecond
)

// node is a machine, with the process that runs on it.
type node struct {
	*run
	id     uint16
	drift  float64
	base   time.Duration // of its clock, at the right time 0
	boot   uint64
	up     bool
	paused bool
	stall  []func() // what happens while it is paused
	gen    int      // of the process: what an earlier one has set up is dropped
	island int      // messages don't cross to another
	off    map[uint16]uint64

	// On its disk.
	incarnation, process uint64
	memory               owner.Memory
	mails                map[string]once.Request
	halves               map[string]bool // of mails: requests that were cut off half way

	member *member.Member
	desk   *once.Desk
	listed bool
	asking map[uint64]*attempt
	uses   *usage.Uses
	ending bool // it hands over what it has
	stepAt time.Duration
	demand []float64     // of each limit, a second, or connections
	queued []float64     // events that wait
	limits []share.Limit // as it has them now, or had them last
	gone   []bool        // it has them no more
	part   bool          // it goes on by a part of each limit after a loss of the engine
	open   []int64
	kept   []int64         // messages in the queue, of a quota; on the disk
	ripe   []float64       // a message more that leaves
	want   []int64         // units, as was last told
	turned []time.Duration // when it was last told of the first unit, or that there is none
	timer  []bool          // whether an event of a slow limit has been set up
}

func (n *node) local() time.Duration { return n.base + time.Duration(float64(n.w.now)*(1+n.drift)) }

// do runs f in the node's process, when it runs.
func (n *node) do(gen int, f func()) {
	switch {
	case gen != n.gen || !n.up:
	case n.paused:
		n.stall = append(n.stall, f)
	default:
		f()
	}
}

// every has f run each d of the node's clock, as long as its process lives.
func (n *node) every(d time.Duration, f func()) {
	gen := n.gen
	var again func()
	again = func() {
		n.w.after(time.Duration(float64(d)/(1+n.drift)), func() {
			if gen == n.gen {
				n.do(gen, func() { f(); again() })
			}
		})
	}
	n.w.after(n.w.between(0, d), func() { n.do(gen, func() { f(); again() }) })
}

// start begins a process.
func (n *node) start() {
	if n.up {
		return
	}
	if n.cfg.Reserves > 0 && n.cfg.Faults.Reload > 0 && n.w.chance(.1) {
		n.part = !n.part
	}
	n.up, n.ending, n.gen = true, false, n.gen+1
	n.process++
	n.member = member.New(member.Config{Node: n.id, Incarnation: n.incarnation, Boot: n.boot, Process: n.process,
		Term: n.cfg.Term, Turn: n.cfg.Turn, Rand: rand.New(rand.NewPCG(n.w.rand.Uint64(), 1)), Memory: n.memory,
		Reserve: n.part}, n.refuses)
	n.member.Keeper().Knows()
	n.member.Members(n.members, n.off)
	n.engine.forget(n.id, n.incarnation)
	n.desk, n.listed, n.asking = once.New(n.id, n.incarnation, n.process), false, make(map[uint64]*attempt)
	n.stepAt = n.w.now
	clear(n.want)
	n.use()
	n.every(tick, n.tick)
	n.every(step, n.step)
	n.every(tick, n.list)
	n.every(5*time.Second, n.read)
}

// read reads the members.
func (n *node) read() {
	if n.engine.away == 0 && n.island == 0 {
		n.off = maps.Clone(n.engine.off)
		n.member.Members(n.members, n.off)
	}
}

// refuses notes what another node sent and this one refuses: nothing, unless one of the two knows of lost writes.
func (n *node) refuses(err error) {
	if !n.cfg.Faults.Unsafe {
		n.judge.fault("node %d refuses: %v", n.id, err)
	}
}

// stop ends the process; of a machine that dies, hosts see connections that stay open.
func (n *node) stop(machine bool) {
	if !n.up {
		return
	}
	if n.paused {
		n.unstick()
	}
	n.memory = *n.member.Keeper().Memory()
	n.up, n.paused, n.stall = false, false, nil
	n.gen++
	for _, number := range slices.Sorted(maps.Keys(n.asking)) {
		n.again(n.asking[number])
	}
	for l, open := range n.open {
		if n.open[l], n.timer[l] = 0, false; open > 0 {
			n.judge.connections(l, n.id, -open)
		}
	}
	if machine {
		n.boot++
		n.base = n.w.between(0, time.Hour) - time.Duration(float64(n.w.now)*(1+n.drift))
	}
}

// leave has the process end as it should: delivery ends first, and what the node has is handed over within some
// seconds, or not.
func (n *node) leave() {
	const goodbye, check = 5 * time.Second, 50 * time.Millisecond
	if !n.up || n.paused || n.ending {
		return
	}
	n.ending = true
	n.leaves++
	for l, open := range n.open {
		if open > 0 {
			n.member.Shares(n.shard[l]).Close(n.limits[l].Name, open)
			n.judge.connections(l, n.id, -open)
			n.open[l] = 0
		}
	}
	n.member.Leave(n.local(), n.deliver)
	gen, until := n.gen, n.w.now+goodbye
	var end func()
	end = func() {
		if gen != n.gen || n.paused {
			return
		}
		if (len(n.member.Owned()) > 0 || n.desk.Pending() > 0) && n.w.now < until {
			n.w.after(check, func() { n.do(gen, end) })
			return
		}
		n.stop(false)
		n.w.after(n.w.between(5*time.Second, 30*time.Second), n.start)
	}
	n.w.after(check, func() { n.do(gen, func() { n.tick(); end() }) })
}

// pause stops the process for a while; its clock goes on.
func (n *node) pause(d time.Duration) {
	if !n.up || n.paused {
		return
	}
	n.paused = true
	gen := n.gen
	for l, open := range n.open {
		if open > 0 {
			n.judge.stuck(l, n.id, open)
		}
	}
	n.w.after(d, func() {
		if gen == n.gen && n.paused {
			n.wake()
		}
	})
}

// wake has the process go on where it stood. What it finds first is that time has passed.
func (n *node) wake() {
	n.unstick()
	n.paused = false
	for l := range n.limits {
		n.close(l)
	}
	todo := n.stall
	n.stall = nil
	gen := n.gen
	for _, f := range todo {
		n.do(gen, f)
	}
}

// unstick has the judge count the connections of a stopped node again, as far as its grants last.
func (n *node) unstick() {
	for l, open := range n.open {
		if open == 0 {
			continue
		}
		over, _ := n.member.Shares(n.shard[l]).Over(n.local(), n.limits[l].Name)
		n.member.Shares(n.shard[l]).Close(n.limits[l].Name, over)
		n.open[l] -= over
		n.judge.limits[l].stuck -= open
		n.judge.connections(l, n.id, open-over)
	}
}

// tick makes the engine call of this second.
func (n *node) tick() {
	c, ok := n.member.Call(n.local())
	if !ok {
		return
	}
	n.calls++
	gen := n.gen
	n.toEngine(n, func() {
		n.engine.shards(c, func(r owner.Result) {
			n.toEngine(n, func() {
				n.do(gen, func() {
					n.member.Result(n.local(), r, n.deliver)
					if k := n.member.Keeper(); k.Lost() == nil {
						n.desk.Verified(k.Memory().Origin.Timeline)
					} else {
						n.desk.Verified(0)
					}
				})
			})
		})
	})
}

// deliver sends a message to another node, or to the one that passes it on.
func (n *node) deliver(m member.Message) {
	to := n.nodes[m.To-1]
	passes := m.Via != 0 && m.Via != n.id
	if passes {
		to = n.nodes[m.Via-1]
	}
	n.messages++
	n.pass(n, to, func() {
		n.do2(to, func() {
			switch {
			case passes:
				to.deliver(m)
			case m.Ask == nil || m.Ask.Order.Incarnation >= to.off[m.From]:
				to.member.Receive(to.local(), m)
			}
		})
	})
}

// do2 runs f in the process that another node runs now.
func (n *node) do2(to *node, f func()) { to.do(to.gen, f) }

// step does what mail wants.
func (n *node) step() {
	now := n.local()
	dt := (n.w.now - n.stepAt).Seconds()
	n.stepAt = n.w.now
	for l := range n.limits {
		if n.ending {
			break
		}
		switch {
		case n.limits[l].Lasting:
			n.keep(l, dt)
		case n.limits[l].Connections > 0:
			n.connect(l, now)
		case n.gone[l]:
			n.queued[l] = 0 // it goes without a limit
			n.spend(l)
		default:
			n.queued[l] = min(n.queued[l]+n.needs(l)*dt, max(5*n.needs(l), 2))
			n.spend(l)
		}
	}
	n.member.Asks(now, n.deliver)
}

// needs is what mail could use of a limit.
func (n *node) needs(l int) float64 {
	if n.gone[l] {
		return 0
	}
	return n.demand[l]
}

// connect opens and closes connections as mail wants and the share allows.
func (n *node) connect(l int, now time.Duration) {
	name, h := n.limits[l].Name, n.member.Shares(n.shard[l])
	want := int64(math.Ceil(n.needs(l)))
	n.need(l, want)
	n.declare(l, want)
	n.close(l)
	if more := h.Open(now, name, want-n.open[l]); more > 0 {
		n.open[l] += more
		n.judge.connections(l, n.id, more)
	}
	if less := n.open[l] - want; less > 0 {
		h.Close(name, less)
		n.open[l] -= less
		n.judge.connections(l, n.id, -less)
	}
}

// need has units of a limit be wanted.
func (n *node) need(l int, units int64) {
	was := n.want[l]
	if n.want[l] = units; (was == 0) != (units == 0) {
		n.turned[l] = n.w.now
		n.judge.needed(l)
	}
}

// declare has a limit be as this node has it, and units of it wanted.
func (n *node) declare(l int, units int64) {
	if !n.up {
		return
	}
	if err := n.member.Shares(n.shard[l]).Want(n.limits[l], units, n.local); err != nil {
		n.judge.fault("node %d: %v", n.id, err)
	}
}

// close ends connections that the share no longer allows: half of them within a step, as transactions take time; all
// when the grant ends.
func (n *node) close(l int) {
	if n.open[l] == 0 {
		return
	}
	h := n.member.Shares(n.shard[l])
	over, ended := h.Over(n.local(), n.limits[l].Name)
	if !ended {
		over = (over + 1) / 2
	}
	if over > 0 {
		h.Close(n.limits[l].Name, over)
		n.open[l] -= over
		n.judge.connections(l, n.id, -over)
	}
}

// spend lets events of a rate happen, and sets up the next where so few may be saved up that a step would miss it.
func (n *node) spend(l int) {
	limit, h := &n.limits[l], n.member.Shares(n.shard[l])
	var want int64
	if demand := n.needs(l); n.queued[l] >= 1 || demand > 1 {
		part := min(1, (1.01*demand+max(0, n.queued[l]-demand/2)/20)/limit.Rate)
		want = max(limit.Least(), int64(part*float64(limit.Units()))+1)
	}
	if was := n.want[l]; want == 0 || was < want || was > want+want/16 {
		if want > limit.Least() {
			want += want / 64
		}
		n.need(l, want)
	}
	n.declare(l, n.want[l])
	if done := h.Spend(n.local(), limit.Name, int64(n.queued[l])); done > 0 {
		n.queued[l] -= float64(done)
		n.judge.events(l, n.id, done)
	}
	wait, depth := h.Next(n.local(), limit.Name)
	if n.queued[l] < 1 || n.timer[l] || depth == 0 || depth > 3 || wait > step {
		return
	}
	gen := n.gen
	n.timer[l] = true
	n.w.after(wait, func() {
		n.do(gen, func() {
			if n.timer[l] = false; !n.ending {
				n.spend(l)
			}
		})
	})
}
