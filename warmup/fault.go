package warmup

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
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
	c.settings(p)
	c.providers(p)
	c.health(&p.Health)
	for i := range p.Stages {
		c.stage(p, i)
	}
	return c
}

type faults []*Fault

func (c *faults) add(f Fault) { *c = append(*c, &f) }

// within reports whether a setting has a value in a range. remedy "" names the range.
func (c *faults) within(setting string, value, least, most float64, remedy string) bool {
	ok := value >= least && value <= most
	if !ok {
		name := strings.Replace(setting, "health.", "health: ", 1)
		c.add(Fault{Setting: setting, What: fmt.Sprintf("%s is %v", name, value), Remedy: cmp.Or(remedy, fmt.Sprintf("it must be from %v to %v", least, most))})
	}
	return ok
}

func (c *faults) settings(p *Plan) {
	if p.Overflow != Divert && p.Overflow != Hold {
		c.add(Fault{Setting: "mode", What: fmt.Sprintf("mode %q is not known", p.Overflow), Remedy: "use divert or hold"})
	}
	if p.Pacing != Ledger && p.Pacing != PID {
		c.add(Fault{Setting: "pacing", What: fmt.Sprintf("pacing %q is not known", p.Pacing), Remedy: "use ledger or pid"})
	}
	if n := len(p.Stages); n == 0 {
		c.add(Fault{What: "plan has no stages", Remedy: "give at least one with hourly and daily caps"})
	} else if p.StartStage < 1 || p.StartStage > n {
		c.add(Fault{Setting: "start_stage", What: fmt.Sprintf("start_stage %d is not one of the %d stages", p.StartStage, n),
			Remedy: fmt.Sprintf("stages are counted from 1 to %d", n)})
	}
	c.within("burst", p.Burst, 1, 60, "")
	c.within("bucket_seconds", p.BucketSeconds, 1, 3600, "")
	c.within("peak", p.Peak, 1, 3600, "")
	c.within("sliding_hour_factor", p.SlidingHour, 1, 2, "")
	c.within("ease_out", float64(p.EaseOut), 0, maxEaseOut, fmt.Sprintf("it is a number of days from 0 to %d", maxEaseOut))
	if p.Hour < time.Second || p.Hour > time.Hour {
		c.add(Fault{Setting: "hour", What: fmt.Sprintf("an hour of %v", p.Hour), Remedy: "it must be from 1s to 1h"})
	}
	if err := p.DayStarts.Check(); err != nil && p.DayStarts != "" {
		c.add(Fault{Setting: "day_starts", What: fmt.Sprintf("day_starts: %v", err), Remedy: DayStartForm})
	}
}

// providers looks at what a plan has by provider for all stages.
func (c *faults) providers(p *Plan) {
	each := func(values map[string]float64, least, most float64, f Fault) {
		what := f.What
		for _, name := range slices.Sorted(maps.Keys(values)) {
			if v := values[name]; !(v >= least && v <= most) {
				f.What = fmt.Sprintf("the %s of provider %q is %v", what, name, v)
				if f.Setting != "weights" { // which are one setting for all
					f.Provider = name
				}
				c.add(f)
			}
		}
	}
	above0 := math.SmallestNonzeroFloat64
	each(p.Shares, above0, 1, Fault{Setting: "share", What: "share", Remedy: "it must be above 0, and at most 1, which is the whole stage"})
	each(p.Growths, 1, 10, Fault{Setting: "growth", What: "growth", Remedy: "it must be from 1, which is no growth, to 10 times a stage"})
	each(p.Weights, above0, math.MaxFloat64, Fault{Setting: "weights", What: "weight", Remedy: "it must be above 0"})
	if n := len(p.named()); n > maxProviders-2 {
		c.add(Fault{Setting: "provider", What: fmt.Sprintf("plan has caps for %d providers", n), Remedy: fmt.Sprintf("it can have some for %d at most", maxProviders-2)})
	}
}

const aShare = "it is a share from 0 to 1"

