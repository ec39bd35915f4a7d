package simulate

import (
	"slices"
	"time"

	"example.org/mta/warmup"
)

// Pacing is who decides that mail may take the warming IP.
type Pacing string

// The pacings. The last two decide by mail that was counted after it was sent: they keep no caps, are
// there to be compared with, and live nowhere but here.
const (
	Ledger  Pacing = "ledger"   // the ledger and its pacer
	PID     Pacing = "pid"      // the ledger, paced by the published controller
	BarePID Pacing = "bare-pid" // the published controller by itself
	OnOff   Pacing = "onoff"    // all below the cap and none above
)

// Pacings are all of them.
var Pacings = []string{string(Ledger), string(PID), string(BarePID), string(OnOff)}

// counted lets a share of the mail through, which it computes each second from what was counted.
type counted struct {
	world *world
	onOff bool
	state *warmup.State
	p     float64         // share of the mail that takes the IP
	pid   warmup.PIDState // begun anew each hour
	late  []late
}

// late is something about a provider that becomes known after a lag.
type late struct {
	known    time.Duration // since the begin
	provider string
	count    func(provider int)
}

func newCounted(w *world, pacing Pacing) *counted {
	return &counted{world: w, onOff: pacing == OnOff, state: warmup.NewState(w.plan, 0), p: 1}
}

// take tosses a coin for each message.
func (c *counted) take(provider string, n int64) int64 {
	heads := c.world.binomial(n, c.p)
	c.later(provider, func(i int) { c.state.Count(&c.state.Providers[i], heads) })
	return heads
}

func (c *counted) report(provider string, x warmup.Outcome, n int64) {
	var all warmup.Outcomes
	for range n {
		all.Add(x)
	}
	c.later(provider, func(i int) { c.state.Report(c.world.plan, i, all) })
}

func (c *counted) later(provider string, count func(int)) {
	c.late = append(c.late, late{seconds(float64(c.world.t)) + c.world.lag, provider, count})
}

// step counts what has become known, computes the share and tries what waits.
func (c *counted) step() {
	w := c.world
	for _, n := range w.nodes {
		n.wakes = w.t + 1
	}
	if !w.down {
		c.count()
		c.steer()
	}
	if w.plan.Overflow != warmup.Hold || c.p == 0 {
		return
	}
	for _, n := range w.nodes {
		for i := range n.lines {
			n.again(i)
		}
	}
}

func (c *counted) count() {
	w, s := c.world, c.state
	hour := s.Hour
	s.Advance(w.plan, warmup.Instant(w.t*1000))
	if s.Hour != hour {
		c.pid = warmup.PIDState{}
	}
	now := seconds(float64(w.t))
	c.late = slices.DeleteFunc(c.late, func(x late) bool {
		if x.known <= now {
			x.count(s.Provider(w.plan, x.provider))
		}
		return x.known <= now
	})
}

func (c *counted) steer() {
	s := c.state
	left := s.Caps.Hourly - s.Total.Hour
	switch {
	case s.Warm:
		c.p = 1
	case s.Total.Day >= s.Caps.Daily || c.onOff && left <= 0:
		c.p = 0
	case c.onOff:
		c.p = 1
	default:
		var u float64
		u, c.pid = c.pid.Step(float64(left), 1000)
		c.p = warmup.Probability(u)
	}
}
