package warmup

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Status is where an IP stands in its plan. The JSON names are those of Mailgun's API where it has them.
// Stages are counted from 1, volumes are in recipients.
type Status struct {
	IP     string `json:"ip"`     // its address
	Plan   string `json:"plan"`   // the plan's name
	Pacing string `json:"pacing"` // the plan's pacing: ledger or pid
	// how it is: paused by an operator; warm: the plan is passed, there are no caps; scheduled: the plan begins
	// later, no mail takes the source before; store_down and corrupt: the ledger can't be reached or read, no mail
	// takes the source; starting: not read yet
	State       string  `json:"state" words:"normal,paused,warm,scheduled,store_down,starting,corrupt"`
	Stage       int     `json:"stage"`             // the stage in force
	TotalStages int     `json:"total_stages"`      // of the plan
	StageLimit  int64   `json:"stage_limit"`       // the day's cap in force
	HourlyLimit int64   `json:"hourly_limit"`      // the hour's cap in force
	Throttle    float64 `json:"throttle"`          // share of the mail that takes this source now, from 0 to 1
	SentStage   int64   `json:"sent_within_stage"` // since the stage began
	SentHour    int64   `json:"sent_this_hour"`    // in the hour of the plan
	SentDay     int64   `json:"sent_today"`        // in the day of the plan

	StageStarted time.Time `json:"stage_started_at,omitzero"` // when the stage began
	// when the warm-up began; its hours and days are counted from then
	Started  time.Time `json:"started_at,omitzero"`
	HourEnds time.Time `json:"hour_ends_at,omitzero"` // when the next hour begins
	DayEnds  time.Time `json:"day_ends_at,omitzero"`  // when the day is judged and the next one begins

	// what the day will do to the stage as far as is known by now; 'open' while too little was sent and the day may
	// yet be filled
	Outlook         string `json:"outlook,omitempty"`
	OutlookProvider string `json:"outlook_provider,omitempty"` // on account of whom

	Providers []ProviderStatus `json:"providers,omitempty"`     // each provider's part
	History   []DayStatus      `json:"stage_history,omitempty"` // a day each, oldest first
	Forecast  []Forecast       `json:"forecast,omitempty"`      // the days to come, if each is good

	failure string
}

// ProviderStatus is the part of one provider.
type ProviderStatus struct {
	Provider string    `json:"provider"`       // its name; other: all sites that belong to none
	State    string    `json:"state"`          // normal, paused or probing
	Until    time.Time `json:"until,omitzero"` // of a pause
	// today's outcomes: good, middling, bad, or unjudged while they are few
	Health      string  `json:"health"`
	HourlyLimit int64   `json:"hourly_limit"`    // cap in force
	DailyLimit  int64   `json:"daily_limit"`     // cap in force
	Stage       int     `json:"stage,omitempty"` // its own, where it has stepped back alone
	Factor      float64 `json:"factor"`          // of the stage's caps: a bad day halves it
	Pace        float64 `json:"pace"`            // of an hour's usual mail: outcomes of today that prove bad halve it
	SentHour    int64   `json:"sent_this_hour"`  // recipients
	SentDay     int64   `json:"sent_today"`      // recipients
	Rate        float64 `json:"rate"`            // recipients a second that may go
	Demand      float64 `json:"demand"`          // recipients a second that want to
	Waiting     int64   `json:"waiting"`         // recipients that wait for tokens
	// about when the next recipient may go, as the rates are; absent: one may now, or none on account of a cap or a
	// pause
	NextToken   time.Time `json:"next_token,omitzero"`
	Delivered   int64     `json:"delivered_today"`       // recipients
	HardBounces int64     `json:"hard_bounces_today"`    // recipients
	Deferred    int64     `json:"deferred_today"`        // recipients, policy refusals not counted
	Refused     int64     `json:"policy_refusals_today"` // recipients
	Complaints  int64     `json:"complaints_today"`      // of feedback loops
	Reported    bool      `json:"complaints_reported"`   // somebody reports them
	Network     string    `json:"network,omitempty"`     // that it blocks, on account of another source there
}

// Of gives the part of the provider under which mail for one counts; nil when nothing was there for it yet.
func (s *Status) Of(provider string) *ProviderStatus {
	i := slices.IndexFunc(s.Providers, func(p ProviderStatus) bool { return p.Provider == cmp.Or(provider, Other) })
	if i < 0 && len(s.Providers) >= maxProviders-1 && provider != Other {
		return s.Of(Other)
	}
	if i < 0 {
		return nil
	}
	return &s.Providers[i]
}

// DayStatus is a past day: what was desired and what was sent, and what it did to the stage.
type DayStatus struct {
	Stage    int    `json:"stage"`              // in force on that day
	Limit    int64  `json:"stage_limit"`        // the day's cap: what was desired
	Sent     int64  `json:"sent"`               // recipients
	Why      string `json:"why"`                // what the day did to the stage
	Provider string `json:"provider,omitempty"` // on account of whom
}

