package warmup

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Fault is one thing that makes no sense in a plan, and where it is.
type Fault struct {
	Stage    int    // counted from 1; 0: it is about the plan as a whole
	Provider string // whose caps in that stage; "": the stage's own
	Setting  string // as a plan's file has it, "health.pause.sample"; "": the stage or plan as a whole
	What     string // what is wrong, on one line
	Remedy   string // what to do
}

// Error implements error, on one line.
func (f *Fault) Error() string { return f.What + ": " + f.Remedy }

// Check gives the first of a plan's faults, nil when it may be used.
func (p *Plan) Check() error {
	if fs := p.Faults(); len(fs) > 0 {
		return fs[0]
	}
	return nil
}

// The bounds of a plan's numbers.
const (
	maxCap          = 1 << 40    // keeps arithmetic on counters far from overflow
	maxPauseSeconds = 7 * 86_400 // of a provider's first pause
	maxProbe        = 1000
	maxEaseOut      = 14 // 16,384 times the last stage
	maxPauseSample  = 64 // as many outcomes are remembered
)

// Faults lists all that makes no sense in a plan.
func (p *Plan) Faults() []*Fault {
	var c faults
	if len(p.Stages) == 0 {
		c.add(Fault{What: "plan has no stages", Remedy: "give at least one with hourly and daily caps"})
	} else if p.StartStage < 1 || p.StartStage > len(p.Stages) {
		c.add(Fault{Setting: "start_stage", What: fmt.Sprintf("start_stage %d is not one of the %d stages", p.StartStage, len(p.Stages)),
			Remedy: fmt.Sprintf("stages are counted from 1 to %d", len(p.Stages))})
	}
	c.shape(p)
	c.health(&p.Health)
	for i := range p.Stages {
		c.stage(p, i)
	}
	return c
}

type faults []*Fault

func (c *faults) add(f Fault) { *c = append(*c, &f) }

func (c *faults) shape(p *Plan) {
	for _, f := range []struct {
		name     string
		value    float64
		min, max float64
	}{
		{"burst", p.Burst, 1, 60}, {"bucket_seconds", p.BucketSeconds, 1, 3600},
		{"peak", p.Peak, 1, 3600}, {"sliding_hour_factor", p.SlidingHour, 1, 2},
	} {
		if !(f.value >= f.min && f.value <= f.max) {
			c.add(Fault{Setting: f.name, What: fmt.Sprintf("%s is %v", f.name, f.value), Remedy: fmt.Sprintf("it must be from %v to %v", f.min, f.max)})
		}
	}
	if p.EaseOut < 0 || p.EaseOut > maxEaseOut {
		c.add(Fault{Setting: "ease_out", What: fmt.Sprintf("ease_out is %d", p.EaseOut), Remedy: fmt.Sprintf("it is a number of days from 0 to %d", maxEaseOut)})
	}
	if p.Hour < time.Second || p.Hour > time.Hour {
		c.add(Fault{Setting: "hour", What: fmt.Sprintf("an hour of %v", p.Hour), Remedy: "it must be from 1s to 1h"})
	}
	for _, name := range sortedNames(p.Shares) {
		if x := p.Shares[name]; !(x > 0 && x <= 1) {
			c.add(Fault{Provider: name, Setting: "share", What: fmt.Sprintf("the share of provider %q is %v", name, x), Remedy: "it must be above 0, and at most 1, which is the whole stage"})
		}
	}
	for _, name := range sortedNames(p.Growths) {
		if x := p.Growths[name]; !(x >= 1 && x <= 10) {
			c.add(Fault{Provider: name, Setting: "growth", What: fmt.Sprintf("the growth of provider %q is %v", name, x), Remedy: "it must be from 1, which is no growth, to 10 times a stage"})
		}
	}
	if n := len(p.named()); n > maxProviders-2 {
		c.add(Fault{Setting: "provider", What: fmt.Sprintf("plan has caps for %d providers", n), Remedy: fmt.Sprintf("it can have some for %d at most", maxProviders-2)})
	}
	for _, name := range sortedNames(p.Weights) {
		if w := p.Weights[name]; !(w > 0) || math.IsInf(w, 0) {
			c.add(Fault{Setting: "weights", What: fmt.Sprintf("the weight of provider %q is %v", name, w), Remedy: "it must be above 0"})
		}
	}
}

func (c *faults) health(h *Health) {
	if h.MinSample < 0 {
		c.add(Fault{Setting: "health.min_sample", What: fmt.Sprintf("health: min_sample is %d", h.MinSample), Remedy: "it can't be negative"})
	}
	c.share("min_fill", h.MinFill)
	c.share("pause.share", h.Pause.Share)
	a, r := &h.AdvanceBelow, &h.RegressAbove
	c.limit(h, "bounce", a.Bounce, r.Bounce)
	c.limit(h, "defer", a.Defer, r.Defer)
	c.limit(h, "complaint", a.Complaint, r.Complaint)
	c.pause(&h.Pause)
}

// share reports whether a setting of health is a share.
func (c *faults) share(name string, value float64) bool {
	ok := value >= 0 && value <= 1
	if !ok {
		c.add(Fault{Setting: "health." + name, What: fmt.Sprintf("health: %s is %v", name, value), Remedy: "it is a share from 0 to 1"})
	}
	return ok
}

