package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/settings"
	"example.org/mta/warmup"
)

// Plan is a warm-up plan as the file has it; Config.WarmupPlan gives it ready for use. Its
// numbers are held against one another by warmup.Plan.Faults.
type Plan struct {
	block
	Name string `conf:",label"`

	// Preset is the published plan to begin from: its stages, unless the block has some, and its
	// finish. "": none.
	Preset string `conf:"preset" check:"plan preset"`
	// Pacing is how an hour's cap is spread over the hour.
	Pacing     string `conf:"pacing" was:"law" oneof:"ledger pid"`
	StartStage int    `conf:"start_stage"` // counted from 1
	// Begin is when a warm-up begins at the soonest: a time, or a day from its start by DayStarts. "": at once.
	Begin Date `conf:"begin"`
	// DayStarts is the time and the zone at which the days of a warm-up start that begins. "": that of its begin.
	DayStarts DayStart `conf:"day_starts"`
	// Weights are shares, by provider, when mail for several competes; 1 for who is not named.
	Weights map[string]float64 `conf:"weights" example:"{ google = 2, yahoo = 1 }"`
	// Shrinking allows a stage to have a lower cap than the one before.
	Shrinking bool   `conf:"shrinking"`
	Spread    string `conf:"spread" oneof:"greedy even"` // how the day's cap is used
	// Nodes is how many relays send from an address under the plan. They have no ledger in common: each
	// may send an equal part of every cap.
	Nodes int `conf:"nodes" min:"1"`
	// Node numbers this relay among them, from 1: what is left over in dividing a cap goes to the first. 0: the
	// part is rounded down.
	Node int `conf:"node" min:"0"`
	// Finish lifts all caps when the last stage has been passed.
	Finish bool `conf:"finish"`
	// EaseOut is for how many days the last stage's caps double each day before Finish lifts them.
	EaseOut int `conf:"ease_out" min:"0"`

	Providers []*PlanProvider `conf:"provider,block"`
	Stages    []*Stage        `conf:"stage,block"`
	Health    PlanHealth      `conf:"health,block"`
}

// Stage is what may be sent on a day, in recipients.
type Stage struct {
	block
	Hourly    int              `conf:"hourly" min:"1"`
	Daily     int              `conf:"daily" min:"1"`
	Providers []*StageProvider `conf:"provider,block"`
}

// StageProvider is what of a stage may go to one provider. Zero: no cap of its own.
type StageProvider struct {
	block
	Provider string `conf:",label"`
	Hourly   int    `conf:"hourly" min:"0"`
	Daily    int    `conf:"daily" min:"0"`
}

// PlanProvider is what of every stage may go to one provider.
type PlanProvider struct {
	block
	Provider string  `conf:",label"`
	Share    float64 `conf:"share"` // of the stage's caps, above 0 and at most 1
	// Growth is how many times its caps of a stage may be those of the stage before, from 1 to 10. 0: as the
	// plan grows.
	Growth float64 `conf:"growth"`
	// OwnStage lets it step back alone.
	OwnStage bool `conf:"own_stage"`
}

// PlanHealth says what outcomes move the stage.
type PlanHealth struct {
	MinSample int     `conf:"min_sample"` // outcomes of a provider in a day; 0: advance after each day with mail
	MinFill   float64 `conf:"min_fill"`   // share of the daily cap to be sent before advancing
	// Refusals are the classes of replies that are about the sender, and pause a provider; Bounces
	// those whose permanent replies are hard bounces.
	Refusals     []ReplyClass `conf:"refusals"`
	Bounces      []ReplyClass `conf:"bounces"`
	AdvanceBelow PlanLimits   `conf:"advance_below,block"`
	RegressAbove PlanLimits   `conf:"regress_above,block"`
	Pause        PlanPause    `conf:"pause,block"`
}

// PlanLimits are shares of a day's outcomes, from 0 to 1.
type PlanLimits struct {
	Bounce    float64 `conf:"bounce"`
	Defer     float64 `conf:"defer"`
	Complaint float64 `conf:"complaint"`
}

// PlanPause says when a provider that blocks is left alone. Sample 0: never.
type PlanPause struct {
	Share   float64 `conf:"share"`
	Sample  int     `conf:"sample"`
	Seconds int     `conf:"seconds"`
	Probe   int     `conf:"probe"`
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
			late = append(late, fmt.Sprintf("%s: begin, %s, has passed: a source put under plan %q now begins immediately", p.Origin("begin"), p.Begin, p.Name))
		}
	}
	return late
}

