package warmup

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Caps bound the recipients handed over in an hour and in a day of 24 hours from the begin of
// the warm-up. In a provider's caps zero is no cap of its own.
type Caps struct {
	Hourly int64 `json:"hourly"`
	Daily  int64 `json:"daily"`
}

// Stage is a day's volume, or several days' while health holds it.
type Stage struct {
	Caps
	Providers map[string]Caps `json:"providers,omitempty"`
}

// Overflow is what happens to mail that does not fit.
type Overflow uint8

const (
	Divert Overflow = iota // it takes a shared source at once
	Hold                   // it waits until there are tokens
)

// String gives the word used in plans and configuration.
func (o Overflow) String() string {
	if o == Hold {
		return "hold"
	}
	return "divert"
}

// Law is who decides that a message may take the warming IP.
type Law uint8

const (
	Ledger Law = iota // tokens charged before sending; the only law that keeps caps
	PID               // the published controller on counted messages, to compare with
	OnOff             // all below the cap and none above, on counted messages, to compare with
)

var laws = []string{"ledger", "pid", "onoff"}

// String gives the word used by the command line.
func (l Law) String() string { return laws[l] }

// ParseLaw is the inverse of String.
func ParseLaw(s string) (Law, error) {
	if i := slices.Index(laws, s); i >= 0 {
		return Law(i), nil
	}
	return 0, fmt.Errorf("mode %q is not known: use ledger, pid or onoff", s)
}

// Limits are shares of a day's outcomes, each from 0 to 1.
type Limits struct {
	Bounce    float64 `json:"bounce"`    // hard bounces
	Defer     float64 `json:"defer"`     // policy refusals and deferrals
	Complaint float64 `json:"complaint"` // feedback loop
}

// PauseRule says when a provider that blocks is left alone. Sample 0: never.
type PauseRule struct {
	Share   float64 `json:"share"`   // of policy refusals among the last Sample outcomes
	Sample  int     `json:"sample"`  // at most 64
	Seconds int64   `json:"seconds"` // the first pause; each further one doubles, to 16 times this
	Probe   int     `json:"probe"`   // recipients tried before resuming
}

// Health says what outcomes move the stage.
type Health struct {
	MinSample    int64     `json:"min_sample"` // outcomes of a provider in a day; 0: advance each day, whatever happens
	MinFill      float64   `json:"min_fill"`   // share of the daily cap that must have been sent to advance
	AdvanceBelow Limits    `json:"advance_below"`
	RegressAbove Limits    `json:"regress_above"`
	Pause        PauseRule `json:"pause"`
}

// Plan is a warm-up plan. Plans are shared and must not be changed once in use. DefaultPlan has
// the defaults of every field but Stages.
type Plan struct {
	Name     string
	Overflow Overflow
	Law      Law

	Burst         float64            // how much faster than hourly/3600 missed volume is caught up
	BucketSeconds float64            // of flow that may be saved up while there is no mail
	Peak          float64            // how much faster than hourly/3600 saved-up volume may leave
	SlidingHour   float64            // most in any 60 minutes, in hourly caps
	StartStage    int                // counted from 1
	Weights       map[string]float64 // shares when mail for several providers competes; 1 when absent
	Stages        []Stage
	Health        Health

	// Shrinking allows a stage to have a lower cap than the one before.
	Shrinking bool
	// SpreadEven spreads the daily cap over the day. Otherwise hours are filled to their caps
	// until the day's is used, as Mailgun does.
	SpreadEven bool
	// Finish lifts all caps when the last stage has been passed. Otherwise its caps stay.
	Finish bool
	// Hour is the length of what the plan calls an hour; minutes and days follow. It is 3,600 s
	// but in tests of the real relay, which have no time for real ones.
	Hour time.Duration
}

