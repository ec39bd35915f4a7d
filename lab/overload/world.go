package overload

import (
	"math/rand/v2"
	"strconv"
	"time"

	"example.org/mta/admission"
	"example.org/mta/internal/minheap"
)

// Options are how a simulation is run.
type Options struct {
	Seed    uint64
	Law     func() admission.Law // of each node
	Timeout time.Duration        // how long a submission waits for a slot
	Tune    bool                 // the limit is found by the tuner, and slots is where it begins to hurt
}

// event is something that happens at a time.
type event struct {
	at  time.Duration // since the epoch
	seq uint64        // of those at the same time, in the order in which they were made
	do  func()
}

// world is the machines and their clients.
type world struct {
	opts   Options
	now    time.Time
	agenda minheap.Heap[*event]
	seq    uint64
	random *rand.Rand

	rps, capacity float64
	slots         int
	mix           [admission.Tiers]float64
	tenants       int
	nodes         []*node
	arriving      uint64 // which arrival is awaited: a changed rate makes another one

	row *Row
}

// node is one machine.
type node struct {
	*admission.Controller
	fair admission.Fair
	busy int
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(opts Options) *world {
	w := &world{opts: opts, now: epoch, random: rand.New(rand.NewPCG(opts.Seed, 1)), slots: 20}
	w.agenda = minheap.New(func(a, b *event) bool {
		return a.at < b.at || a.at == b.at && a.seq < b.seq
	}, nil)
	w.mix[3] = 1
	w.resize(1)
	return w
}

// resize changes how many nodes there are. Those that stay keep what they have learned.
func (w *world) resize(n int) {
	for len(w.nodes) < n {
		cfg := admission.Config{Now: func() time.Time { return w.now }, Limit: float64(w.slots)}
		if w.opts.Law != nil {
			cfg.Law = w.opts.Law()
		}
		if w.opts.Tune {
			cfg.Tuner = new(admission.Tuner)
		}
		w.nodes = append(w.nodes, &node{Controller: admission.New(cfg)})
	}
	w.nodes = w.nodes[:n]
}

func (w *world) after(d time.Duration, do func()) {
	w.seq++
	w.agenda.Push(&event{w.now.Sub(epoch) + d, w.seq, do})
}

// runUntil lets everything happen before t.
func (w *world) runUntil(t time.Time) {
	for w.agenda.Len() > 0 && w.agenda.Top().at < t.Sub(epoch) {
		e := w.agenda.Pop()
		w.now = epoch.Add(e.at)
		e.do()
	}
	w.now = t
}

// arrive lets the next submission come, and awaits the one after it.
func (w *world) arrive(which uint64) {
	if which != w.arriving || w.rps == 0 {
		return
	}
	w.after(seconds(w.random.ExpFloat64()/w.rps), func() { w.arrive(which) })
	n := w.nodes[w.random.IntN(len(w.nodes))]
	w.offer(n, w.priority(n))
}

// setRate changes what is offered.
func (w *world) setRate(rps float64) {
	w.rps = rps
	w.arriving++
	which := w.arriving
	if rps > 0 {
		w.after(seconds(w.random.ExpFloat64()/rps), func() { w.arrive(which) })
	}
}

// priority draws the tier by the mix, and a tenant.
func (w *world) priority(n *node) admission.Priority {
	tier, at := 0, w.random.Float64()
	for tier < admission.Tiers-1 && at >= w.mix[tier] {
		at -= w.mix[tier]
		tier++
	}
	if w.tenants == 0 {
		return admission.Of(tier, w.random.IntN(admission.Cohorts))
	}
	p, _ := n.fair.Priority(w.now, tier, strconv.Itoa(w.random.IntN(w.tenants)), 0)
	return p
}

// offer is one submission at one node.
func (w *world) offer(n *node, p admission.Priority) {
	w.row.count(p, func(c *Counts) { c.Offered++ })
	t, refusal := n.Admit(p)
	if refusal != nil {
		w.row.count(p, func(c *Counts) { c.Rejected++ })
		return
	}
	w.row.count(p, func(c *Counts) { c.Admitted++ })
	lost := func() { w.row.count(p, func(c *Counts) { c.TimedOut++ }) }
	got, place := t.Ask(func(got bool) {
		if got {
			w.after(0, func() { w.serve(n, t, p) })
			return
		}
		lost()
	})
	switch {
	case got:
		w.serve(n, t, p)
	case place == nil:
		lost()
	default:
		w.after(w.opts.Timeout, func() {
			if place.Leave() {
				lost()
			}
		})
	}
}

// serve keeps a slot for as long as the work takes. A node has as many hands as the trace has slots:
// where the tuner lets more in, all take longer.
func (w *world) serve(n *node, t admission.Ticket, p admission.Priority) {
	n.busy++
	mean := float64(w.slots*len(w.nodes)) / max(w.capacity, 1e-9)
	crowd := max(1, float64(n.busy)/float64(w.slots))
	d := seconds(min(mean*crowd*(.5+w.random.Float64()), maxSeconds))
	w.after(d, func() {
		n.busy--
		w.row.count(p, func(c *Counts) { c.Served++ })
		t.Done(d)
	})
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
