package simulate

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
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

	patience time.Duration // of mail that would be diverted

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
	backlog []int64   // by provider: held until there are tokens, or the store has answered
	came    [][]batch // by provider: of what has patience, the oldest first
	wakes   int64     // when it wants to step next
}

// batch is messages that came in one second.
type batch struct{ t, n int64 }

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

// shares are the providers, with weights, among whom an offer to all is divided: by the plan's shares, where it
// has some, and what they leave to other.
func (w *world) shares() (names []string, weights []float64) {
	if len(w.plan.Shares) > 0 {
		rest := 1.
		for _, name := range slices.Sorted(maps.Keys(w.plan.Shares)) {
			share := min(rest, w.plan.Shares[name])
			names, weights, rest = append(names, name), append(weights, share), rest-share
		}
		if i := slices.Index(names, warmup.Other); i >= 0 {
			weights[i] += rest
			return names, weights
		}
		return append(names, warmup.Other), append(weights, rest)
	}
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
			w.nodes[0].came[i] = append(w.nodes[0].came[i], gone.came[i]...)
			w.nodes[0].backlog[i] += held
			w.nodes[0].again(i)
		}
	}
	w.nodes = w.nodes[:n]
}

// restart gives a node a controller without memory.
func (n *node) restart() {
	w := n.world
	w.made++
	n.ctl = warmup.New(warmup.Config{
		Node: fmt.Sprint("node", w.made), Store: w.store, Now: w.now, OnRoom: n.onRoom, Waiting: n.waiting,
		StatsLag: func() time.Duration { return w.lag },
		Rand:     rand.New(rand.NewPCG(w.rand.Uint64(), w.rand.Uint64())),
	})
	if err := n.ctl.Assign(map[string]*warmup.Plan{ip: w.plan}); err != nil {
		panic(err) // Run has checked the plan
	}
	n.wakes = w.t
	n.grow()
	for i := range n.backlog { // what waits is looked at anew
		n.again(i)
	}
}

func (n *node) grow() {
	for len(n.backlog) < len(n.world.providers) {
		n.backlog, n.came = append(n.backlog, 0), append(n.came, nil)
	}
}

// waiting is warmup.Config.Waiting.
func (n *node) waiting(_, provider string) int64 {
	if i, ok := n.world.index[provider]; ok && i < len(n.backlog) {
		return n.backlog[i]
	}
	return 0
}

// onRoom is warmup.Config.OnRoom: what waits is tried again.
func (n *node) onRoom(_, provider string) {
	if i, ok := n.world.index[provider]; ok {
		n.again(i)
	}
}

// again tries what waits.
func (n *node) again(provider int) {
	held := n.backlog[provider]
	if n.backlog[provider] = 0; held > 0 {
		n.take(provider, held-n.try(provider, held, true))
	}
}

// take lets messages out that have had patience, the oldest first; the others stay.
func (n *node) take(provider int, messages int64) {
	came := n.came[provider]
	for len(came) > 0 && messages >= came[0].n {
		messages -= came[0].n
		came = came[1:]
	}
	if len(came) > 0 {
		came[0].n -= messages
	}
	n.came[provider] = came
}

// impatient diverts what has waited for its time.
func (n *node) impatient() {
	for i := range n.came {
		for len(n.came[i]) > 0 && n.world.t-n.came[i][0].t >= int64(n.world.patience/time.Second) {
			gone := n.came[i][0].n
			n.came[i] = n.came[i][1:]
			n.backlog[i] -= gone
			n.world.providers[i].diverted += gone
		}
	}
}

// fit is how many of some messages wait since the plan can still take them.
func (n *node) fit(provider int, messages int64) int64 {
	var waiting, all int64
	for _, nd := range n.world.nodes {
		for i, held := range nd.backlog {
			if all += held; i == provider {
				waiting += held
			}
		}
	}
	of, total := n.ctl.Left(ip, n.world.providers[provider].name, n.world.patience)
	return max(0, min(messages, of-waiting, total-all))
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
			n.try(provider, k, false)
		}
	}
}

// try sends, diverts or keeps messages, and returns how many it keeps: those that are undecided, are held, or
// have patience.
func (n *node) try(provider int, messages int64, again bool) (kept int64) {
	if messages == 0 {
		return 0
	}
	w, v := n.world, n.world.providers[provider]
	out, verdict := n.look(provider, messages, again)
	n.sent(provider, out)
	kept = messages - out
	switch {
	case w.plan.Overflow == warmup.Hold:
	case w.patience > 0 && again: // until its time is over
	case w.patience > 0:
		fits := n.fit(provider, kept)
		v.diverted += kept - fits
		if kept = fits; kept > 0 {
			n.came[provider] = append(n.came[provider], batch{w.t, kept})
		}
	case verdict != warmup.Asking:
		v.diverted += kept
		kept = 0
	}
	n.backlog[provider] += kept
	return kept
}

// look sends as many messages as may leave, and gives the verdict about the others.
func (n *node) look(provider int, messages int64, again bool) (int64, warmup.Verdict) {
	if c := n.world.counted; c != nil {
		return c.take(provider, messages), warmup.Refused
	}
	name := n.world.providers[provider].name
	out, v := n.ctl.Look(ip, warmup.Ask{Provider: name, Recipients: messages, Again: again})
	if out > 0 && !n.ctl.Begin(ip, name, out) {
		out = 0
	}
	return out, v
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

// step lets every node work that wants to, until the store has answered everybody.
func (w *world) step() {
	if w.counted != nil {
		w.counted.step()
		return
	}
	for _, n := range w.nodes {
		n.impatient()
		for first := true; first && w.t >= n.wakes || n.ctl.Asking(); first = false {
			wait := n.ctl.Step(context.Background())
			n.wakes = w.t + max(1, int64(math.Ceil(wait.Seconds())))
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
