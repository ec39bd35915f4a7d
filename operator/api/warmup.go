package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/warmup"
)

// Warmups is what the server asks of the warm-up of sources.
type Warmups interface {
	// Warmups gives a page of the sources under a plan, by name, without Providers and StageHistory.
	Warmups(context.Context, Paging) (WarmupList, error)
	// Warmup gives one, by the name of the source or its IP.
	Warmup(ctx context.Context, name string) (Warmup, error)
	// ChangeWarmup carries an action out and returns the warm-up when it is durable. to is for WarmupStart,
	// where 0 is the plan's start stage, and for WarmupSetStage. A dry run, of this and of ReportWarmup, only refuses.
	ChangeWarmup(ctx context.Context, name string, a WarmupAction, to StageChoice) (WarmupChanged, error)
	// ReportWarmup takes a day's complaints into account and returns the warm-up when that is durable.
	ReportWarmup(ctx context.Context, name string, r WarmupReport) (WarmupChanged, error)
	// WarmupPlans gives the plans that can be named: the presets and the configuration's.
	WarmupPlans(context.Context) (WarmupPlanList, error)
	// SimulateWarmup says how a plan would take a daily volume.
	SimulateWarmup(context.Context, SimulateWarmup) (SimulatedWarmup, error)
}

// WarmupAction is what an operator does to a warm-up. No counter changes by any of them.
type WarmupAction string

// The actions, as the last part of their paths.
const (
	WarmupStart    WarmupAction = "start"     // begin again, on a stage
	WarmupPause    WarmupAction = "pause"     // no mail by the source
	WarmupResume   WarmupAction = "resume"    // end a pause
	WarmupSetStage WarmupAction = "set-stage" // go on with another stage, at once
)

// WarmupActions are all of them.
var WarmupActions = []WarmupAction{WarmupStart, WarmupPause, WarmupResume, WarmupSetStage}

// The states of a warm-up.
const (
	WarmupNormal    = "normal"
	WarmupPaused    = "paused"     // by an operator
	WarmupWarm      = "warm"       // its plan is passed, there are no more caps
	WarmupScheduled = "scheduled"  // its plan begins later: no mail by the source before
	WarmupStoreDown = "store_down" // the ledger can't be reached: no mail by the source
	WarmupStarting  = "starting"   // the ledger was not read yet
	WarmupCorrupt   = "corrupt"    // what the ledger has can't be read: no mail by the source
)

// WarmupStates are all of them.
var WarmupStates = []string{WarmupNormal, WarmupPaused, WarmupWarm, WarmupScheduled, WarmupStoreDown,
	WarmupStarting, WarmupCorrupt}

// Warmup is where a source stands in its plan.
type Warmup struct {
	Source string `json:"source"` // its name
	warmup.Status
	// by whom the source, or everything, is paused, and why; left out: it is not
	Paused string `json:"paused,omitempty"`

	Advice string `json:"advice,omitempty"` // what the operator can do about the outlook
	// today's mail that could take the source, in recipients at their first attempt: what the dedicated sources of
	// its pools took, and what was diverted; as this run of the relay has counted it
	Offered  int64          `json:"offered_today"`
	Diverted WarmupDiverted `json:"diverted_today"` // what of it took a shared source, and why
}

// WarmupDiverted is today's mail that took a shared source, in recipients, by what kept it from the dedicated
// ones.
type WarmupDiverted struct {
	TooFast   int64 `json:"too_fast"`  // it came faster than the plan takes it, and for its patience
	OverCap   int64 `json:"over_cap"`  // exceeded the day's cap
	Waited    int64 `json:"waited"`    // until its patience had an end
	Suspended int64 `json:"suspended"` // its site was, for all dedicated sources
}

// Sum is all of it.
func (d WarmupDiverted) Sum() int64 { return d.TooFast + d.OverCap + d.Waited + d.Suspended }

// WarmupChanged is a warm-up as it is after a change.
type WarmupChanged struct {
	Effect
	Warmup
}

// WarmupList is a page of warm-ups, without their providers and history.
type WarmupList struct {
	Warmups []Warmup `json:"warmups"`        // by name of the source
	Next    string   `json:"next,omitempty"` // cursor of the next page; absent when this is the last
}

// WarmupPlan is a plan that a source can be put under.
type WarmupPlan struct {
	Name    string          `json:"name"`    // by which it is named
	Origin  string          `json:"origin"`  // preset or configuration
	Sources []string        `json:"sources"` // that warm up by it
	Plan    warmup.PlanFile `json:"plan"`    // what it says

	Forecast []warmup.Forecast `json:"forecast,omitempty"` // of a warm-up that begins now, or when the plan says
}

// WarmupPlanList is all of them.
type WarmupPlanList struct {
	Plans []WarmupPlan `json:"plans"` // by name
}

// StageChoice names the stage that WarmupStart and WarmupSetStage go to.
type StageChoice struct {
	Intent
	// counted from 1; at start, 0 or none is the plan's start stage
	Stage int `json:"stage,omitempty" q:"stage" help:"the <stage> to begin on, counted from 1 (default: the plan's start_stage)"`
}

// changeWarmup carries out one action.
func changeWarmup(a WarmupAction) func(*Server, *http.Request, StageChoice) (WarmupChanged, error) {
	return toName(func(w Warmups, ctx context.Context, name string, to StageChoice) (WarmupChanged, error) {
		return w.ChangeWarmup(ctx, name, a, to)
	})
}