// limit looks at what an outcome's share must be below to advance and above to go back.
func (c *faults) limit(h *Health, name string, advance, regress float64) {
	low, high := "advance_below."+name, "regress_above."+name
	if good := c.share(low, advance); !c.share(high, regress) || !good {
		return
	}
	if advance > regress {
		c.add(Fault{Setting: "health." + low, What: fmt.Sprintf("health: %s, %v, is above %s, %v", low, advance, high, regress),
			Remedy: "a day between the two holds the stage, so lower the one or raise the other"})
	}
	if advance == 0 && h.MinSample > 0 {
		c.add(Fault{Setting: "health." + low, What: fmt.Sprintf("health: %s is 0, and no day can be below that", low),
			Remedy: "raise it, or set min_sample = 0 to advance whatever happens"})
	}
}

func (c *faults) pause(r *PauseRule) {
	if r.Sample < 0 || r.Sample > maxPauseSample {
		c.add(Fault{Setting: "health.pause.sample", What: fmt.Sprintf("health: pause.sample is %d", r.Sample),
			Remedy: fmt.Sprintf("it must be from 1 to %d, or 0 for no pauses", maxPauseSample)})
	}
	if r.Sample == 0 {
		return
	}
	const off = ", or set sample = 0 for no pauses"
	if r.Share == 0 {
		c.add(Fault{Setting: "health.pause.share", What: "health: pause.share is 0, so that every provider would be paused", Remedy: "raise it" + off})
	}
	if r.Seconds < 1 || r.Seconds > maxPauseSeconds {
		c.add(Fault{Setting: "health.pause.seconds", What: fmt.Sprintf("health: pause.seconds is %d", r.Seconds),
			Remedy: fmt.Sprintf("it must be from 1 to %d", maxPauseSeconds) + off})
	}
	if r.Probe < 1 || r.Probe > maxProbe {
		c.add(Fault{Setting: "health.pause.probe", What: fmt.Sprintf("health: pause.probe is %d", r.Probe),
			Remedy: fmt.Sprintf("it must be from 1 to %d", maxProbe) + off})
	}
}

// stage looks at the stage of index i, beside the one before it.
func (c *faults) stage(p *Plan, i int) {
	s, at := &p.Stages[i], Fault{Stage: i + 1}
	title := fmt.Sprintf("stage %d", at.Stage)
	if s.Hourly == 0 {
		at.Setting, at.What, at.Remedy = "hourly", title+" has no hourly cap", "give it hourly and daily"
		c.add(at)
	}
	if s.Daily == 0 {
		at.Setting, at.What, at.Remedy = "daily", title+" has no daily cap", "give it hourly and daily"
		c.add(at)
	}
	at.Setting = ""
	if c.caps(at, title, s.Caps) {
		c.passable(p, i)
	}
	if i > 0 && !p.Shrinking {
		c.growth(at, title, s.Caps, p.Stages[i-1].Caps)
	}
	for _, name := range sortedNames(s.Providers) {
		at.Provider = name
		caps, title := s.Providers[name], fmt.Sprintf("stage %d: provider %q", at.Stage, name)
		if caps == (Caps{}) {
			at.Setting, at.What, at.Remedy = "", title+" has no caps", "give it hourly, daily or both, or leave it out"
			c.add(at)
			continue
		}
		c.caps(at, title, caps)
		if i > 0 && !p.Shrinking {
			c.growth(at, title, caps, p.Stages[i-1].Providers[name])
		}
	}
}

// caps reports whether both caps are there and good.
func (c *faults) caps(at Fault, title string, x Caps) bool {
	switch {
	case x.Hourly < 0 || x.Daily < 0:
		at.What, at.Remedy = title+" has a negative cap", "caps are numbers of recipients"
	case x.Hourly > maxCap || x.Daily > maxCap:
		at.What, at.Remedy = fmt.Sprintf("%s has a cap above %d", title, int64(maxCap)), "lower it"
	case x.Daily > 0 && x.Hourly > x.Daily:
		at.Setting = "hourly"
		at.What, at.Remedy = fmt.Sprintf("%s has hourly = %d above daily = %d", title, x.Hourly, x.Daily), "lower hourly, or raise daily"
	default:
		return x.Hourly > 0 && x.Daily > 0
	}
	c.add(at)
	return false
}

// passable looks whether the stage's hours can fill as much of its day as it takes to advance.
func (c *faults) passable(p *Plan, i int) {
	s := &p.Stages[i]
	if i == len(p.Stages)-1 && !p.Finish || p.Health.MinSample == 0 || p.Health.MinFill > 1 {
		return
	}
	if most, want := 24*s.Hourly, p.Health.MinFill*float64(s.Daily); float64(most) < want {
		c.add(Fault{Stage: i + 1, Setting: "hourly",
			What: fmt.Sprintf("stage %d could never be passed: 24 hours of %d are %d, and min_fill wants %v of %d in a day",
				i+1, s.Hourly, most, p.Health.MinFill, s.Daily),
			Remedy: "raise hourly, or lower daily or min_fill"})
	}
}

func (c *faults) growth(at Fault, title string, x, before Caps) {
	const remedy = "raise it, or set shrinking = true if that is meant"
	if below(x.Hourly, before.Hourly) {
		at.Setting, at.What, at.Remedy = "hourly", fmt.Sprintf("%s has hourly = %d below the %d of the stage before", title, x.Hourly, before.Hourly), remedy
		c.add(at)
	}
	if below(x.Daily, before.Daily) {
		at.Setting, at.What, at.Remedy = "daily", fmt.Sprintf("%s has daily = %d below the %d of the stage before", title, x.Daily, before.Daily), remedy
		c.add(at)
	}
}

// below compares caps of which zero is none.
func below(c, before int64) bool { return c > 0 && before > 0 && c < before }

func sortedNames[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
