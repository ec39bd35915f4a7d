package cluster

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"example.org/mta/cluster/member"
	"example.org/mta/cluster/once"
	"example.org/mta/cluster/owner"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/term"
)

// Config is a run's.
type Config struct {
	Seed   uint64
	Nodes  int
	Limits int
	Quotas int           // of queued messages
	Keys   int           // requests with an Idempotency-Key
	Warm   time.Duration // before it is judged what is used
	Length time.Duration
	Term   term.Term
	Turn   time.Duration
	Faults Faults
	// Reserves is how many nodes, the first ones, go on by a part of each limit after a loss of the engine.
	Reserves int
	// Settle is how long after a change the smallest definition of a limit counts and is used, while nothing else fails.
	Settle time.Duration
	// Calm begins after Length: nothing fails any more, all nodes get the same limits, and after a term these are used.
	Calm time.Duration
}

// Faults says how often what fails: means of the time between two, 0 for never, and probabilities.
type Faults struct {
	Crash, Leave, Pause, Island, Failover, Lag time.Duration
	Cut                                        time.Duration // nodes from others, both ways or one way
	Reload                                     time.Duration // that changes half of the limits
	EngineAway                                 time.Duration // once, in the middle
	Lost, Late, Twice, Unknown                 float64
	Unsafe                                     bool // a failover that loses acknowledged commits, once, in the middle
	// Wipe: each crash is that of a machine with its disk. Dead: an operator confirms soon that such a machine is off.
	Wipe, Dead bool
}

// run is a cluster in its world.
type run struct {
	cfg    Config
	w      *world
	engine *engine
	judge  *judge
	calm   bool
	limits []share.Limit // as they were made
	shard  []int
	nodes  []*node
	cuts   map[[2]uint16]int // from one node to another

	members []uint16

	calls, messages, crashes, leaves int
	atLoss, inLoss                   [2]use
}

// Report is what a run showed.
type Report struct {
	Faults              []string // what the judge saw
	Events, Connections float64  // used, in percent of what was wanted
	Mean, Least         float64  // the same of rates: the mean of all, each counting the same, and the least
	Quotas              float64  // the same
	Taken               int      // messages
	Calls               float64  // a second and node
	Messages            float64  // a second and node
	Crashes, Leaves     int
	Claimed             int
	Stuck               int64    // connections over a limit that stopped nodes left open
	Halted              int      // nodes that noticed an engine that has lost writes
	Firm                float64  // the least used of a limit while it was settled, of those of which 20 events were wanted
	Idle                []string // limits that were hardly used while they were settled
	// Away are events and connections used while the engine was away, from when the reserves are used, in percent.
	AwayEvents, AwayConnections float64
}

// String gives a line for a table.
func (r Report) String() string {
	return fmt.Sprintf("events %.1f %% (mean %.1f %%, least %.1f %%) connections %.1f %%, %.2f calls and "+
		"%.1f messages a second and node, %d crashes, %d shutdowns, %d stuck, %d claims, %d halted, "+
		"%d faults, settled %.1f %%, away %.1f %% and %.1f %%, quotas %.1f %% (%d messages)",
		r.Events, r.Mean, r.Least, r.Connections, r.Calls, r.Messages, r.Crashes,
		r.Leaves, r.Stuck, r.Claimed, r.Halted, len(r.Faults), r.Firm,
		r.AwayEvents, r.AwayConnections, r.Quotas, r.Taken)
}

