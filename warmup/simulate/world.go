package simulate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"example.org/mta/warmup"
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
	store *warmup.Memory
	nodes []*node
	made  int   // nodes ever, for their names
	t     int64 // seconds since the begin
	lag   time.Duration
	down  bool

	interval, start int64 // that a row covers, and when the one in progress began
	row             func(*Row)

	patience time.Duration // of mail that would be diverted
	maxAge   func(provider string) time.Duration

	names     []string           // the providers among whom an offer to all is divided, sorted
	weights   map[string]float64 // by which it is
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
	life                       time.Duration // that its mail can wait; 0: it can't, or, if it is held, without end
	Counts
}

// node is one relay.
type node struct {
	world *world
	ctl   *warmup.Controller
	lines []line // by provider
	wakes int64  // when it wants to step next
}

// line is mail that is held until there are tokens, or the store has answered.
type line struct {
	held int64
	open bool    // some of it waited for an answer of the store, and may not wait on
	came []batch // of what can't wait without end, the oldest first
}

// batch is messages that came in one second.
type batch struct{ t, n int64 }

// epoch is when simulations begin; the store's clock is then 0.
var epoch = time.Unix(0, 0).UTC()

func newWorld(p *warmup.Plan, seed uint64, pacing Pacing) *world {
	w := &world{plan: p, rand: rand.New(rand.NewPCG(seed, 0x77a2)), index: make(map[string]int)}
	w.store = warmup.NewMemory(func() warmup.Instant { return warmup.Instant(w.t * 1000) })
	if pacing == BarePID || pacing == OnOff {
		w.counted = newCounted(w, pacing)
	}
	w.weights = shares(p)
	w.names = slices.Sorted(maps.Keys(w.weights))
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
		w.providers = append(w.providers, &provider{name: name, life: w.life(name)})
		for _, n := range w.nodes {
			n.grow()
		}
	}
	return i
}

// life is how long mail for a provider can wait: until it is diverted or, if it is held, expires.
func (w *world) life(provider string) time.Duration {
	hold := w.plan.Overflow == warmup.Hold
	switch {
	case w.maxAge == nil && hold:
		return 0
	case w.maxAge == nil:
		return w.patience
	case hold:
		return w.maxAge(provider)
	}
	return min(w.patience, w.maxAge(provider)/2)
}

// shares are the weights of the providers among whom an offer to all is divided: the plan's shares, where it
// has some, and what they leave to other.
func shares(p *warmup.Plan) map[string]float64 {
	weights := make(map[string]float64)
	if len(p.Shares) > 0 {
		rest := 1.
		for _, name := range slices.Sorted(maps.Keys(p.Shares)) {
			weights[name] = min(rest, p.Shares[name])
			rest -= weights[name]
		}
		weights[warmup.Other] += rest
		return weights
	}
	for i := range p.Stages {
		for name := range p.Stages[i].Providers {
			weights[name] = 1
		}
	}
	maps.Copy(weights, p.Weights)
	delete(weights, all)
	if len(weights) == 0 {
		weights[all] = 1
	}
	return weights
}

func (w *world) setNodes(n int) {
	for len(w.nodes) < n {
		nd := &node{world: w}
		nd.restart()
		w.nodes = append(w.nodes, nd)
	}
	for _, gone := range w.nodes[n:] { // its queue is taken over, its memory is not
		for i, l := range gone.lines {
			to := &w.nodes[0].lines[i]
			to.came, to.held = append(to.came, l.came...), to.held+l.held
			slices.SortStableFunc(to.came, func(a, b batch) int { return cmp.Compare(a.t, b.t) })
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
		Node: fmt.Sprint("node", w.made), Store: w.store, Now: w.now, OnTokens: n.onTokens, Waiting: n.waiting,
		StatsLag: func() time.Duration { return w.lag },
		Rand:     rand.New(rand.NewPCG(w.rand.Uint64(), w.rand.Uint64())),
	})
	if err := n.ctl.Assign(map[string]*warmup.Plan{ip: w.plan}); err != nil {
		panic(err) // Run has checked the plan
	}
	n.wakes = w.t
	n.grow()
	for i := range n.lines { // what waits is looked at anew
		n.again(i)
	}
}

func (n *node) grow() {
	n.lines = append(n.lines, make([]line, len(n.world.providers)-len(n.lines))...)
}

// waiting is warmup.Config.Waiting.
func (n *node) waiting(_, provider string) int64 {
	if i, ok := n.world.index[provider]; ok && i < len(n.lines) {
		return n.lines[i].held
	}
	return 0
}

// onTokens is warmup.Config.OnTokens: what waits is tried again.
func (n *node) onTokens(_, provider string) {
	if i, ok := n.world.index[provider]; ok {
		n.again(i)
	}
}

// again tries what waits.
func (n *node) again(provider int) {
	l := &n.lines[provider]
	if held := l.held; held > 0 {
		l.held, l.open = 0, false
		kept := n.try(provider, held, true)
		n.lines[provider].take(held - kept)
	}
}

