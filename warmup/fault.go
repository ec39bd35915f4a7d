package warmup

import (
	"fmt"
	"iter"
	"maps"
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
func (p *Plan) Faults() (all []*Fault) {
	c := checks{found: &all}
	c.settings(p)
	c.health(&p.Health)
	for i := range p.Stages {
		c.stage(p, i)
	}
	return all
}

// checks looks at a plan, or at a part of it.
type checks struct {
	found    *[]*Fault
	at       int // the stage
	provider string
	title    string // of the part, before what is wrong
}

// want notes a fault where something is not so, and reports whether it is.
func (c checks) want(ok bool, setting, remedy, what string, args ...any) bool {
	if !ok {
		*c.found = append(*c.found, &Fault{c.at, c.provider, setting, c.title + fmt.Sprintf(what, args...), remedy})
	}
	return ok
}

// within wants a setting in a range.
func (c checks) within(setting string, value, least, most float64) {
	c.want(value >= least && value <= most, setting, fmt.Sprintf("it must be from %v to %v", least, most),
		"%s is %v", setting, value)
}

// of gives the checks of a provider's part.
func (c checks) of(provider string) checks {
	c.provider = provider
	return c
}

func (c checks) settings(p *Plan) {
	n := len(p.Stages)
	c.want(p.Overflow.Valid(), "overflow", "use shared or hold", "overflow %q is not known", p.Overflow)
	c.want(p.Pacing == Ledger || p.Pacing == PID, "pacing", "use ledger or pid", "pacing %q is not known", p.Pacing)
	c.want(n > 0, "", "write at least one stage with hourly and daily", "plan has no stages")
	c.want(n == 0 || p.StartStage >= 1 && p.StartStage <= n, "start_stage",
		fmt.Sprintf("stages are numbered from 1 to %d", n),
		"start_stage %d is not one of the %d stages", p.StartStage, n)
	c.within("burst", p.Burst, 1, 60)
	c.within("bucket_seconds", p.BucketSeconds, 1, 3600)
	c.within("peak", p.Peak, 1, 3600)
	c.within("sliding_hour_factor", p.SlidingHour, 1, 2)
	c.want(p.EaseOut >= 0 && p.EaseOut <= maxEaseOut, "ease_out",
		fmt.Sprintf("it is a number of days from 0 to %d", maxEaseOut), "ease_out is %d", p.EaseOut)
	c.want(p.Hour >= time.Second && p.Hour <= time.Hour, "hour", "it must be from 1s to 1h", "an hour of %v", p.Hour)
	if p.DayStarts != "" {
		err := p.DayStarts.Check()
		c.want(err == nil, "day_starts", DayStartForm, "day_starts: %v", err)
	}
	for name, x := range sorted(p.Shares) {
		c.of(name).want(x > 0 && x <= 1, "share", "it must be above 0 and at most 1, the whole stage",
			"the share of provider %q is %v", name, x)
	}
	for name, x := range sorted(p.Growths) {
		c.of(name).want(x >= 1 && x <= 10, "growth", "it must be from 1 (no growth) to 10 times a stage",
			"the growth of provider %q is %v", name, x)
	}
	for name, x := range sorted(p.Weights) {
		c.want(x > 0 && !math.IsInf(x, 0), "weights", "it must be above 0", "the weight of provider %q is %v", name, x)
	}
	named := len(p.named())
	c.want(named <= maxProviders-2, "provider", fmt.Sprintf("it can have some for %d at most", maxProviders-2),
		"plan has caps for %d providers", named)
}

func (c checks) health(h *Health) {
	c.title = "health: "
	c.want(h.MinSample >= 0, "health.min_sample", "it can't be negative", "min_sample is %d", h.MinSample)
	c.share("min_fill", h.MinFill)
	c.share("pause.share", h.Pause.Share)
	a, r := &h.AdvanceBelow, &h.RegressAbove
	c.limit(h, "bounce", a.Bounce, r.Bounce)
	c.limit(h, "defer", a.Defer, r.Defer)
	c.limit(h, "complaint", a.Complaint, r.Complaint)
	const off = ", or set sample = 0 for no pauses"
	x := &h.Pause
	c.want(x.Sample >= 0 && x.Sample <= maxPauseSample, "health.pause.sample",
		fmt.Sprintf("it must be from 1 to %d, or 0 for no pauses", maxPauseSample), "pause.sample is %d", x.Sample)
	if x.Sample == 0 {
		return
	}
	c.want(x.Share != 0, "health.pause.share", "raise it"+off,
		"pause.share is 0, so that every provider would be paused")
	c.want(x.Seconds >= 1 && x.Seconds <= maxPauseSeconds, "health.pause.seconds",
		fmt.Sprintf("it must be from 1 to %d", maxPauseSeconds)+off, "pause.seconds is %d", x.Seconds)
	c.want(x.Probe >= 1 && x.Probe <= maxProbe, "health.pause.probe",
		fmt.Sprintf("it must be from 1 to %d", maxProbe)+off, "pause.probe is %d", x.Probe)
}

func (c checks) share(name string, value float64) bool {
	return c.want(value >= 0 && value <= 1, "health."+name, "it is a share from 0 to 1", "%s is %v", name, value)
}

// limit looks at what an outcome's share must be below to advance and above to go back.
func (c checks) limit(h *Health, name string, advance, regress float64) {
	low, high := "advance_below."+name, "regress_above."+name
	good := c.share(low, advance)
	if !c.share(high, regress) || !good {
		return
	}
	c.want(advance <= regress, "health."+low,
		"a day between the two holds the stage, so lower the one or raise the other",
		"%s, %v, is above %s, %v", low, advance, high, regress)
	c.want(advance > 0 || h.MinSample <= 0, "health."+low,
		"raise it, or set min_sample = 0 to advance regardless of outcomes",
		"%s is 0, and no day can be below that", low)
}

// stage looks at the stage of index i, beside the one before it.
func (c checks) stage(p *Plan, i int) {
	s, before := &p.Stages[i], Stage{}
	if i > 0 && !p.Shrinking {
		before = p.Stages[i-1]
	}
	c.at, c.title = i+1, fmt.Sprintf("stage %d", i+1)
	c.want(s.Hourly != 0, "hourly", "write both hourly and daily", " has no hourly cap")
	c.want(s.Daily != 0, "daily", "write both hourly and daily", " has no daily cap")
	if last := i == len(p.Stages)-1 && !p.Finish; c.caps(s.Caps) && !last && p.Health.MinSample != 0 &&
		p.Health.MinFill <= 1 {
		most, least := 24*s.Hourly, p.Health.MinFill*float64(s.Daily) // that it takes to advance
		c.want(float64(most) >= least, "hourly", "raise hourly, or lower daily or min_fill",
			" could never be passed: 24 hours of %d are %d, and min_fill requires %v of %d a day", s.Hourly, most,
			p.Health.MinFill, s.Daily)
	}
	c.growth(s.Caps, before.Caps)
	for name, caps := range sorted(s.Providers) {
		own := c.of(name)
		own.title += fmt.Sprintf(": provider %q", name)
		if own.want(caps != Caps{}, "", "write hourly, daily or both, or remove the block", " has no caps") {
			own.caps(caps)
			own.growth(caps, before.Providers[name])
		}
	}
}

// caps reports whether both caps are there and good.
func (c checks) caps(x Caps) bool {
	return c.want(x.Hourly >= 0 && x.Daily >= 0, "", "caps are numbers of recipients", " has a negative cap") &&
		c.want(x.Hourly <= maxCap && x.Daily <= maxCap, "", "lower it", " has a cap above %d", int64(maxCap)) &&
		c.want(x.Daily == 0 || x.Hourly <= x.Daily, "hourly", "lower hourly, or raise daily",
			" has hourly = %d above daily = %d", x.Hourly, x.Daily) &&
		x.Hourly > 0 && x.Daily > 0
}

// growth wants no cap below that of the stage before, where both have one.
func (c checks) growth(x, before Caps) {
	const remedy, what = "raise it, or set shrinking = true if this is intended",
		" has %s = %d below the %d of the stage before"
	c.want(x.Hourly <= 0 || x.Hourly >= before.Hourly, "hourly", remedy, what, "hourly", x.Hourly, before.Hourly)
	c.want(x.Daily <= 0 || x.Daily >= before.Daily, "daily", remedy, what, "daily", x.Daily, before.Daily)
}

// sorted gives a map's entries in the order of their names.
func sorted[V any](m map[string]V) iter.Seq2[string, V] {
	return func(yield func(string, V) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}
