// Package simulate shows what a plan would do with a trace of mail: production controller and
// ledger on a virtual clock, with nodes, outages and crashes as the trace says. The same seed
// gives the same bytes. It has no goroutines.
package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"example.org/mta/internal/plot"
	"example.org/mta/warmup"
)

// Options are the settings of a simulation.
type Options struct {
	Seed     uint64
	Interval int64  // seconds that a row covers; 0: 10
	Pacing   Pacing // "": the plan's pacing
	// Patience is how long mail waits before it is diverted: see warmup.Patience. It is half of MaxAge at most. The
	// pacings without a ledger have none.
	Patience time.Duration
	// MaxAge is the age at which mail for a provider expires. Nil: none does.
	MaxAge func(provider string) time.Duration
	// Stop is asked now and then; an error ends the simulation, and is that of Run. Nil: nothing does.
	Stop func() error
}

// stopSteps is how many steps of a simulation come between two questions whether to stop: about a millisecond.
const stopSteps = 256

// Row is what became of a provider's mail in an interval.
type Row struct {
	T        int64  `json:"t"` // when the interval begins, in seconds
	Stage    int64  `json:"stage"`
	Provider string `json:"provider"`
	State    string `json:"state"` // normal, paused or store_down
	CapHour  int64  `json:"cap_hour"`
	CapDay   int64  `json:"cap_day"`
	Counts
}

// Counts are those of an interval, in recipients.
type Counts struct {
	Offered    int64 `json:"offered"`
	Sent       int64 `json:"sent"`
	Diverted   int64 `json:"diverted"`
	Expired    int64 `json:"expired"`
	Waiting    int64 `json:"waiting"` // at the interval's end
	Deferred   int64 `json:"deferred"`
	Bounced    int64 `json:"bounced"`
	Complained int64 `json:"complained"`
}

// Header names the columns of a row as CSV.
const Header = "t,stage,provider,state,cap_hour,cap_day,offered,sent," +
	"diverted,waiting,deferred,bounced,complained,expired"

// String gives the row as CSV.
func (r *Row) String() string {
	return fmt.Sprintf("%d,%d,%s,%s,%d,%d,%d,%d,%d,%d,%d,%d,%d,%d", r.T, r.Stage, r.Provider, r.State,
		r.CapHour, r.CapDay,
		r.Offered, r.Sent, r.Diverted, r.Waiting, r.Deferred, r.Bounced, r.Complained, r.Expired)
}

// History is what each day did to the stage.
type History struct {
	Before int          // days that were before those
	Days   []warmup.Day // the last 60 that have ended
}

// Run simulates a trace and calls row for each interval and provider with any activity, in the order of time and
// names. Bad input gives an *InputError before any row.
func Run(plan *warmup.Plan, events []Event, opt Options, row func(*Row)) (*History, error) {
	p := *plan
	p.Begin, p.DayStarts = time.Time{}, "" // a simulation begins with the warm-up
	if opt.Pacing == Ledger || opt.Pacing == PID {
		p.Pacing = warmup.Pacing(opt.Pacing)
	}
	opt.Interval = cmp.Or(opt.Interval, 10)
	if opt.Interval < 1 || opt.Interval > daySeconds {
		return nil, plot.Wrong("options", "interval is %d, outside 1 to %d seconds", opt.Interval, daySeconds)
	}
	if err := p.Check(); err != nil {
		return nil, plot.Wrong("plan", "%v", err)
	}
	w := newWorld(&p, opt.Seed, opt.Pacing)
	w.interval, w.row = opt.Interval, row
	if w.counted == nil {
		w.patience = opt.Patience
	}
	w.maxAge = opt.MaxAge
	if opt.Stop == nil {
		opt.Stop = func() error { return nil }
	}
	if err := w.run(events, opt.Stop); err != nil {
		return nil, err
	}
	end := w.allowance(w.t)
	return &History{int(end.Hour/24) - len(end.History), slices.Clone(end.History)}, nil
}