// take lets messages out, the oldest first; the others stay.
func (l *line) take(messages int64) {
	for len(l.came) > 0 && messages >= l.came[0].n {
		messages -= l.came[0].n
		l.came = l.came[1:]
	}
	if len(l.came) > 0 {
		l.came[0].n -= messages
	}
}

// end diverts what has waited for its time, or lets it expire.
func (n *node) end() {
	for i := range n.lines {
		l, v := &n.lines[i], n.world.providers[i]
		to := &v.Diverted
		if n.world.plan.Overflow == warmup.Hold {
			to = &v.Expired
		}
		for len(l.came) > 0 && n.world.t-l.came[0].t >= int64(v.life/time.Second) {
			l.held -= l.came[0].n
			*to += l.came[0].n
			l.came = l.came[1:]
		}
	}
}

// heldLine is the warmup.Line of a provider's mail at a node, which has its part of what is left.
type heldLine struct {
	*node
	provider int
}

func (l heldLine) Left(within time.Duration) (of, all int64) {
	of, all = l.ctl.Left(ip, l.world.providers[l.provider].name, within)
	nodes := int64(len(l.world.nodes))
	return of / nodes, all / nodes
}

func (l heldLine) Waiting() (of, all int64) {
	for _, other := range l.lines {
		all += other.held
	}
	return l.lines[l.provider].held, all
}

// offer brings messages to random nodes.
func (w *world) offer(provider int, messages int64) {
	w.providers[provider].Offered += messages
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

// try sends, diverts or keeps messages as the relay does, each with one recipient, and returns how many it keeps.
func (n *node) try(provider int, messages int64, again bool) (kept int64) {
	life := n.world.providers[provider].life
	p := warmup.Patience{Hold: n.world.plan.Overflow == warmup.Hold, Total: life, Left: life, Turn: again}
	join, behind := p.Join(heldLine{n, provider}, messages)
	return n.decide(provider, p, join, behind) + n.decide(provider, p, messages-join, 0)
}

// decide is try for messages that go behind so many that wait.
func (n *node) decide(provider int, p warmup.Patience, messages, behind int64) (kept int64) {
	if messages == 0 {
		return 0
	}
	out, judgement := n.allowance(provider, messages, behind, p.Turn)
	n.sent(provider, out)
	if kept = messages - out; behind == 0 {
		kept = p.Stay(heldLine{n, provider}, kept, judgement == warmup.Asking)
	}
	n.world.providers[provider].Diverted += messages - out - kept
	if kept == 0 {
		return 0
	}
	l := &n.lines[provider]
	l.held += kept
	l.open = !p.Hold && (!p.Turn || judgement == warmup.Asking)
	if !p.Turn && p.Left > 0 {
		l.came = append(l.came, batch{n.world.t, kept})
	}
	return kept
}

// allowance sends as many messages as may leave, and gives the verdict about the others.
func (n *node) allowance(provider int, messages, behind int64, again bool) (int64, warmup.Decision) {
	name := n.world.providers[provider].name
	if c := n.world.counted; c != nil {
		return c.take(name, messages), warmup.Refused
	}
	out, v := n.ctl.Allowance(ip, warmup.Ask{Provider: name, Recipients: messages, Again: again, Behind: behind})
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
	v.Sent += messages
	if w.onSent != nil {
		w.onSent(provider, messages)
	}
	if v.block {
		v.Deferred += messages
		n.report(v, warmup.PolicyRefusal, messages)
		return
	}
	deferred := w.binomial(messages, v.defers)
	bounced := w.binomial(messages-deferred, v.bounces)
	delivered := messages - deferred - bounced
	complained := w.binomial(delivered, v.complains)
	v.Deferred += deferred
	v.Bounced += bounced
	v.Complained += complained
	n.report(v, warmup.Delivered, delivered)
	n.report(v, warmup.Deferred, deferred)
	n.report(v, warmup.HardBounce, bounced)
	n.report(v, warmup.Complaint, complained)
}

// report notes what became of messages.
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
	for _, n := range w.nodes {
		n.end()
	}
	if w.counted != nil {
		w.counted.step()
		return
	}
	for _, n := range w.nodes {
		for first := true; first && w.t >= n.wakes || n.ctl.Asking(); first = false {
			wait := n.ctl.Step(context.Background())
			n.wakes = w.t + max(1, int64(math.Ceil(wait.Seconds())))
		}
		n.answered()
	}
}

// answered decides about the mail that waited for an answer of the store.
func (n *node) answered() {
	for i := range n.lines {
		if n.lines[i].open {
			n.again(i)
		}
		if n.lines[i].open { // the store has yet to answer
			n.wakes = min(n.wakes, n.world.t+1)
		}
	}
}

// allowance gives the state as the store has it, brought up to a time.
func (w *world) allowance(t int64) *warmup.State {
	state := &w.state
	if w.counted != nil {
		state = w.counted.state
	} else if w.buf = w.store.Peek(ip, w.buf[:0]); state.Decode(w.buf) != nil {
		*state = *warmup.NewState(w.plan, 0)
	}
	state.Advance(w.plan, warmup.Instant(t*1000))
	return state
}
