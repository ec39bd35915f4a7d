package warmup

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
	"time"
)

// Caps bound the recipients handed over in an hour and in a day of 24 hours from the begin of
// the warm-up. In a provider's caps zero means that it has no separate cap.
type Caps struct {
	Hourly int64 `json:"hourly"` // in an hour
	Daily  int64 `json:"daily"`  // in a day
}

// Stage is a day's volume, or several days' while health holds it.
type Stage struct {
	Caps
	Providers map[string]Caps `json:"providers,omitempty"` // the part of some providers
}

// Overflow is what happens to mail that does not fit.
type Overflow string

const (
	Shared Overflow = "shared" // it uses a shared source
	Hold   Overflow = "hold"   // it waits until there are tokens
)

// Valid reports whether o is one of the above.
func (o Overflow) Valid() bool { return o == Shared || o == Hold }

// Pacing is how an hour's cap is spread over the hour. The ledger keeps the caps under each.
type Pacing string

const (
	Ledger Pacing = "ledger" // what is left by the time that is left
	PID    Pacing = "pid"    // the share of the demand that the published controller gives
)

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
	// outcomes of a provider in a day; 0: advance after each day with mail, whatever happens
	MinSample    int64     `json:"min_sample"`
	MinFill      float64   `json:"min_fill"`      // share of the daily cap that must have been sent to advance
	AdvanceBelow Limits    `json:"advance_below"` // on when all are below
	RegressAbove Limits    `json:"regress_above"` // back when any is above
	Pause        PauseRule `json:"pause"`         // of a provider that blocks
}

// Plan is a warm-up plan. Plans are shared and must not be changed once in use. DefaultPlan has
// the defaults of every field but Stages; a PlanFile is one as JSON.
type Plan struct {
	Name string `json:"-"`
	// the handling of mail that exceeds the plan, shared or hold; in a relay the pool decides
	Overflow Overflow `json:"overflow"`
	Pacing   Pacing   `json:"pacing"` // ledger or pid

	Burst         float64 `json:"burst"`               // how much faster than hourly/3600 missed volume is caught up
	BucketSeconds float64 `json:"bucket_seconds"`      // of flow that may be saved up while there is no mail
	Peak          float64 `json:"peak"`                // how much faster than hourly/3600 saved-up volume may leave
	SlidingHour   float64 `json:"sliding_hour_factor"` // most in any 60 minutes, in hourly caps
	StartStage    int     `json:"start_stage"`         // counted from 1

	Begin     time.Time `json:"begin,omitzero"`       // no warm-up begins sooner; zero: it begins at once
	DayStarts DayStart  `json:"day_starts,omitempty"` // of a warm-up that begins
	// for how many days the last stage's caps double each day before they end; without effect if the caps stay
	EaseOut int `json:"ease_out"`

	// of each stage's caps, at most, by provider; caps of a stage's own go before
	Shares map[string]float64 `json:"shares,omitempty"`
	// by provider: how many times its caps of a stage may be those of the stage before
	Growths   map[string]float64 `json:"growths,omitempty"`
	OwnStages map[string]bool    `json:"own_stages,omitempty"` // providers that step back alone
	// shares when mail for several providers competes; 1 when absent
	Weights map[string]float64 `json:"weights,omitempty"`
	Stages  []Stage            `json:"stages"` // in their order
	Health  Health             `json:"health"` // what outcomes move the stage

	Shrinking bool `json:"shrinking"` // a stage may have a lower cap than the one before
	Finish    bool `json:"finish"`    // all caps end when the last stage has been passed; otherwise its caps stay
	// SpreadEven spreads the daily cap over the day. Otherwise hours are filled to their caps
	// until the day's is used, as Mailgun does.
	SpreadEven bool `json:"-"`
	// Hour is the length of what the plan calls an hour; minutes and days follow. It is 3,600 s
	// but in tests of the real relay, which have no time for real ones.
	Hour time.Duration `json:"-"`

	// Of a node's part of a plan, see Divide:
	whole *Plan // what it is a part of; nil: it is whole
	nodes int64 // among which it is divided
	after int64 // how many of them come after this one
}

