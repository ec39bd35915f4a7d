package admit

import (
	"fmt"
	"time"

	"example.org/mta/admission"
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
		Settings: c.Settings, On: c.controller != nil, MemoryLimit: c.memory, Held: g.returns.held.Load(),
		Remembered: g.first.Len(),
		Totals:     g.account.counts(), Refusals: g.account.refusals(), Since: g.account.since(g.machine.Now()),
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
	return fmt.Sprintf(
		"%.0f %% of the mail that is offered is refused with 4xx (%s), the least important first: 'mta admission' "+
			"shows which", 100*s.Share, s.Reason)
}

// Passes returns the part of a tenant's mail that is admitted now at a tier, 0 to 1.
func (g *Gate) Passes(tier int, tenant string) float64 {
	c := g.core.Load()
	if c.controller == nil {
		return 1
	}
	s := c.controller.Status()
	return g.fair.Passes(g.machine.Now(), tier, tenant, s.Level, s.Part)
}

// Last returns the last refusals that match, the newest first.
func (g *Gate) Last(match func(*Refusal) bool) []Refusal { return g.account.lastOf(match) }