// Status returns where an IP stands, as of the last step.
func (c *Controller) Status(ip string) (Status, bool) {
	a := c.address(ip)
	if a == nil {
		return Status{}, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	s, p := a.state, a.plan
	down := c.down.Load()
	out := Status{IP: ip, Plan: p.Name, Pacing: string(p.Pacing), TotalStages: len(p.Stages),
		State: a.stateName(down != nil)}
	out.failure = a.failure(out.State, down, c.cfg.Now())
	if a.problem == errNotBegun {
		out.Started = p.Begin
		out.Forecast = p.Forecast(p.Begin, p.StartStage)
	}
	if !a.view.known {
		return out, true
	}
	out.Stage, out.StageLimit, out.HourlyLimit = min(s.Stage+1, len(p.Stages)), s.Caps.Daily, s.Caps.Hourly
	out.Throttle = s.Throttle(p)
	out.SentStage, out.SentHour, out.SentDay = s.StageSent, s.Total.Hour, s.Total.Day
	out.StageStarted, out.Started = s.StageSince.Time(), s.Begin.Time()
	out.HourEnds, out.DayEnds = s.hourEnd(p).Time(), s.dayEnd(p).Time()
	for i := range s.Providers {
		v := &s.Providers[i]
		out.Providers = append(out.Providers, v.status())
		out.Providers[i].NextToken = s.nextToken(p, v)
		if v.behind > 0 {
			out.Providers[i].Stage = min(max(0, s.Stage-v.behind)+1, len(p.Stages))
		}
		out.Providers[i].Health = p.Health.judge(&v.Today).String()
	}
	var next State
	why, who := s.outlook(p, &next)
	out.Outlook, out.OutlookProvider = why.String(), who
	if !next.Warm {
		out.Forecast = p.Forecast(s.dayEnd(p).Time(), next.Stage+1)
	} else if !s.Warm {
		out.Forecast = p.Forecast(s.dayEnd(p).Time(), len(p.Stages)+p.easing()+1)
	}
	for _, d := range s.History {
		out.History = append(out.History,
			DayStatus{min(d.Stage+1, len(p.Stages)), d.Cap, d.Sent, d.Why.String(), d.Provider})
	}
	return out, true
}

// nextToken is when all buckets that mail to a provider takes tokens from have one, zero when they do.
func (s *State) nextToken(p *Plan, v *Provider) time.Time {
	wait := s.wait(p, v)
	if wait == 0 || math.IsInf(wait, 1) {
		return time.Time{}
	}
	return (s.Now + Instant(1000*wait)).Time()
}

// outlook returns what the day would do to the stage, ended it now, and makes next what follows from that. That
// too little was sent it says only when the day falls behind.
func (s *State) outlook(p *Plan, next *State) (Why, string) {
	next.CopyFrom(s)
	why, who := next.nextStage(p)
	if why == StayedFill && !s.behind(p) || why == StayedIdle {
		next.advance(p)
		return Undecided, ""
	}
	return why, who
}

// behind reports whether a day that goes on as it began ends with too little sent to advance. Its first
// hour shows nothing yet.
func (s *State) behind(p *Plan) bool {
	hours := float64(s.Hour%24) + 1 - float64(s.hourEnd(p)-s.Now)/float64(p.hour())
	return hours >= 1 && float64(s.Total.Day) < p.Health.MinFill*float64(s.Caps.Daily)*hours/24
}

// Time gives the wall time of an instant, whose store counts from 1970.
func (t Instant) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

func (a *address) stateName(down bool) string {
	switch {
	case a.problem == errNotBegun:
		return "scheduled"
	case a.problem != nil:
		return "corrupt"
	case down:
		return "store_down"
	case !a.view.known:
		return "starting"
	case a.state.Paused:
		return "paused"
	case a.state.Warm:
		return "warm"
	}
	return "normal"
}

func (v *Provider) status() ProviderStatus {
	out := ProviderStatus{
		Provider: v.Name, State: v.block.state.String(), HourlyLimit: v.Caps.Hourly, DailyLimit: v.Caps.Daily,
		Factor: v.Factor, Pace: v.pace, SentHour: v.Count.Hour, SentDay: v.Count.Day, Rate: v.Rate, Demand: v.Demand,
		Waiting:   v.Waiting,
		Delivered: v.Today.Delivered, HardBounces: v.Today.HardBounces, Deferred: v.Today.Deferred,
		Refused: v.Today.Refused, Complaints: v.Today.Complaints + v.told(),
		Reported: len(v.reports) > 0 || v.Today.Complaints > 0, Network: v.block.network,
	}
	if v.block.state == blocked {
		out.Until = v.block.until.Time()
	}
	return out
}

// String gives the word of a Status.
func (b blockState) String() string { return [...]string{"normal", "paused", "probing"}[b] }

// IPs lists the IPs that have a plan, sorted.
func (c *Controller) IPs() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	names := make([]string, len(c.all))
	for i, a := range c.all {
		names[i] = a.ip
	}
	return names
}

// Blocked reports whether the provider is left alone for now.
func (v *Provider) Blocked() bool { return v.block.state == blocked }

// LedgerFailure returns what is wrong when a warm-up gets no tokens on account of its ledger; "" otherwise.
func (s *Status) LedgerFailure() string { return s.failure }

// busyAfter is how long an address may be locked by others without a break before that is a failure.
const busyAfter = 30 * time.Second

// failure is LedgerFailure in a state of Status. down is why the store can't be reached, nil when it can. Callers hold
// a.mu.
func (a *address) failure(state string, down *error, now time.Time) string {
	switch {
	case state == "corrupt":
		return "its ledger can't be read"
	case state == "store_down":
		return fmt.Sprintf("its ledger can't be reached: %v", *down)
	case !a.busy.IsZero() && now.Sub(a.busy) > busyAfter:
		return cmp.Or(a.why, fmt.Sprintf("other nodes have had it locked for more than %v", busyAfter))
	case state == "starting":
		return "its ledger was not read yet"
	}
	return ""
}