// DefaultPlan gives the defaults.
func DefaultPlan() Plan {
	return Plan{
		Overflow: Shared, Pacing: Ledger,
		Burst: 2, BucketSeconds: 180, Peak: 15, SlidingHour: 1.10, StartStage: 1, EaseOut: 3, Hour: time.Hour,
		Health: Health{
			MinSample: 100, MinFill: .5,
			AdvanceBelow: Limits{Bounce: .02, Defer: .10, Complaint: .001},
			RegressAbove: Limits{Bounce: .05, Defer: .25, Complaint: .003},
			Pause:        PauseRule{Share: .5, Sample: 20, Seconds: 900, Probe: 5},
		},
	}
}

// Divide gives the plan for one of n nodes that have no store in common: its part of every cap. node, from 1 to
// n, is the number of that one: the parts of all numbers add up to the cap. 0 is a node without a number, whose
// part is rounded down. A cap below n is an error.
func (p *Plan) Divide(n, node int) (*Plan, error) {
	q := *p
	q.whole, q.nodes, q.after = p, int64(n), 0
	if node > 0 {
		q.after = int64(n - node)
	}
	q.Stages = slices.Clone(p.Stages)
	names := p.named()
	for i := range q.Stages {
		s := &q.Stages[i]
		if err := p.divisible("a cap", s.Caps, n); err != nil {
			return nil, err
		}
		s.Caps, s.Providers = q.part(s.Caps), make(map[string]Caps, len(s.Providers))
		for name := range names {
			if err := p.divisible("a cap of provider "+name, p.own(i, name), n); err != nil {
				return nil, err
			}
		}
		for name, c := range p.Stages[i].Providers {
			s.Providers[name] = q.part(c)
		}
	}
	return &q, nil
}

func (p *Plan) divisible(what string, c Caps, n int) error {
	if least := int64(n); c.Hourly > 0 && c.Hourly < least || c.Daily > 0 && c.Daily < least {
		return fmt.Errorf("dividing plan %q among %d nodes: %s is smaller than that: %d an hour, %d a day", p.Name, n,
			what, c.Hourly, c.Daily)
	}
	return nil
}

// part gives a node's part of caps of the whole plan. The first nodes have what is left over.
func (p *Plan) part(c Caps) Caps {
	return Caps{(c.Hourly + p.after) / p.nodes, (c.Daily + p.after) / p.nodes}
}

// The lengths of a plan's windows and waits, all in proportion to its hour.

func (p *Plan) hour() Instant   { return Instant(p.Hour / time.Millisecond) }
func (p *Plan) minute() Instant { return p.hour() / 60 }
func (p *Plan) day() Instant    { return 24 * p.hour() }

// seconds gives the length of s seconds of a real hour.
func (p *Plan) seconds(s float64) Instant { return Instant(s * float64(p.hour()) / 3600) }

// closing is how long before a window's end nothing is authorised any more, so that what is
// authorised has time to reach the provider in the same window: two seconds of a real hour. The way
// is not shorter in the short hours of tests, but it can't have all of them.
func (p *Plan) closing() Instant { return min(max(p.hour()/1800, second/4), p.hour()/100) }

func (p *Plan) weight(provider string) float64 { return cmp.Or(p.Weights[provider], 1) }

// own gives the caps of a provider in a stage, as the stage has them or by its share; zero is none.
func (p *Plan) own(i int, provider string) Caps {
	if p.whole != nil { // a share's part, not a share of the part: rounding each up would pass it
		return p.part(p.whole.own(i, provider))
	}
	s, first := p.stage(i), p.stage(p.StartStage-1)
	caps, share, growth := s.Providers[provider], p.Shares[provider], p.Growths[provider]
	if share == 0 && growth == 0 && !p.OwnStages[provider] {
		return caps
	}
	share = cmp.Or(share, 1)
	part := func(own, all, first int64) int64 {
		if own > 0 {
			return own
		}
		most := share * float64(all)
		if growth > 0 {
			most = min(most, share*float64(first)*math.Pow(growth, float64(i-p.StartStage+1)))
		}
		return int64(math.Ceil(most - 1e-9))
	}
	return Caps{part(caps.Hourly, s.Hourly, first.Hourly), part(caps.Daily, s.Daily, first.Daily)}
}

