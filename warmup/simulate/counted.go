package simulate

import (
	"time"

	"mta/internal/pid"
	"mta/warmup"
)

// Mode is who decides that mail may take the warming IP.
type Mode string

// The modes. The last two decide by mail that was counted after it was sent: they keep no caps, are
// there to be compared with, and live nowhere but here.
const (
	Ledger  Mode = "ledger"   // the ledger and its pacer
	PID     Mode = "pid"      // the ledger, paced by the published controller
	BarePID Mode = "bare-pid" // the published controller by itself
	OnOff   Mode = "onoff"    // all below the cap and none above
)

// Modes are all of them.
var Modes = []string{string(Ledger), string(PID), string(BarePID), string(OnOff)}

// counted lets a share of the mail through, which it computes each second from what was counted.
type counted struct {
	world *world
	onOff bool
	state *warmup.State
	p     float64   // share of the mail that takes the IP
	pid   pid.State // begun anew each hour
	late  []statistics
}

// statistics is what was sent or answered, and when it becomes known.
type statistics struct {
	known    time.Duration // since the begin
	provider string
	sent     int64
	outcomes warmup.Outcomes
}

func newCounted(w *world, mode Mode) *counted {
	return &counted{world: w, onOff: mode == OnOff, state: warmup.NewState(w.plan, 0), p: 1}
}

// take tosses a coin for each message.
func (c *counted) take(provider int, n int64) int64 {
	heads := c.world.binomial(n, c.p)
	c.tell(statistics{provider: c.world.providers[provider].name, sent: heads})
	return heads
}

func (c *counted) report(provider string, x warmup.Outcome, n int64) {
	s := statistics{provider: provider}
	for range n {
		s.outcomes.Add(x)
	}
	c.tell(s)
}

func (c *counted) tell(s statistics) {
	s.known = seconds(float64(c.world.t)) + c.world.lag
	c.late = append(c.late, s)
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
			granted := c.take(i, n.lines[i].held)
			n.lines[i].held -= granted
			n.sent(i, granted)
		}
	}
}

func (c *counted) count() {
	w, s := c.world, c.state
	hour := s.Hour
	s.Advance(w.plan, warmup.Instant(w.t*1000))
	if s.Hour != hour {
		c.pid = pid.State{}
	}
	kept := c.late[:0]
	for _, x := range c.late {
		if x.known > seconds(float64(w.t)) {
			kept = append(kept, x)
			continue
		}
		i := s.Provider(w.plan, x.provider)
		s.Count(&s.Providers[i], x.sent)
		s.Report(w.plan, i, x.outcomes)
	}
	c.late = kept
}

func (c *counted) steer() {
	s := c.state
	left := s.Caps.Hourly - s.Total.Hour
	switch {
	case s.Warm:
		c.p = 1
	case s.Total.Day >= s.Caps.Daily:
		c.p = 0
	case !c.onOff:
		var u float64
		u, c.pid = pid.Published.Step(c.pid, float64(left), 1000)
		c.p = pid.Probability(u)
	case left > 0:
		c.p = 1
	default:
		c.p = 0
	}
}