func (p *Plan) SetDefaults() {
	d := warmup.DefaultPlan()
	p.Pacing, p.Spread = string(d.Pacing), "greedy"
	p.StartStage, p.Nodes, p.EaseOut = d.StartStage, 1, d.EaseOut
	h := &d.Health
	p.Health = PlanHealth{
		MinSample: int(h.MinSample), MinFill: h.MinFill, Refusals: namesOf(bounce.Class.AboutUs), Bounces: namesOf(countsAsBounce),
		AdvanceBelow: PlanLimits(h.AdvanceBelow), RegressAbove: PlanLimits(h.RegressAbove),
		Pause: PlanPause{Share: h.Pause.Share, Sample: h.Pause.Sample, Seconds: int(h.Pause.Seconds), Probe: h.Pause.Probe},
	}
}

// countsAsBounce: a refusal for good that no rule knows is most often about the address.
func countsAsBounce(c bounce.Class) bool {
	return c.Hard() || c == bounce.InactiveMailbox || c == bounce.Uncategorized
}

// namesOf lists the classes that are meant.
func namesOf(meant func(bounce.Class) bool) (names []ReplyClass) {
	for _, c := range bounce.Classes() {
		if meant(c) {
			names = append(names, ReplyClass(c.String()))
		}
	}
	return names
}

// HealthClasses are what the health of a plan of that name counts as refusals by policy, and as hard bounces.
func (c *Config) HealthClasses(plan string) (refusals, bounces []bounce.Class) {
	p := &Plan{}
	p.SetDefaults()
	for _, own := range c.Plans {
		if own.Name == plan {
			p = own
		}
	}
	return classesOf(p.Health.Refusals), classesOf(p.Health.Bounces)
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
	out.StartStage, out.Shrinking, out.Finish, out.EaseOut = p.StartStage, p.Shrinking, p.Finish, p.EaseOut
	out.Begin, out.DayStarts = p.begins(), warmup.DayStart(p.DayStarts)
	out.Health = warmup.Health{
		MinSample: int64(h.MinSample), MinFill: h.MinFill,
		AdvanceBelow: warmup.Limits(h.AdvanceBelow), RegressAbove: warmup.Limits(h.RegressAbove),
		Pause: warmup.PauseRule{Share: h.Pause.Share, Sample: h.Pause.Sample, Seconds: int64(h.Pause.Seconds), Probe: h.Pause.Probe},
	}
	for _, v := range p.Providers {
		if out.Shares == nil {
			out.Shares, out.Growths, out.OwnStages = make(map[string]float64), make(map[string]float64), make(map[string]bool)
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

// OverflowOf gives what becomes of mail that a plan has no room for: it is held when all pools with that plan do so.
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
		usual := &Pool{}
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
		if p.Node > p.Nodes {
			k.problem(&p.block, "node", "number the relays from 1 to nodes, each in its own file", "node %d of %d relays", p.Node, p.Nodes)
		}
		for _, name := range slices.Sorted(maps.Keys(p.Weights)) {
			if !k.counted(name) {
				k.reference(&p.block, "weights", "provider", name, append(providerNames(k.Providers), warmup.Other))
			}
		}
		for _, v := range p.Providers {
			if !k.counted(v.Provider) {
				k.reference(&v.block, "provider", "provider", v.Provider, append(providerNames(k.Providers), warmup.Other))
			}
		}
		for _, s := range p.Stages {
			for _, v := range s.Providers {
				if !k.counted(v.Provider) {
					k.reference(&v.block, "provider", "provider", v.Provider, append(providerNames(k.Providers), warmup.Other))
				}
			}
		}
	}
}

// testHours is the variable of the environment that gives all plans short hours, such as "2s", in tests of
// the whole relay. By a real clock such a plan passes every cap, so it is no setting of the file.
const testHours = "MTA_TEST_HOURS"

func (c *Config) shortenHours(text string) error {
	if text == "" {
		return nil
	}
	hour, err := time.ParseDuration(text)
	if err != nil || hour < time.Second || hour > time.Hour {
		return fmt.Errorf("%s=%s in the environment is not a duration from 1s to 1h; outside of tests, unset it", testHours, text)
	}
	for _, p := range c.resolved.plans {
		p.Hour = hour
	}
	c.warnings = append(c.warnings, fmt.Sprintf("%s=%s in the environment: warm-up plans send an hour's volume in %v", testHours, text, hour))
	return nil
}

// counted reports whether a warm-up can have counts for a provider. A name that nobody has would be a
// cap for nobody.
func (k checker) counted(provider string) bool {
	return provider == warmup.Other || k.resolved.providers[provider] != nil
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