// named are the providers that have caps of their own.
func (p *Plan) named() map[string]bool {
	names := make(map[string]bool)
	add := func(more iter.Seq[string]) {
		for name := range more {
			names[name] = true
		}
	}
	add(maps.Keys(p.Shares))
	add(maps.Keys(p.Growths))
	add(maps.Keys(p.OwnStages))
	for i := range p.Stages {
		add(maps.Keys(p.Stages[i].Providers))
	}
	return names
}

// stage gives the stage of an index; those behind the last are of its easing out.
func (p *Plan) stage(i int) *Stage {
	last := len(p.Stages) - 1
	if i <= last {
		return &p.Stages[max(i, 0)]
	}
	return p.Stages[last].times(1 << min(i-last, p.easing()))
}

// easing is for how many days the caps are eased out.
func (p *Plan) easing() int {
	if !p.Finish {
		return 0
	}
	return p.EaseOut
}

func (s *Stage) times(n int64) *Stage {
	more := &Stage{Caps: Caps{s.Hourly * n, s.Daily * n}, Providers: make(map[string]Caps, len(s.Providers))}
	for name, c := range s.Providers {
		more.Providers[name] = Caps{c.Hourly * n, c.Daily * n}
	}
	return more
}

// PlanFile is a plan as JSON.
type PlanFile struct {
	Version int `json:"version"` // 1
	Plan
	Spread      string  `json:"spread"`       // of the day's cap over its hours: greedy or even
	HourSeconds float64 `json:"hour_seconds"` // length of an hour
}

// File gives the plan as ParsePlan reads it. Its name is not part of it.
func (p *Plan) File() PlanFile {
	f := PlanFile{Version: 1, Plan: *p, Spread: "greedy", HourSeconds: p.Hour.Seconds()}
	if p.SpreadEven {
		f.Spread = "even"
	}
	return f
}

// ParsePlan reads a plan as JSON and checks it. Fields that are absent have their defaults;
// unknown ones are errors.
func ParsePlan(r io.Reader) (*Plan, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("reading plan: %w", err)
	}
	p := DefaultPlan()
	f := struct {
		PlanFile
		// The names of Pacing and Overflow in plans of older versions.
		Law  Pacing   `json:"law"`
		Mode Overflow `json:"mode"`
	}{PlanFile: p.File()}
	f.Version = 0
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("reading plan: %s", explainJSON(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("reading plan: there is more after the plan's closing brace")
	}
	f.Pacing = cmp.Or(f.Law, f.Pacing)
	if f.Mode == "divert" {
		f.Mode = Shared
	}
	f.Overflow = cmp.Or(f.Mode, f.Overflow)
	return f.plan()
}

// plan checks what was read and gives it as the relay uses it.
func (f *PlanFile) plan() (*Plan, error) {
	p := &f.Plan
	switch {
	case f.Version != 1:
		return nil, fmt.Errorf("plan version is %d: this program knows version 1", f.Version)
	case f.Spread != "greedy" && f.Spread != "even":
		return nil, fmt.Errorf("spread %q is not known: use greedy or even", f.Spread)
	case !(f.HourSeconds >= 1 && f.HourSeconds <= 3600):
		return nil, fmt.Errorf("hour_seconds is %v, outside 1 to 3600", f.HourSeconds)
	}
	p.StartStage = max(p.StartStage, 1)
	p.SpreadEven = f.Spread == "even"
	p.Hour = time.Duration(f.HourSeconds * float64(time.Second))
	return p, p.Check()
}

// explainJSON takes Go's own words out of what encoding/json says.
func explainJSON(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return fmt.Sprintf("%s can't be %s",
			strings.NewReplacer("PlanFile.", "", "Plan.", "", "Caps.", "").Replace(kind.Field), kind.Value)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "the file ends too early"
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}