// run goes through the trace second by second, leaving out those in which nothing can happen.
func (w *world) run(trace []Event, stop func() error) error {
	end := int64(0)
	if n := len(trace); n > 0 {
		end = trace[n-1].T + 1
	}
	if i := slices.IndexFunc(trace, func(e Event) bool { return e.Kind == End }); i >= 0 {
		end, trace = trace[i].T, trace[:i]
	}
	for step := 0; w.t < end; step++ {
		if step%stopSteps == 0 {
			if err := stop(); err != nil {
				return err
			}
		}
		for w.t >= w.start+w.interval {
			w.rows()
			w.start += w.interval
		}
		for len(trace) > 0 && trace[0].T == w.t {
			w.apply(trace[0])
			trace = trace[1:]
		}
		w.step()
		w.t = w.nextSecond(trace, end)
	}
	w.t = end
	w.rows()
	return nil
}

// nextSecond is the next in which there is anything to do, and not beyond the interval.
func (w *world) nextSecond(trace []Event, end int64) int64 {
	next := end
	if w.start+w.interval > w.t {
		next = min(end, w.start+w.interval)
	}
	if len(trace) > 0 {
		next = min(next, trace[0].T)
	}
	for _, n := range w.nodes {
		next = min(next, n.wakes)
	}
	return max(next, w.t+1)
}

func (w *world) apply(e Event) {
	switch e.Kind {
	case Nodes:
		w.setNodes(int(e.Value))
	case Lag:
		w.lag = seconds(e.Value)
	case StoreState:
		w.down = e.Value == 0
		w.store.SetDown(w.down)
	case Crash:
		for _, n := range w.nodes[:min(int(e.Value), len(w.nodes))] {
			n.restart()
		}
	case Offer:
		w.offerTo(e.Provider, int64(e.Value))
	default:
		w.setOutcome(e)
	}
}

// offerTo divides an offer to all providers by weight; the last parts by chance.
func (w *world) offerTo(name string, n int64) {
	if name != "" {
		w.offer(w.provider(name), n)
		return
	}
	var sum float64
	for _, name := range w.names {
		sum += w.weights[name]
	}
	parts, left := make([]int64, len(w.names)), n
	for i, name := range w.names {
		parts[i] = int64(float64(n) * w.weights[name] / sum)
		left -= parts[i]
	}
	for range left {
		x, i := w.rand.Float64()*sum, 0
		for x -= w.weights[w.names[0]]; x > 0 && i+1 < len(parts); x -= w.weights[w.names[i]] {
			i++
		}
		parts[i]++
	}
	for i, k := range parts {
		if k > 0 {
			w.offer(w.provider(w.names[i]), k)
		}
	}
}

func (w *world) setOutcome(e Event) {
	names := []string{e.Provider}
	if e.Provider == "" {
		names = slices.AppendSeq(slices.Clone(w.names), maps.Keys(w.index))
	}
	for _, name := range names {
		v := w.providers[w.provider(name)]
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

// rows gives those of the interval in progress, as of its last second.
func (w *world) rows() {
	var state *warmup.State
	for _, name := range slices.Sorted(maps.Keys(w.index)) {
		i := w.index[name]
		v := w.providers[i]
		for _, n := range w.nodes {
			v.Waiting += n.lines[i].held
		}
		if v.Counts == (Counts{}) {
			continue
		}
		if state == nil {
			state = w.allowance(min(w.t, w.start+w.interval) - 1) // that of the interval, not of the next one
		}
		row := Row{T: w.start, Stage: int64(state.Stage + 1), Provider: name, State: "normal",
			CapHour: state.Caps.Hourly, CapDay: state.Caps.Daily, Counts: v.Counts}
		if k := state.Find(w.plan, name); k >= 0 {
			of := &state.Providers[k]
			row.CapHour, row.CapDay = of.Caps.Hourly, of.Caps.Daily
			if of.Blocked() {
				row.State = "paused"
			}
		}
		if w.down {
			row.State = "store_down"
		}
		w.row(&row)
		v.Counts = Counts{}
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
