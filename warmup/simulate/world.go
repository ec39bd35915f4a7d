package simulate

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"mta/warmup"
	"mta/warmup/memstore"
)

// ip names the one IP of a simulation.
const ip = "warming"

// all is the provider of a trace and of a row that names none.
const all = "*"

// world is the plant: nodes with the production controller, a store that they share, a virtual
// clock, and providers that answer as the trace says.
type world struct {
	plan  *warmup.Plan
	rand  *rand.Rand
	store *memstore.Store
	nodes []*node
	made  int // nodes ever, for their names
	t     int64
	lag   time.Duration
	down  bool

	providers []*provider
	index     map[string]int

	counted *counted     // nil: the ledger decides
	state   warmup.State // as the store has it, for the rows
	buf     []byte
	onSent  func(provider int, n int64) // for tests
}

// provider is what the trace says of one, and its counts of the interval in progress.
type provider struct {
	name                       string
	defers, bounces, complains float64
	block                      bool
	counts
}

type counts struct {
	offered, sent, diverted, deferred, bounced, complained int64
}

// node is one relay.
type node struct {
	world   *world
	ctl     *warmup.Controller
	backlog []int64 // by provider: held until there are tokens
	pending []int64 // by provider: of this second, until the store has answered
	wakes   int64   // when it wants to step next
}

// epoch is when simulations begin; the store's clock is then 0.
var epoch = time.Unix(0, 0).UTC()

func newWorld(p *warmup.Plan, seed uint64, mode Mode) *world {
	w := &world{plan: p, rand: rand.New(rand.NewPCG(seed, 0x77a2)), index: make(map[string]int)}
	w.store = memstore.New(func() warmup.Instant { return warmup.Instant(w.t * 1000) })
	if mode == BarePID || mode == OnOff {
		w.counted = newCounted(w, mode)
	}
	w.setNodes(1)
	return w
}

func (w *world) now() time.Time { return epoch.Add(time.Duration(w.t) * time.Second) }

// provider gives the index of a provider, adding it if need be.
func (w *world) provider(name string) int {
	i, ok := w.index[name]
	if !ok {
		i = len(w.providers)
		w.index[name] = i
		w.providers = append(w.providers, &provider{name: name})
		for _, n := range w.nodes {
			n.grow()
		}
	}
	return i
}

// shares are the providers, with weights, among whom an offer to all is divided.
func (w *world) shares() (names []string, weights []float64) {
	seen := make(map[string]bool)
	for i := range w.plan.Stages {
		for name := range w.plan.Stages[i].Providers {
			seen[name] = true
		}
	}
	for name := range w.plan.Weights {
		seen[name] = true
	}
	delete(seen, all)
	if len(seen) == 0 {
		return []string{all}, []float64{1}
	}
	for _, name := range sorted(seen) {
		weight, ok := w.plan.Weights[name]
		if !ok {
			weight = 1
		}
		names, weights = append(names, name), append(weights, weight)
	}
	return names, weights
}

func (w *world) setNodes(n int) {
	for len(w.nodes) < n {
		nd := &node{world: w}
		nd.restart()
		w.nodes = append(w.nodes, nd)
	}
	for _, gone := range w.nodes[n:] { // its queue is taken over, its memory is not
		for i, held := range gone.backlog {
			w.nodes[0].hold(i, held)
		}
	}
	w.nodes = w.nodes[:n]
}

// restart gives a node a controller without memory.
func (n *node) restart() {
	w := n.world
	w.made++
	n.ctl = warmup.New(warmup.Config{
		Node: fmt.Sprint("node", w.made), Store: w.store, Now: w.now, OnRoom: n.onRoom,
		StatsLag: func() time.Duration { return w.lag },
		Rand:     rand.New(rand.NewPCG(w.rand.Uint64(), w.rand.Uint64())),
	})
	if err := n.ctl.Assign(map[string]*warmup.Plan{ip: w.plan}); err != nil {
		panic(err) // Run has checked the plan
	}
	n.wakes = w.t
	n.grow()
	backlog := n.backlog
	n.backlog = make([]int64, len(backlog))
	for i, held := range backlog {
		n.hold(i, held)
	}
}

func (n *node) grow() {
	for len(n.backlog) < len(n.world.providers) {
		n.backlog, n.pending = append(n.backlog, 0), append(n.pending, 0)
	}
}

// hold makes messages wait in the node's queue.
func (n *node) hold(provider int, messages int64) {
	if messages == 0 {
		return
	}
	n.grow()
	n.backlog[provider] += messages
	if n.world.counted != nil {
		return // step tries it again
	}
	n.ctl.Held(ip, n.world.providers[provider].name, messages)
}

