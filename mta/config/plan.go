package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

// Plan is a warm-up plan as the file has it; Config.WarmupPlan gives it ready for use.
//
// The hourly and daily volume of a new address, in recipients, and the conditions for its growth: see
// [warmup.md](warmup.md). A [pool](#pool-name) puts a source under a plan with a `dedicated` block. The
// [presets](warmup.md#what-you-set) need no block; a block with such a name replaces the preset.
//
// A source whose plan a reload changes or replaces keeps its stage number and counters; new caps apply from its next
// hour and its next day.
//
//	plan "acme" {
//	  stage {
//	    hourly = 50
//	    daily  = 350
//	  }
//	  stage {
//	    hourly = 80
//	    daily  = 560
//	    provider "google" { daily = 280 }
//	  }
//	}
type Plan struct {
	block
	Name string `conf:",label"`

	// The preset to start from: its stages, unless the block has `stage` blocks, with their `min_sample` (0 in
	// `sendgrid`) and `min_fill` (0.9 in `sparkpost`), and its `finish`.
	Preset string `conf:"preset" check:"plan preset"`
	// How an hour's cap is spread over the hour: `"ledger"` divides the remaining volume by the remaining time, `"pid"`
	// is [a PID controller](warmup.md#other-pacings-and-why-they-are-not-the-default). The former name `law` is still
	// read, with a warning.
	Pacing string `conf:"pacing" was:"law" oneof:"ledger pid"`
	// The stage to begin with, counted from 1.
	StartStage int `conf:"start_stage"`
	// The earliest start of a warm-up under the plan: `"2026-12-01"`, from that day's start, or
	// `"2026-12-01T08:00:00Z"`. Before then the source sends nothing.
	Begin Date `conf:"begin"`
	// The time at which the days of a warm-up start, `"08:00 Europe/Berlin"`; none: at the time the warm-up began. A
	// warm-up that begins in between gets the rest of that day. A change applies to later warm-ups. A day is always 24
	// hours, whatever daylight saving does.
	DayStarts DayStart `conf:"day_starts"`
	// Shares of [providers](#provider-name) when mail for several competes, such as `{ google = 2, yahoo = 1 }`; 1
	// for the others. Default: equal.
	Weights map[string]float64 `conf:"weights" example:"{ google = 2, yahoo = 1 }"`
	// Allow a stage to have a lower cap than the one before it.
	Shrinking bool `conf:"shrinking"`
	// `"greedy"` fills hours to their caps until the daily cap is used; `"even"` spreads the daily cap over the day.
	Spread string `conf:"spread" oneof:"greedy even"`
	// The number of [relays that send from each address](warmup.md#several-relays-behind-one-address) under the plan.
	// Each sends an equal part of every cap, and advances by its own outcomes. A cap below the number of relays is
	// refused.
	Nodes int `conf:"nodes" min:"1"`
	// The number of this relay among them, from 1 to `nodes`, different in each file. The first relays then get the
	// remainder. 0: the part is rounded down.
	Node int `conf:"node" min:"0" node:"own"`
	// End all caps after the last stage, as presets do. Otherwise its caps stay.
	Finish bool `conf:"finish"`

	Providers []*PlanProvider `conf:"provider,block"`
	Stages    []*Stage        `conf:"stage,block"`
	Health    PlanHealth      `conf:"health,block"`
}

// Stage is what may be sent on a day, in recipients.
//
// Within a plan: the volume of a day. Stages follow one another in the order of the file. Health decides how many
// days a stage lasts, at least one.
type Stage struct {
	block
	// Recipients per hour; required.
	Hourly int `conf:"hourly" min:"1"`
	// Recipients per day; required, and not below `hourly`.
	Daily     int              `conf:"daily" min:"1"`
	Providers []*StageProvider `conf:"provider,block"`
}

// StageProvider is what of a stage may go to one provider.
//
// Within a stage: the caps for one [provider](#provider-name), which must be defined, so that a typo doesn't disable
// a cap; or for `other`: all sites without a provider.
type StageProvider struct {
	block
	Provider string `conf:",label"`
	// Recipients per hour; 0 means no separate cap.
	Hourly int `conf:"hourly" min:"0"`
	// Recipients per day; 0 means no separate cap.
	Daily int `conf:"daily" min:"0"`
}

