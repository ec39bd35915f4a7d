package admit

import (
	"fmt"
	"time"

	"example.org/mta/admission"
	"example.org/mta/submission/intake"
)

// Status is how the gate is.
type Status struct {
	Settings    Settings
	On          bool
	Now         admission.Status // when On
	MemoryLimit int64            // in force, octets; 0: none
	Held        int64            // sessions that wait for a refusal
	Remembered  int              // first attempts of those that were refused
	Totals      [admission.Tiers]Count
	Slices      []Slice // of the last minutes, the newest last
	Refusals    []KindCount
	Since       time.Time // of refusals that have not ended; zero when there are none
}

// Status returns how the gate is.
func (g *Gate) Status() Status {
	c := g.core.Load()
	s := Status{
		Settings: c.Settings, On: c.controller != nil, MemoryLimit: c.memory, Held: g.returns.held.Load(), Remembered: g.first.Len(),
		Totals: g.account.counts(), Refusals: g.account.refusals(), Since: g.account.since(g.machine.Now()),
	}
	if s.On {
		s.Now = c.controller.Status()
	}
	g.account.mu.Lock()
	s.Slices = append(s.Slices, g.account.slices...)
	g.account.mu.Unlock()
	return s
}

// Trouble returns the text of the alarm, "" if nothing was refused lately.
func (g *Gate) Trouble() string {
	c := g.core.Load()
	since := g.account.since(g.machine.Now())
	if c.controller == nil || since.IsZero() {
		return ""
	}
	s := c.controller.Status()
	if s.Share == 0 {
		return "mail was refused for load until a moment ago: 'mta admission' shows which"
	}
	return fmt.Sprintf("%.0f %% of the mail that is offered is refused with 4xx (%s), the least important first: 'mta admission' shows which", 100*s.Share, s.Reason)
}

// Probe returns the fate of a message that came now, without counting it: its priority, and whether it
// would be admitted; in part, when the threshold cuts its level.
func (g *Gate) Probe(r intake.AdmitRequest) (p admission.Priority, part float64) {
	p, part = g.priority(&r, g.shares.greedy(min(int(r.Tier), admission.Tiers-1), r.Tenant)), 1
	if c := g.core.Load(); c.controller != nil {
		switch s := c.controller.Status(); {
		case int(p) > s.Level:
			part = 0
		case int(p) == s.Level:
			part = s.Part
		}
	}
	return p, part
}

// Last returns the last refusals that match, the newest first.
func (g *Gate) Last(match func(*Refusal) bool) []Refusal { return g.account.lastOf(match) }
