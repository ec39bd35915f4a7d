// Package simulate shows what a plan would do with a trace of mail: production controller and
// ledger on a virtual clock, with nodes, outages and crashes as the trace says. The same seed
// gives the same bytes. It has no goroutines.
package simulate

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"time"

	"mta/warmup"
)

// Options are the settings of a simulation.
type Options struct {
	Seed     uint64
	Interval int64 // seconds that a row covers; 0: 10
	Mode     Mode  // "": the plan's pacing
	// Patience is how long mail waits before it is diverted, as much as the plan can still take in that time
	// and on that day; the modes without a ledger have none.
	Patience time.Duration
	// History is called in the end with what each day did to the stage, the last 60 of them, and how many there
	// were before. nil: nobody asks.
	History func(before int, days []warmup.Day)
}

// Header is the first line of Run's output.
const Header = "t,stage,provider,state,cap_hour,cap_day,offered,sent,diverted,held,deferred,bounced,complained"

// Run simulates a trace and writes a row for each interval and provider with any activity. Bad
// input gives an *InputError before anything is written.
func Run(plan *warmup.Plan, trace []Event, opt Options, out io.Writer) error {
	p := *plan
	p.Begin, p.DayStarts = time.Time{}, "" // a simulation begins with the warm-up
	if opt.Mode == Ledger || opt.Mode == PID {
		p.Pacing = warmup.Pacing(opt.Mode)
	}
	if opt.Interval == 0 {
		opt.Interval = 10
	}
	if opt.Interval < 1 || opt.Interval > 86_400 {
		return &InputError{"options", 0, fmt.Sprintf("interval is %d, outside 1 to 86400 seconds", opt.Interval)}
	}
	if err := p.Check(); err != nil {
		return &InputError{"plan", 0, err.Error()}
	}
	w := bufio.NewWriter(out)
	s := &simulation{world: newWorld(&p, opt.Seed, opt.Mode), out: w, interval: opt.Interval}
	if p.Overflow == warmup.Divert && s.counted == nil {
		s.patience = opt.Patience
	}
	s.names, s.weights = s.shares()
	fmt.Fprintln(w, Header)
	s.run(trace)
	if opt.History != nil {
		state := s.look()
		opt.History(int(state.Hour/24)-len(state.History), slices.Clone(state.History))
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing simulation: %w", err)
	}
	return nil
}

type simulation struct {
	*world
	out      io.Writer
	interval int64
	start    int64 // of the interval in progress
	names    []string
	weights  []float64
}

// run goes through the trace second by second, leaving out those in which nothing can happen.
func (s *simulation) run(trace []Event) {
	end := int64(0)
	if n := len(trace); n > 0 {
		end = trace[n-1].T + 1
	}
	for i, e := range trace {
		if e.Kind == End {
			end, trace = e.T, trace[:i]
			break
		}
	}
	for s.t < end {
		for s.t >= s.start+s.interval {
			s.rows()
			s.start += s.interval
		}
		for len(trace) > 0 && trace[0].T == s.t {
			s.apply(trace[0])
			trace = trace[1:]
		}
		s.step()
		s.t = s.nextSecond(trace, end)
	}
	s.t = end
	s.rows()
}

// nextSecond is the next in which there is anything to do, and not beyond the interval.
func (s *simulation) nextSecond(trace []Event, end int64) int64 {
	next := min(end, s.start+s.interval)
	if next <= s.t {
		next = s.t + 1
	}
	if len(trace) > 0 {
		next = min(next, trace[0].T)
	}
	for _, n := range s.nodes {
		next = min(next, n.wakes)
	}
	return max(next, s.t+1)
}

func (s *simulation) apply(e Event) {
	switch e.Kind {
	case Nodes:
		s.setNodes(int(e.Value))
	case Lag:
		s.lag = seconds(e.Value)
	case StoreState:
		s.down = e.Value == 0
		s.store.SetDown(s.down)
	case Crash:
		for i := range min(int(e.Value), len(s.nodes)) {
			s.nodes[i].restart()
		}
	case Offer:
		s.offerTo(e.Provider, int64(e.Value))
	default:
		s.setOutcome(e)
	}
}

// offerTo divides an offer to all providers by weight; the last parts by chance.
func (s *simulation) offerTo(name string, n int64) {
	if name != "" {
		s.offer(s.provider(name), n)
		return
	}
	var sum float64
	for _, w := range s.weights {
		sum += w
	}
	parts, left := make([]int64, len(s.names)), n
	for i, w := range s.weights {
		parts[i] = int64(float64(n) * w / sum)
		left -= parts[i]
	}
	for range left {
		x, i := s.rand.Float64()*sum, 0
		for x -= s.weights[0]; x > 0 && i+1 < len(parts); x -= s.weights[i] {
			i++
		}
		parts[i]++
	}
	for i, k := range parts {
		if k > 0 {
			s.offer(s.provider(s.names[i]), k)
		}
	}
}

func (s *simulation) setOutcome(e Event) {
	names := []string{e.Provider}
	if e.Provider == "" {
		names = slices.Clone(s.names)
		for _, v := range s.providers {
			if !slices.Contains(names, v.name) {
				names = append(names, v.name)
			}
		}
	}
	for _, name := range names {
		v := s.providers[s.provider(name)]
		switch e.Kind {
		case Defer:
			v.defers = e.Value
		case Bounce:
			v.bounces = e.Value
		case Complain:
			v.complains = e.Value
		case Block:
			v.block = e.Value == 1
		}
	}
}

// rows prints the interval in progress, as of its last second.
func (s *simulation) rows() {
	active := false
	held := make([]int64, len(s.providers))
	for i, v := range s.providers {
		for _, n := range s.nodes {
			held[i] += n.backlog[i]
		}
		active = active || held[i] > 0 || v.counts != counts{}
	}
	if !active {
		return
	}
	t := s.t
	s.t = min(t, s.start+s.interval) - 1 // the state of the interval, not of the next one
	state := s.look()
	s.t = t
	for _, i := range s.order() {
		v := s.providers[i]
		if held[i] == 0 && v.counts == (counts{}) {
			continue
		}
		caps, word := state.Caps, "normal"
		if k := state.Find(s.plan, v.name); k >= 0 {
			caps = state.Providers[k].Caps
			if state.Providers[k].Blocked() {
				word = "paused"
			}
		}
		if s.down {
			word = "store_down"
		}
		c := &v.counts
		fmt.Fprintf(s.out, "%d,%d,%s,%s,%d,%d,%d,%d,%d,%d,%d,%d,%d\n", s.start, state.Stage+1, v.name, word,
			caps.Hourly, caps.Daily, c.offered, c.sent, c.diverted, held[i], c.deferred, c.bounced, c.complained)
		*c = counts{}
	}
}

// order is that of the providers by name.
func (s *simulation) order() []int {
	order := make([]int, len(s.providers))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if s.providers[a].name < s.providers[b].name {
			return -1
		}
		return 1
	})
	return order
}