// Run runs a cluster.
func Run(cfg Config) Report {
	r := &run{cfg: cfg, w: newWorld(cfg.Seed), cuts: make(map[[2]uint16]int)}
	r.engine = newEngine(r.w)
	if cfg.Faults.Unsafe {
		r.engine.keep = 5 * time.Second
	}
	r.makeLimits()
	r.judge = &judge{w: r.w, lag: cmp.Or(cfg.Settle, cfg.Term.Waits()), settle: cfg.Settle, wants: r.wants,
		mails: make(map[string]uint16), accepted: make(map[string]bool), quotas: make(map[int]*quota),
		kept: func(l, node int) int64 { return r.nodes[node].kept[l] }}
	for _, l := range r.limits {
		r.judge.limits = append(r.judge.limits, &observed{Limit: share.Limit{Name: l.Name, Connections: l.Connections}})
	}
	for l := range r.limits {
		if r.limits[l].Lasting {
			r.judge.quotas[l] = &quota{Limit: r.limits[l], nodes: make([]touch, cfg.Nodes)}
		}
	}
	for i := range cfg.Nodes {
		n := &node{run: r, id: uint16(i + 1), boot: 1, incarnation: 1, mails: make(map[string]once.Request),
			halves: make(map[string]bool),
			drift:  (2*r.w.rand.Float64() - 1) * cfg.Term.Drift, base: r.w.between(0, 1000*time.Hour),
			demand: make([]float64, len(r.limits)),
			queued: make([]float64, len(r.limits)), limits: slices.Clone(r.limits), open: make([]int64, len(r.limits)),
			kept: make([]int64, len(r.limits)), ripe: make([]float64, len(r.limits)),
			want: make([]int64, len(r.limits)), timer: make([]bool, len(r.limits)), gone: make([]bool, len(r.limits)),
			turned: make([]time.Duration, len(r.limits)), part: i < cfg.Reserves}
		r.nodes, r.members = append(r.nodes, n), append(r.members, n.id)
	}
	for _, n := range r.nodes {
		for l := range r.limits {
			r.judge.define(l, n.id, r.limits[l])
		}
	}
	for _, n := range r.nodes {
		n.start()
	}
	r.wander()
	r.watch()
	r.w.run(cfg.Warm)
	for l, o := range r.judge.limits {
		if o.Connections > 0 {
			r.judge.connections(l, 0, 0)
		}
		o.use, o.counted, o.firm = use{}, 0, use{}
	}
	for _, q := range r.judge.quotas {
		q.use = use{}
	}
	r.breakThings()
	r.keyed()
	r.w.run(cfg.Warm + cfg.Length)
	if cfg.Calm > 0 {
		r.mend()
		r.w.run(cfg.Warm + cfg.Length + cfg.Calm)
	}
	return r.report()
}

// makeLimits makes rates from 1/6 to 2,000 a second, from 1 to 1,000 connections, and quotas of 10 to 3,000 messages.
func (r *run) makeLimits() {
	for i := range r.cfg.Limits {
		part := float64(i/2) / float64(max(1, (r.cfg.Limits-1)/2))
		var rate float64
		if i%2 == 0 {
			rate = math.Pow(12000, part) / 6
		}
		l := sized(fmt.Sprintf("limit-%d", i), rate, math.Pow(1000, part))
		r.limits, r.shard = append(r.limits, l), append(r.shard, member.Shard(l.Name))
	}
	for i := range r.cfg.Quotas {
		l := sized(fmt.Sprintf("quota-%d", i), 0, 10*math.Pow(300, float64(i)/float64(max(1, r.cfg.Quotas-1))))
		l.Lasting = true
		r.limits, r.shard = append(r.limits, l), append(r.shard, member.Shard(l.Name))
	}
}

// wander moves the demand for each limit between nodes, from 0.3 to 2 times what there is.
func (r *run) wander() {
	for l := range r.limits {
		move := func() {
			o := r.judge.limits[l]
			most := o.Rate + float64(o.Connections)
			total := most * (.3 + 1.7*r.w.rand.Float64())
			if r.cfg.Faults.Reload > 0 && r.w.chance(.2) {
				total = 0 // it goes, and comes back
			}
			weights, sum := make([]float64, len(r.nodes)), 0.
			busy := 1 + r.w.rand.IntN(len(r.nodes))
			for _, i := range r.w.rand.Perm(len(r.nodes))[:busy] {
				weights[i] = .1 + r.w.rand.Float64()
				sum += weights[i]
			}
			for i, n := range r.nodes {
				if n.demand[l] = total * weights[i] / sum; r.limits[l].Connections > 0 {
					n.demand[l] = math.Ceil(n.demand[l])
				}
			}
			r.judge.touch(l)
		}
		move()
		r.w.often(5*time.Minute, move)
	}
}

// watch tells the judge each second what is wanted.
func (r *run) watch() {
	const every = time.Second
	r.w.after(every, func() {
		for l := range r.limits {
			if r.limits[l].Lasting {
				continue
			}
			var demand float64
			for _, n := range r.nodes {
				if n.up && !n.paused && !n.gone[l] {
					demand += n.demand[l]
				}
			}
			r.judge.wanted(l, demand, every)
		}
		r.look()
		r.watch()
	})
}

// pass carries a message between nodes.
func (r *run) pass(from, to *node, f func()) {
	if from.island != to.island && from != to || r.cuts[[2]uint16{from.id, to.id}] > 0 {
		return
	}
	r.carry(r.cfg.Faults.Lost, f)
}

// toEngine carries a call to the engine or its result; islands don't reach it.
func (r *run) toEngine(n *node, f func()) {
	if n.island == 0 {
		r.carry(r.cfg.Faults.Unknown, f)
	}
}