func (c *faults) health(h *Health) {
	c.within("health.min_sample", float64(h.MinSample), 0, math.Inf(1), "it can't be negative")
	c.within("health.min_fill", h.MinFill, 0, 1, aShare)
	a, r := &h.AdvanceBelow, &h.RegressAbove
	c.limit(h, "bounce", a.Bounce, r.Bounce)
	c.limit(h, "defer", a.Defer, r.Defer)
	c.limit(h, "complaint", a.Complaint, r.Complaint)
	const off = ", or set sample = 0 for no pauses"
	c.within("health.pause.share", h.Pause.Share, 0, 1, aShare)
	c.within("health.pause.sample", float64(h.Pause.Sample), 0, maxPauseSample, fmt.Sprintf("it must be from 1 to %d, or 0 for no pauses", maxPauseSample))
	if h.Pause.Sample == 0 {
		return
	}
	if h.Pause.Share == 0 {
		c.add(Fault{Setting: "health.pause.share", What: "health: pause.share is 0, so that every provider would be paused", Remedy: "raise it" + off})
	}
	c.within("health.pause.seconds", float64(h.Pause.Seconds), 1, maxPauseSeconds, fmt.Sprintf("it must be from 1 to %d", maxPauseSeconds)+off)
	c.within("health.pause.probe", float64(h.Pause.Probe), 1, maxProbe, fmt.Sprintf("it must be from 1 to %d", maxProbe)+off)
}

// limit looks at what an outcome's share must be below to advance and above to go back.
func (c *faults) limit(h *Health, name string, advance, regress float64) {
	low, high := "advance_below."+name, "regress_above."+name
	good := c.within("health."+low, advance, 0, 1, aShare)
	if !c.within("health."+high, regress, 0, 1, aShare) || !good {
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

// stage looks at the stage of index i, beside the one before it.
func (c *faults) stage(p *Plan, i int) {
	s, before := &p.Stages[i], Stage{}
	if i > 0 && !p.Shrinking {
		before = p.Stages[i-1]
	}
	at := place{c, i + 1, "", fmt.Sprintf("stage %d", i+1)}
	if s.Hourly == 0 {
		at.add("hourly", " has no hourly cap", "give it hourly and daily")
	}
	if s.Daily == 0 {
		at.add("daily", " has no daily cap", "give it hourly and daily")
	}
	if at.caps(s.Caps) {
		at.passable(p, s)
	}
	at.growth(s.Caps, before.Caps)
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		own := place{c, i + 1, name, fmt.Sprintf("stage %d: provider %q", i+1, name)}
		caps := s.Providers[name]
		if caps == (Caps{}) {
			own.add("", " has no caps", "give it hourly, daily or both, or leave it out")
			continue
		}
		own.caps(caps)
		own.growth(caps, before.Providers[name])
	}
}

// place is a stage, or a provider's part of it, and its title in words.
type place struct {
	*faults
	stage    int
	provider string
	title    string
}

func (x *place) add(setting, what, remedy string) {
	x.faults.add(Fault{Stage: x.stage, Provider: x.provider, Setting: setting, What: x.title + what, Remedy: remedy})
}

// caps reports whether both caps are there and good.
func (x *place) caps(c Caps) bool {
	switch {
	case c.Hourly < 0 || c.Daily < 0:
		x.add("", " has a negative cap", "caps are numbers of recipients")
	case c.Hourly > maxCap || c.Daily > maxCap:
		x.add("", fmt.Sprintf(" has a cap above %d", int64(maxCap)), "lower it")
	case c.Daily > 0 && c.Hourly > c.Daily:
		x.add("hourly", fmt.Sprintf(" has hourly = %d above daily = %d", c.Hourly, c.Daily), "lower hourly, or raise daily")
	default:
		return c.Hourly > 0 && c.Daily > 0
	}
	return false
}

// passable looks whether the stage's hours can fill as much of its day as it takes to advance.
func (x *place) passable(p *Plan, s *Stage) {
	if x.stage == len(p.Stages) && !p.Finish || p.Health.MinSample == 0 || p.Health.MinFill > 1 {
		return
	}
	if most, want := 24*s.Hourly, p.Health.MinFill*float64(s.Daily); float64(most) < want {
		x.add("hourly", fmt.Sprintf(" could never be passed: 24 hours of %d are %d, and min_fill wants %v of %d in a day", s.Hourly, most, p.Health.MinFill, s.Daily),
			"raise hourly, or lower daily or min_fill")
	}
}

// growth looks whether caps, where there are any, are below those of the stage before.
func (x *place) growth(c, before Caps) {
	look := func(setting string, v, before int64) {
		if v > 0 && v < before {
			x.add(setting, fmt.Sprintf(" has %s = %d below the %d of the stage before", setting, v, before), "raise it, or set shrinking = true if that is meant")
		}
	}
	look("hourly", c.Hourly, before.Hourly)
	look("daily", c.Daily, before.Daily)
}