// PlanProvider is what of every stage may go to one provider.
//
// Within a plan: the part of every stage, including those of a preset, for one [provider](#provider-name) or for
// `other`. A stage's caps for the provider take precedence.
type PlanProvider struct {
	block
	Provider string `conf:",label"`
	// Share of the stage's hourly and daily caps, above 0 and at most 1; by default the whole.
	Share float64 `conf:"share"`
	// From 1 to 10: the maximum growth factor of the provider's caps from stage to stage, counted from the start stage.
	// They stay within its share of the stage.
	Growth float64 `conf:"growth"`
	// The provider has its own stage, which only its outcomes move. It goes back after a bad day while the others
	// continue, and is never ahead of them.
	OwnStage bool `conf:"own_stage"`
}

// PlanHealth says what outcomes move the stage.
//
// Within a plan: the outcomes that move the stage, judged each day for each provider with enough outcomes.
type PlanHealth struct {
	// Outcomes of a provider in a day, below which they can only count against it; 0 advances after each day with
	// mail, regardless of the outcomes.
	MinSample int `conf:"min_sample"`
	// The share of the daily cap that must have been sent to advance; a day without mail never advances.
	MinFill float64 `conf:"min_fill"`
	// Within `health`: the plan advances a stage the next day if all shares are below these.
	AdvanceBelow PlanLimits `conf:"advance_below,block"`
	// Within `health`: the plan goes back a stage the next day if any share is above these. Between the two, the
	// stage stays.
	RegressAbove PlanLimits `conf:"regress_above,block"`
	Pause        PlanPause  `conf:"pause,block"`
}

// PlanLimits are shares of a day's outcomes, from 0 to 1.
type PlanLimits struct {
	// Hard bounces.
	Bounce float64 `conf:"bounce"`
	// Deferrals and refusals by policy.
	Defer float64 `conf:"defer"`
	// Complaints.
	Complaint float64 `conf:"complaint"`
}

// PlanPause says when a provider that blocks is left alone.
//
// Within `health`: a provider that blocks gets no mail for 15 minutes, then a few recipients to probe; each further
// pause is twice as long, up to four hours.
type PlanPause struct {
	// Mail pauses when half of this many last outcomes, at most 64, are refusals by policy; 0 means never.
	Sample int `conf:"sample"`
}

// DayStart is a time of day in a zone, "08:00 Europe/Berlin".
type DayStart string

// UnmarshalText reads a time of day in a zone.
func (d *DayStart) UnmarshalText(text []byte) error {
	if err := warmup.DayStart(text).Check(); err != nil && len(text) > 0 {
		return settings.Wrong(warmup.DayStartForm, "%s: %s", settings.Quoted(string(text)), err)
	}
	*d = DayStart(text)
	return nil
}

// begins is when the plan's warm-ups begin at the soonest, zero for at once.
func (p *Plan) begins() time.Time {
	if day, err := time.Parse(time.DateOnly, string(p.Begin)); err == nil {
		return warmup.DayStart(p.DayStarts).On(day)
	}
	return p.Begin.Time()
}

// Late lists the plans whose begin has passed, in words, by the names of those and of the days.
func (c *Config) Late(now time.Time) (late []string) {
	for _, p := range c.Plans {
		if at := p.begins(); !at.IsZero() && at.Before(now) {
			late = append(late,
				fmt.Sprintf("%s: begin, %s, has passed: a source put under plan %q now begins immediately",
					p.Origin("begin"), p.Begin, p.Name))
		}
	}
	return late
}

func (p *Plan) SetDefaults() {
	d := warmup.DefaultPlan()
	p.Pacing, p.Spread, p.StartStage, p.Nodes = string(d.Pacing), "greedy", d.StartStage, 1
	h := &d.Health
	p.Health = PlanHealth{
		MinSample: int(h.MinSample), MinFill: h.MinFill,
		AdvanceBelow: PlanLimits(h.AdvanceBelow), RegressAbove: PlanLimits(h.RegressAbove),
		Pause: PlanPause{Sample: h.Pause.Sample},
	}
}