func (r *run) carry(lost float64, f func()) {
	if r.w.chance(lost) {
		return
	}
	delay := r.w.between(500*time.Microsecond, 5*time.Millisecond)
	if r.w.chance(r.cfg.Faults.Late) {
		delay = time.Duration(r.w.rand.ExpFloat64() * float64(time.Minute))
	}
	r.w.after(delay, f)
	if r.w.chance(r.cfg.Faults.Twice) {
		r.w.after(r.w.between(0, 10*time.Second), f)
	}
}

// wants reports whether a node has wanted some of a limit always, and ever, in the time in which it settles.
func (r *run) wants(l int, node uint16) (always, ever bool) {
	n := r.nodes[node-1]
	long := r.w.now-n.turned[l] >= r.judge.settle
	wants := n.up && !n.paused && n.want[l] > 0
	return wants && long, wants || !long
}

// often has something fail at random moments, until the run is calm.
func (r *run) often(mean time.Duration, f func()) {
	r.w.often(mean, func() {
		if !r.calm {
			f()
		}
	})
}

// breakThings sets up the faults.
func (r *run) breakThings() {
	f := &r.cfg.Faults
	any := func() *node { return r.nodes[r.w.rand.IntN(len(r.nodes))] }
	r.often(f.Crash, func() { any().crash() })
	r.often(f.Leave, func() { any().leave() })
	r.often(f.Pause, func() { any().pause(r.w.between(time.Second, 10*time.Minute)) })
	r.often(f.Failover, func() { r.engine.failover(true, r.w.between(2*time.Second, 40*time.Second)) })
	r.often(f.Lag, func() { r.engine.lag(r.w.between(time.Second, 20*time.Second)) })
	r.often(f.Island, func() {
		for _, i := range r.w.rand.Perm(len(r.nodes))[:min(10, (len(r.nodes)+1)/2)] {
			r.nodes[i].island = 1
		}
		r.w.after(r.w.between(time.Second, 8*time.Minute), func() {
			for _, n := range r.nodes {
				n.island = 0
			}
		})
	})
	r.often(f.Cut, r.cut)
	r.often(f.Reload, func() { r.reload(false) })
	middle := r.cfg.Length / 2
	if f.EngineAway > 0 {
		r.w.after(middle, func() { r.engine.outage(f.EngineAway) })
		r.w.after(middle+r.cfg.Term.Length+20*time.Second, func() { r.atLoss = r.uses() })
		r.w.after(middle+f.EngineAway, func() { r.inLoss = r.uses() })
	}
	if f.Unsafe {
		r.w.after(middle, func() { r.engine.failover(false, 20*time.Second) })
	}
}

// cut has some nodes not reach some others for a while, and half of the time not be reached by them. All reach the
// engine.
func (r *run) cut() {
	order, most := r.w.rand.Perm(len(r.nodes)), max(1, len(r.nodes)/3)
	some, others := 1+r.w.rand.IntN(most), 1+r.w.rand.IntN(most)
	both := r.w.chance(.5)
	turn := func(by int) {
		for _, a := range order[:some] {
			for _, b := range order[some : some+others] {
				r.cuts[[2]uint16{r.nodes[a].id, r.nodes[b].id}] += by
				if both {
					r.cuts[[2]uint16{r.nodes[b].id, r.nodes[a].id}] += by
				}
			}
		}
	}
	turn(1)
	r.w.after(r.w.between(time.Second, 8*time.Minute), func() { turn(-1) })
}

// mend ends all faults: nodes come back, with the same limits.
func (r *run) mend() {
	r.calm, r.cfg.Faults = true, Faults{}
	clear(r.cuts)
	for _, n := range r.nodes {
		n.island = 0
		if n.up && n.paused {
			n.wake()
		}
		r.w.after(r.w.between(0, 10*time.Second), n.start)
	}
	r.reload(true)
	r.judge.settle = r.cfg.Term.Waits() + 30*time.Second
	for l := range r.limits {
		r.judge.touch(l)
	}
}

// reload changes half of the limits, at each node at another moment, and sometimes not at one of them. all: it gives
// all limits to all nodes.
func (r *run) reload(all bool) {
	changed := make(map[int]share.Limit)
	for l := range r.limits {
		if !r.limits[l].Lasting && (all || r.w.chance(.5)) {
			changed[l] = r.another(l, all)
		}
	}
	within, forgotten := 2*time.Minute, -1
	if all {
		within = 10 * time.Second
	} else if r.w.chance(.2) {
		forgotten = r.w.rand.IntN(len(r.nodes))
	}
	for i, n := range r.nodes {
		if i == forgotten {
			continue
		}
		r.w.after(r.w.between(0, within), func() {
			take := func() {
				for l, limit := range changed {
					if n.gone[l] = limit.Name == ""; !n.gone[l] {
						n.limits[l] = limit
						n.declare(l, n.want[l])
					}
					r.judge.define(l, n.id, limit)
				}
			}
			if !n.up {
				take()
			}
			n.do(n.gen, take)
		})
	}
}