// onRoom is warmup.Config.OnRoom: what waits is tried again.
func (n *node) onRoom(key string, room int64) int64 {
	i := n.world.index[key[strings.LastIndexByte(key, '/')+1:]]
	room = min(room, n.backlog[i])
	granted, _ := n.ctl.TakeSome(ip, n.world.providers[i].name, room, true)
	n.sent(i, granted)
	n.backlog[i] -= room
	n.hold(i, room-granted)
	return room
}

// offer brings messages to random nodes.
func (w *world) offer(provider int, messages int64) {
	w.providers[provider].offered += messages
	m := int64(len(w.nodes))
	each, rest := int64(0), messages
	if messages > 64*m { // evenly, but for a random rest
		each, rest = messages/m, messages%m
	}
	extra := make([]int64, m)
	for range rest {
		extra[w.rand.Int64N(m)]++
	}
	for i, n := range w.nodes {
		if k := each + extra[i]; k > 0 {
			n.take(provider, k, false)
		}
	}
}

// take tries messages and sends, diverts or keeps them.
func (n *node) take(provider int, messages int64, again bool) {
	if c := n.world.counted; c != nil {
		granted := c.take(provider, messages)
		n.sent(provider, granted)
		n.spill(provider, messages-granted)
		return
	}
	granted, rest := n.ctl.TakeSome(ip, n.world.providers[provider].name, messages, again)
	n.sent(provider, granted)
	if rest == warmup.Asking {
		n.pending[provider] += messages - granted
		return
	}
	n.spill(provider, messages-granted)
}

// spill is what happens to mail that has no room.
func (n *node) spill(provider int, messages int64) {
	if n.world.plan.Overflow == warmup.Hold {
		n.hold(provider, messages)
		return
	}
	n.world.providers[provider].diverted += messages
}

// sent has the provider answer.
func (n *node) sent(provider int, messages int64) {
	if messages == 0 {
		return
	}
	w, v := n.world, n.world.providers[provider]
	v.sent += messages
	if w.onSent != nil {
		w.onSent(provider, messages)
	}
	if v.block {
		v.deferred += messages
		n.report(v, warmup.PolicyRefusal, messages)
		return
	}
	deferred := w.binomial(messages, v.defers)
	bounced := w.binomial(messages-deferred, v.bounces)
	delivered := messages - deferred - bounced
	complained := w.binomial(delivered, v.complains)
	v.deferred += deferred
	v.bounced += bounced
	v.complained += complained
	n.report(v, warmup.Delivered, delivered)
	n.report(v, warmup.Deferred, deferred)
	n.report(v, warmup.HardBounce, bounced)
	n.report(v, warmup.Complaint, complained)
}

// report tells what became of messages.
func (n *node) report(v *provider, x warmup.Outcome, messages int64) {
	if c := n.world.counted; c != nil {
		c.report(v.name, x, messages)
		return
	}
	n.ctl.ReportSome(ip, v.name, x, messages)
}

// binomial draws how many of n happen with probability p.
func (w *world) binomial(n int64, p float64) int64 {
	switch {
	case n == 0 || p <= 0:
		return 0
	case p >= 1:
		return n
	case n > 1000: // the normal approximation
		mean, sd := float64(n)*p, math.Sqrt(float64(n)*p*(1-p))
		return min(n, max(0, int64(math.Round(mean+sd*w.rand.NormFloat64()))))
	}
	var k int64
	for range n {
		if w.rand.Float64() < p {
			k++
		}
	}
	return k
}

// maxRounds bounds how often a node asks in one second.
const maxRounds = 8

// step lets every node work that wants to, until the store has answered everybody.
func (w *world) step() {
	if w.counted != nil {
		w.counted.step()
		return
	}
	for _, n := range w.nodes {
		for round := 0; round == 0 && w.t >= n.wakes || n.ctl.Asking(); round++ {
			wait := n.ctl.Step(context.Background())
			n.wakes = w.t + max(1, int64(math.Ceil(wait.Seconds())))
			for i, k := range n.pending {
				if k > 0 {
					n.pending[i] = 0
					if round < maxRounds {
						n.take(i, k, true)
					} else {
						n.spill(i, k)
					}
				}
			}
			if round >= maxRounds {
				break
			}
		}
	}
}

// look brings state up to now, as the store has it.
func (w *world) look() *warmup.State {
	if w.counted != nil {
		w.counted.state.Advance(w.plan, warmup.Instant(w.t*1000))
		return w.counted.state
	}
	w.buf = w.store.Peek(ip, w.buf[:0])
	if err := w.state.Decode(w.buf); err != nil {
		w.state = *warmup.NewState(w.plan, 0)
	}
	w.state.Advance(w.plan, warmup.Instant(w.t*1000))
	return &w.state
}