// addPlanPresets fills in what plans have from the preset that they begin from.
func (c *Config) addPlanPresets() {
	for _, p := range c.Plans {
		preset, err := warmup.Preset(p.Preset)
		if err != nil {
			continue // none, or complained of when it was read
		}
		if !p.Set("finish") {
			p.Finish = preset.Finish
			p.block.Preset("finish")
		}
		if len(p.Stages) > 0 {
			continue
		}
		if !p.Set("health.min_sample") {
			p.Health.MinSample = int(preset.Health.MinSample)
		}
		if !p.Set("health.min_fill") {
			p.Health.MinFill = preset.Health.MinFill
		}
		for i := range preset.Stages {
			s := &Stage{Hourly: int(preset.Stages[i].Hourly), Daily: int(preset.Stages[i].Daily)}
			s.block = p.Inside(fmt.Sprintf("stage %d", i+1))
			s.block.Preset("hourly")
			s.block.Preset("daily")
			p.Stages = append(p.Stages, s)
		}
	}
}

// divided gives the plan in its users' form, for one of its nodes.
func (p *Plan) divided() (*warmup.Plan, error) {
	whole := p.warmup()
	if p.Nodes <= 1 {
		return whole, nil
	}
	part, err := whole.Divide(p.Nodes, p.Node)
	if err != nil {
		return whole, err
	}
	if err := part.Check(); err != nil { // by what rounding has done to it
		return whole, fmt.Errorf("dividing plan %q among %d nodes: %w", p.Name, p.Nodes, err)
	}
	return part, nil
}

// warmup gives the plan in its users' form, for all nodes together.
func (p *Plan) warmup() *warmup.Plan {
	h, out := &p.Health, warmup.DefaultPlan()
	out.Name, out.Pacing, out.SpreadEven, out.Weights = p.Name, warmup.Pacing(p.Pacing), p.Spread == "even", p.Weights
	out.StartStage, out.Shrinking, out.Finish = p.StartStage, p.Shrinking, p.Finish
	out.Begin, out.DayStarts = p.begins(), warmup.DayStart(p.DayStarts)
	out.Health.MinSample, out.Health.MinFill, out.Health.Pause.Sample = int64(h.MinSample), h.MinFill, h.Pause.Sample
	out.Health.AdvanceBelow, out.Health.RegressAbove = warmup.Limits(h.AdvanceBelow), warmup.Limits(h.RegressAbove)
	for _, v := range p.Providers {
		if out.Shares == nil {
			out.Shares, out.Growths, out.OwnStages = make(map[string]float64), make(map[string]float64),
				make(map[string]bool)
		}
		if v.Set("share") || !v.Set("growth") && !v.OwnStage { // a block must have something
			out.Shares[v.Provider] = v.Share
		}
		if v.Set("growth") {
			out.Growths[v.Provider] = v.Growth
		}
		if v.OwnStage {
			out.OwnStages[v.Provider] = true
		}
	}
	for _, s := range p.Stages {
		stage := warmup.Stage{Caps: warmup.Caps{Hourly: int64(s.Hourly), Daily: int64(s.Daily)}}
		for _, v := range s.Providers {
			if stage.Providers == nil {
				stage.Providers = make(map[string]warmup.Caps)
			}
			stage.Providers[v.Provider] = warmup.Caps{Hourly: int64(v.Hourly), Daily: int64(v.Daily)}
		}
		out.Stages = append(out.Stages, stage)
	}
	return &out
}

// indexPlans makes the plans that can be named: the presets, and the file's in front of them.
func (c *Config) indexPlans() map[string]*warmup.Plan {
	plans := make(map[string]*warmup.Plan)
	for _, name := range warmup.PresetNames() {
		plans[name], _ = warmup.Preset(name)
	}
	for _, p := range c.Plans {
		plans[p.Name], _ = p.divided() // complained of below
	}
	return plans
}

// WarmupPlan gives the plan of that name, the file's or a preset; nil when there is none. It is
// shared and must be left alone.
func (c *Config) WarmupPlan(name string) *warmup.Plan { return c.resolved.plans[name] }

// WarmupPlans lists the names that WarmupPlan knows, sorted.
func (c *Config) WarmupPlans() []string { return slices.Sorted(maps.Keys(c.resolved.plans)) }