// another is how a limit is made anew: half to double of what it was at first, anything from one an hour to 2,000 a
// second, or from 1 to 1,000; without a name: it is taken away.
func (r *run) another(l int, there bool) share.Limit {
	limit, random := r.limits[l], r.w.rand.Float64()
	part := math.Pow(2, 2*random-1)
	switch was := sized(limit.Name, limit.Rate*part, float64(limit.Connections)*part); {
	case !there && r.w.chance(.15):
		return share.Limit{}
	case r.w.chance(.7):
		return was
	case limit.Connections > 0:
		return sized(limit.Name, 0, math.Pow(1000, random))
	default:
		anything := sized(limit.Name, math.Pow(7.2e6, random)/3600, 0)
		anything.Burst = max(1, int64(anything.Rate*(.5+10*r.w.rand.Float64())))
		return anything
	}
}

// sized is a limit of a rate, or else of connections.
func sized(name string, rate, connections float64) share.Limit {
	if rate > 0 {
		return share.Limit{Name: name, Rate: rate, Burst: max(1, int64(rate))}
	}
	return share.Limit{Name: name, Connections: max(1, int64(math.Round(connections)))}
}

// crash ends the process, the machine, or the machine with its disk: half, a quarter and a quarter of the times.
func (n *node) crash() {
	if !n.up {
		return
	}
	n.crashes++
	kind, back := n.w.rand.IntN(4), n.w.between(5*time.Second, 30*time.Second)
	if n.cfg.Faults.Wipe {
		kind = 0
	}
	if kind < 2 {
		back = n.w.between(time.Minute, 10*time.Minute)
	}
	n.stop(kind < 2)
	if kind == 0 {
		n.incarnation++
		clear(n.kept)
		n.process, n.memory, n.mails = 0, owner.Memory{}, make(map[string]once.Request)
		clear(n.halves)
		n.judge.lose(n.id)
		if next := n.incarnation; n.cfg.Faults.Dead {
			n.w.after(n.w.between(0, 30*time.Second), func() { n.engine.dead(n.id, next) })
		}
	}
	n.w.after(back, n.start)
}

// uses sums up what was used of rates and connections until now.
func (r *run) uses() (all [2]use) {
	for l, o := range r.judge.limits {
		if o.Connections > 0 {
			r.judge.connections(l, 0, 0)
			all[1].add(o.use)
		} else {
			all[0].add(o.use)
		}
	}
	return all
}

func (r *run) report() Report {
	rep := Report{Claimed: len(r.judge.accepted), Faults: r.judge.faults, Crashes: r.crashes, Leaves: r.leaves,
		Least: 100, Firm: 100}
	var events, connections, rates use
	var quotas use
	for l, o := range r.judge.limits {
		if q := r.judge.quotas[l]; q != nil {
			rep.Taken += q.taken
			quotas.add(q.use)
			continue
		}
		least := 50.
		if o.least.Burst < int64(len(r.nodes)) { // it goes by turns, and who has one may want less
			least = 25
		}
		if part := o.firm.percent(); o.firm.wanted >= 20 {
			if rep.Firm = min(rep.Firm, part); part < least {
				rep.Idle = append(rep.Idle, fmt.Sprintf("%s: %.1f %% of %.0f used (%+v)", o.Name, part, o.firm.wanted,
					o.least))
			}
		}
		if o.Connections > 0 {
			r.judge.connections(l, 0, 0)
			connections.add(o.use)
			rep.Stuck = max(rep.Stuck, o.peak-o.Connections)
			continue
		}
		events.add(o.use)
		rates.add(use{1, o.use.percent() / 100})
		rep.Least = min(rep.Least, o.use.percent())
	}
	away := func(i int) float64 {
		u := use{r.inLoss[i].wanted - r.atLoss[i].wanted, r.inLoss[i].used - r.atLoss[i].used}
		return u.percent()
	}
	rep.AwayEvents, rep.AwayConnections = away(0), away(1)
	rep.Mean, rep.Quotas = rates.percent(), quotas.percent()
	rep.Events, rep.Connections = events.percent(), connections.percent()
	seconds := (r.cfg.Warm + r.cfg.Length).Seconds() * float64(len(r.nodes))
	rep.Calls, rep.Messages = float64(r.calls)/seconds, float64(r.messages)/seconds
	for _, n := range r.nodes {
		if n.member.Keeper().Lost() != nil {
			rep.Halted++
		}
	}
	return rep
}