// DefaultPlan gives the defaults.
func DefaultPlan() Plan {
	return Plan{
		Burst: 2, BucketSeconds: 180, Peak: 15, SlidingHour: 1.10, StartStage: 1, Hour: time.Hour,
		Health: Health{
			MinSample: 100, MinFill: .5,
			AdvanceBelow: Limits{Bounce: .02, Defer: .10, Complaint: .001},
			RegressAbove: Limits{Bounce: .05, Defer: .25, Complaint: .003},
			Pause:        PauseRule{Share: .5, Sample: 20, Seconds: 900, Probe: 5},
		},
	}
}

// maxCap keeps arithmetic on counters far from overflow.
const maxCap = 1 << 40

// Check says what makes no sense in a plan, nil when it may be used.
func (p *Plan) Check() error {
	if len(p.Stages) == 0 {
		return fmt.Errorf("plan has no stages: give at least one with hourly and daily caps")
	}
	if p.StartStage < 1 || p.StartStage > len(p.Stages) {
		return fmt.Errorf("start_stage %d is not one of the %d stages", p.StartStage, len(p.Stages))
	}
	if err := p.checkShape(); err != nil {
		return err
	}
	if err := p.Health.check(); err != nil {
		return err
	}
	for i := range p.Stages {
		if err := p.Stages[i].check(i + 1); err != nil {
			return err
		}
		if i > 0 && !p.Shrinking {
			if err := checkGrowth(i+1, &p.Stages[i-1], &p.Stages[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *Plan) checkShape() error {
	for _, f := range []struct {
		name     string
		value    float64
		min, max float64
	}{
		{"burst", p.Burst, 1, 60}, {"bucket_seconds", p.BucketSeconds, 1, 3600},
		{"peak", p.Peak, 1, 3600}, {"sliding_hour_factor", p.SlidingHour, 1, 2},
	} {
		if !(f.value >= f.min && f.value <= f.max) {
			return fmt.Errorf("%s is %v, outside %v to %v", f.name, f.value, f.min, f.max)
		}
	}
	if p.Hour < time.Second || p.Hour > time.Hour {
		return fmt.Errorf("an hour of %v is outside 1s to 1h", p.Hour)
	}
	for name, w := range p.Weights {
		if !(w > 0) || math.IsInf(w, 0) {
			return fmt.Errorf("the weight of provider %q is %v: it must be above 0", name, w)
		}
	}
	return nil
}

func (h *Health) check() error {
	if h.MinSample < 0 {
		return fmt.Errorf("health: min_sample is %d: it can't be negative", h.MinSample)
	}
	for _, f := range []struct {
		name  string
		value float64
	}{
		{"min_fill", h.MinFill}, {"pause.share", h.Pause.Share},
		{"advance_below.bounce", h.AdvanceBelow.Bounce}, {"regress_above.bounce", h.RegressAbove.Bounce},
		{"advance_below.defer", h.AdvanceBelow.Defer}, {"regress_above.defer", h.RegressAbove.Defer},
		{"advance_below.complaint", h.AdvanceBelow.Complaint}, {"regress_above.complaint", h.RegressAbove.Complaint},
	} {
		if !(f.value >= 0 && f.value <= 1) {
			return fmt.Errorf("health: %s is %v: it is a share from 0 to 1", f.name, f.value)
		}
	}
	if a, r := h.AdvanceBelow, h.RegressAbove; a.Bounce > r.Bounce || a.Defer > r.Defer || a.Complaint > r.Complaint {
		return fmt.Errorf("health: advance_below is above regress_above")
	}
	if s := h.Pause.Sample; s < 0 || s > 64 {
		return fmt.Errorf("health: pause.sample is %d, outside 0 to 64", s)
	}
	if h.Pause.Sample > 0 && (h.Pause.Seconds < 1 || h.Pause.Probe < 1) {
		return fmt.Errorf("health: pause needs seconds and probe of at least 1, or sample = 0 for no pauses")
	}
	return nil
}

func (s *Stage) check(number int) error {
	if s.Hourly == 0 {
		return fmt.Errorf("stage %d has no hourly cap", number)
	}
	if s.Daily == 0 {
		return fmt.Errorf("stage %d has no daily cap", number)
	}
	if err := s.Caps.check(); err != nil {
		return fmt.Errorf("stage %d: %w", number, err)
	}
	for _, name := range sortedNames(s.Providers) {
		c := s.Providers[name]
		if c == (Caps{}) {
			return fmt.Errorf("stage %d: provider %q has no caps", number, name)
		}
		if err := c.check(); err != nil {
			return fmt.Errorf("stage %d: provider %q: %w", number, name, err)
		}
	}
	return nil
}

func (c Caps) check() error {
	switch {
	case c.Hourly < 0 || c.Daily < 0:
		return fmt.Errorf("a cap is negative")
	case c.Hourly > maxCap || c.Daily > maxCap:
		return fmt.Errorf("a cap is above %d", int64(maxCap))
	case c.Daily > 0 && c.Hourly > c.Daily:
		return fmt.Errorf("hourly %d is above daily %d", c.Hourly, c.Daily)
	}
	return nil
}

func checkGrowth(number int, before, s *Stage) error {
	if s.Hourly < before.Hourly || s.Daily < before.Daily {
		return fmt.Errorf("stage %d allows less than the one before: set shrinking if that is meant", number)
	}
	for _, name := range sortedNames(s.Providers) {
		if c, b := s.Providers[name], before.Providers[name]; below(c.Hourly, b.Hourly) || below(c.Daily, b.Daily) {
			return fmt.Errorf("stage %d allows less for provider %q than the one before: set shrinking if that is meant", number, name)
		}
	}
	return nil
}

// below compares caps of which zero is none.
func below(c, before int64) bool { return c > 0 && before > 0 && c < before }

func sortedNames(m map[string]Caps) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Divide gives the plan for one of n nodes that have no store in common: each node's share of
// every cap, rounded down, at least 1. More nodes than a cap is an error, for then the sum of
// shares would be above it.
func (p *Plan) Divide(n int) (*Plan, error) {
	q := *p
	q.Stages = slices.Clone(p.Stages)
	share := func(c Caps) (Caps, error) {
		d := Caps{c.Hourly / int64(n), c.Daily / int64(n)}
		if c.Hourly > 0 && d.Hourly == 0 || c.Daily > 0 && d.Daily == 0 {
			return d, fmt.Errorf("dividing plan %q: a cap is smaller than the number of nodes, %d", p.Name, n)
		}
		return d, nil
	}
	for i := range q.Stages {
		s, err := &q.Stages[i], error(nil)
		if s.Caps, err = share(s.Caps); err != nil {
			return nil, err
		}
		s.Providers = make(map[string]Caps, len(s.Providers))
		for name, c := range p.Stages[i].Providers {
			if s.Providers[name], err = share(c); err != nil {
				return nil, err
			}
		}
	}
	return &q, nil
}

// The lengths of a plan's windows and waits, all in proportion to its hour.

func (p *Plan) hour() Instant   { return Instant(p.Hour / time.Millisecond) }
func (p *Plan) minute() Instant { return p.hour() / 60 }
func (p *Plan) day() Instant    { return 24 * p.hour() }

// seconds gives the length of s seconds of a real hour.
func (p *Plan) seconds(s float64) Instant { return Instant(s * float64(p.hour()) / 3600) }

// closing is how long before a window's end nothing is authorised any more, so that what is
// authorised has time to reach the provider in the same window.
func (p *Plan) closing() Instant { return min(2*second, p.hour()/100) }

func (p *Plan) weight(provider string) float64 {
	if w, ok := p.Weights[provider]; ok {
		return w
	}
	return 1
}

func (p *Plan) stage(i int) *Stage { return &p.Stages[min(max(i, 0), len(p.Stages)-1)] }