// WarmupReport is a day's complaints about the mail of a source, by a provider. Figures for the same day
// replace those before.
type WarmupReport struct {
	Intent
	Provider string `json:"provider" q:"provider" help:"the <provider> whose users complained"`
	// 2026-11-22, in UTC
	Day        string `json:"day" q:"day" help:"the <day>, as 2026-11-21 (default: today)"`
	Complaints int64  `json:"complaints,omitempty" q:"complaints" help:"how <many> complaints there were"`
	// in the place of complaints, their share of the mail, from 0 to 1
	Rate float64 `json:"rate,omitempty"`
}

// WarmupAndPlan asks for a warm-up and its plan, which is zero when a reload has just taken it away.
func (c *Client) WarmupAndPlan(ctx context.Context, source string) (w Warmup, plan warmup.PlanFile, err error) {
	if w, err = OpWarmup.Call(ctx, c, None{}, source); err != nil {
		return w, plan, err
	}
	l, err := OpWarmupPlans.Call(ctx, c, None{})
	if i := slices.IndexFunc(l.Plans, func(p WarmupPlan) bool { return p.Name == w.Plan }); i >= 0 {
		plan = l.Plans[i].Plan
	}
	return w, plan, err
}

// SimulateWarmup asks how a plan would take a daily volume. Nothing is changed by it.
type SimulateWarmup struct {
	// the name of a preset or of a plan of the configuration; or:
	Plan     string          `json:"plan,omitempty"`
	Document json.RawMessage `json:"document,omitempty"`            // a plan, as plan in the answer to /v1/warmup/plans
	Volume   int64           `json:"volume" min:"1" max:"10000000"` // recipients a day
	// when the mail comes within a day: even, office (8 to 18 o'clock) or campaign (within ten minutes)
	Shape string `json:"shape,omitempty" words:"even,office,campaign" default:"office"`
	// the days of the week with mail, such as mon-fri or tue,thu; left out: all
	On string `json:"on,omitempty"`
	// that of the mail, which decides how long it waits before it uses a shared source
	Tier *int `json:"tier,omitempty" min:"0" max:"5" default:"3"`
	// how many; 0: until there was mail on as many as the plan has caps, and one more
	Days  int  `json:"days,omitempty" min:"0" max:"120"`
	Hours bool `json:"hours,omitempty"` // a row for each hour, not for each day
	// what becomes of mail that exceeds the plan: it takes a shared source, or waits; left out: as the plan or its
	// pools have it
	Overflow   string  `json:"overflow,omitempty" words:"shared,hold"`
	Deferred   float64 `json:"deferred,omitempty" min:"0" max:"1"`   // the share of the sent mail that is deferred
	Bounced    float64 `json:"bounced,omitempty" min:"0" max:"1"`    // the share that bounces
	Complained float64 `json:"complained,omitempty" min:"0" max:"1"` // the share that is complained about
	Seed       uint64  `json:"seed,omitempty" min:"0"`               // the same seed gives the same answer
}

// Bounds of a simulation.
const (
	MaxSimulatedVolume = 10_000_000
	MaxSimulatedDays   = 120
	MaxSimulatedRows   = 10_000 // of the answer
)

// SimulatedWarmup is how a plan takes a volume.
type SimulatedWarmup struct {
	Plan     string             `json:"plan"`     // its name
	Rows     []SimulatedRow     `json:"rows"`     // days or hours
	Days     []warmup.DayStatus `json:"days"`     // what became of the stage on each day, the last 60 at most
	Offered  int64              `json:"offered"`  // recipients in all
	Sent     int64              `json:"sent"`     // of those, by the source
	Diverted int64              `json:"diverted"` // of those, by shared sources
	Expired  int64              `json:"expired"`  // of those, held until their max_age
	Waiting  int64              `json:"waiting"`  // of those, at the end
	// the first day, counted from 1, from which on the source takes all that is offered; left out when there is
	// none
	Full int `json:"full,omitempty"`
}

// SimulatedRow is a day or an hour of a provider's mail.
type SimulatedRow struct {
	Provider string `json:"provider"` // its name; * where the plan has none of its own
	Second   int64  `json:"second"`   // at which it begins, from the begin of the warm-up
	Stage    int64  `json:"stage"`    // counted from 1
	State    string `json:"state"`    // normal or paused
	CapHour  int64  `json:"cap_hour"` // of the last hour in it; 0: none
	CapDay   int64  `json:"cap_day"`  // of the day; 0: none
	Offered  int64  `json:"offered"`  // recipients that came
	Sent     int64  `json:"sent"`     // by the source
	Diverted int64  `json:"diverted"` // by shared sources
	Expired  int64  `json:"expired"`  // held until their max_age
	Waiting  int64  `json:"waiting"`  // at the end of it
}

// Check returns an error if the question has no answer.
func (q *SimulateWarmup) Check() error {
	switch {
	case (q.Plan == "") == (len(q.Document) == 0):
		return Invalid("name one of the relay's (mta warmup plans), or give a document", "simulate: want a plan")
	case q.Volume < 1 || q.Volume > MaxSimulatedVolume:
		return Invalid("", "volume: want 1 to %d recipients a day, not %d", MaxSimulatedVolume, q.Volume)
	case q.Tier != nil && (*q.Tier < 0 || *q.Tier >= envelope.TierCount):
		return Invalid("", "tier: want 0 to %d, not %d", envelope.TierCount-1, *q.Tier)
	case q.Days < 0 || q.Days > MaxSimulatedDays:
		return Invalid("", "days: want 1 to %d, not %d", MaxSimulatedDays, q.Days)
	}
	for _, share := range []float64{q.Deferred, q.Bounced, q.Complained} {
		if !(share >= 0 && share <= 1) {
			return Invalid("", "deferred, bounced, complained: want shares from 0 to 1, not %v", share)
		}
	}
	return nil
}