// OverflowOf gives what becomes of mail that a plan has no space for: it is held when all pools with that plan do so.
func (c *Config) OverflowOf(plan string) warmup.Overflow {
	pools := c.poolsWith(plan)
	if len(pools) == 0 || slices.ContainsFunc(pools, func(p *Pool) bool { return p.Overflow != "hold" }) {
		return warmup.Shared
	}
	return warmup.Hold
}

// PatienceOf gives how long mail of a tier waits for the sources of a plan: the shortest time of the pools with it.
func (c *Config) PatienceOf(plan string, tier int) time.Duration {
	pools := c.poolsWith(plan)
	if len(pools) == 0 {
		usual := new(Pool)
		usual.SetDefaults()
		pools = append(pools, usual)
	}
	least := pools[0].PatienceOf(nil, tier)
	for _, p := range pools[1:] {
		least = min(least, p.PatienceOf(nil, tier))
	}
	return least
}

func (c *Config) poolsWith(plan string) (pools []*Pool) {
	for _, p := range c.Pools {
		if slices.ContainsFunc(p.Dedicated, func(d *Dedicated) bool { return d.Plan == plan }) {
			pools = append(pools, p)
		}
	}
	return pools
}

func (k checker) plans() {
	for _, p := range k.Plans {
		faults := p.warmup().Faults()
		for _, f := range faults {
			k.fault(p, f)
		}
		if _, err := p.divided(); err != nil && len(faults) == 0 {
			k.problem(&p.block, "nodes", "use fewer relays for the address, or larger caps for each stage", "%s", err)
		}
		if p.Nodes > 1 && k.Cluster.On() {
			k.warnings = append(k.warnings, fmt.Sprintf("plan %q: nodes = %d divides caps that all nodes of the "+
				"cluster share by demand: remove nodes and node", p.Name, p.Nodes))
		}
		if p.Node > p.Nodes {
			k.problem(&p.block, "node", "number the relays from 1 to nodes, each in its own file",
				"node %d of %d relays", p.Node, p.Nodes)
		}
		counted := append(k.Names("provider"), warmup.Other)
		k.names(&p.block, "weights", "provider", slices.Sorted(maps.Keys(p.Weights)), counted)
		for _, v := range p.Providers {
			k.names(&v.block, "provider", "provider", []string{v.Provider}, counted)
		}
		for _, s := range p.Stages {
			for _, v := range s.Providers {
				k.names(&v.block, "provider", "provider", []string{v.Provider}, counted)
			}
		}
	}
}

// testHours is the variable of the environment that gives all plans short hours, such as "2s", in tests of
// the whole relay. By a real clock such a plan passes every cap, so it is not a setting of the file.
const testHours = "MTA_TEST_HOURS"

func (c *Config) shortenHours(text string) error {
	if text == "" {
		return nil
	}
	hour, err := time.ParseDuration(text)
	if err != nil || hour < time.Second || hour > time.Hour {
		return fmt.Errorf("%s=%s in the environment is not a duration from 1s to 1h; outside of tests, unset it",
			testHours, text)
	}
	for _, p := range c.resolved.plans {
		p.Hour = hour
	}
	c.warnings = append(c.warnings,
		fmt.Sprintf("%s=%s in the environment: warm-up plans send an hour's volume in %v", testHours, text, hour))
	return nil
}

// fault complains where the fault is.
func (k checker) fault(p *Plan, f *warmup.Fault) {
	if f.Stage == 0 && f.Setting == "" && p.Failed("preset") {
		return // which would have had stages
	}
	b, setting := &p.block, f.Setting
	if f.Stage > 0 {
		s := p.Stages[f.Stage-1]
		b = &s.block
		for _, v := range s.Providers {
			if v.Provider == f.Provider {
				b = &v.block
			}
		}
	}
	for _, v := range p.Providers {
		if f.Stage == 0 && v.Provider == f.Provider {
			b = &v.block
		}
	}
	if low, ok := strings.CutPrefix(setting, "health.advance_below."); ok && !b.Set(setting) {
		setting = "health.regress_above." + low // the one that the file has is the one that crosses
	}
	what := f.What
	if !strings.HasPrefix(what, "plan ") {
		what = fmt.Sprintf("plan %q: %s", p.Name, what)
	} else {
		what = fmt.Sprintf("plan %q %s", p.Name, strings.TrimPrefix(what, "plan "))
	}
	k.problem(b, setting, f.Remedy, "%s", what)
}
