package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"example.org/mta/warmup"
)

// Warmups is what the server asks of the warm-up of sources.
type Warmups interface {
	// Warmups gives all sources under a plan, in any order, without Providers and StageHistory.
	Warmups(context.Context) ([]Warmup, error)
	// Warmup gives one, by the name of the source or its IP.
	Warmup(ctx context.Context, name string) (Warmup, error)
	// ChangeWarmup carries an action out and returns when it is durable. to is for WarmupStart,
	// where 0 is the plan's start stage, and for WarmupSetStage. A dry run, of this and of ReportWarmup, only refuses.
	ChangeWarmup(ctx context.Context, name string, a WarmupAction, to StageChoice) error
	// ReportWarmup takes a day's complaints into account and returns when that is durable.
	ReportWarmup(ctx context.Context, name string, r WarmupReport) error
	// WarmupPlans gives the plans that can be named: the presets and the configuration's.
	WarmupPlans(context.Context) ([]WarmupPlan, error)
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
	WarmupUnknown   = "unknown"    // the ledger was not read yet
	WarmupCorrupt   = "corrupt"    // what the ledger has can't be read: no mail by the source
)

// WarmupStates are all of them.
var WarmupStates = []string{WarmupNormal, WarmupPaused, WarmupWarm, WarmupScheduled, WarmupStoreDown, WarmupUnknown, WarmupCorrupt}

// Warmup is where a source stands in its plan.
type Warmup struct {
	Source string `json:"source"`
	warmup.Status
	Paused string `json:"paused,omitempty"` // the source by 'mta pause': by whom and why; "": it is not

	// Advice is what the operator can do about the outlook.
	Advice string `json:"advice,omitempty"`
	// Offered is today's mail that could take the source, in recipients at their first attempt: what it or another
	// dedicated source of its pools took, and what was diverted. It is what this run of the relay has counted.
	Offered  int64          `json:"offered_today"`
	Diverted WarmupDiverted `json:"diverted_today"`
}

// WarmupDiverted is today's mail that took a shared source, in recipients, by what kept it from the dedicated
// ones.
type WarmupDiverted struct {
	TooFast   int64 `json:"too_fast"`  // it came faster than the plan takes it, and for its patience
	OverCap   int64 `json:"over_cap"`  // the day had no room for it
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
	Warmups []Warmup `json:"warmups"`
	Next    string   `json:"next,omitempty"` // cursor of the next page; "" when this is the last
}

// WarmupPlan is a plan that a source can be put under.
type WarmupPlan struct {
	Name    string          `json:"name"`
	Origin  string          `json:"origin"`  // preset or configuration
	Sources []string        `json:"sources"` // that warm up by it
	Plan    warmup.PlanFile `json:"plan"`

	Forecast []warmup.Forecast `json:"forecast,omitempty"` // of a warm-up that begins now, or when the plan says
}

// WarmupPlanList is all of them.
type WarmupPlanList struct {
	Plans []WarmupPlan `json:"plans"`
}

// StageChoice names the stage that WarmupStart and WarmupSetStage go to.
type StageChoice struct {
	Intent
	Stage int `json:"stage,omitempty"` // counted from 1; for WarmupStart, 0 is the plan's start stage
}

var warmupParams = []string{"after", "limit"}

func warmupKey(w *Warmup) string { return w.Source + " " + w.IP }

func (s *Server) warmups(w http.ResponseWriter, r *http.Request, q *query) error {
	limit := q.number("limit", DefaultLimit, 1, MaxLimit)
	if q.err != nil {
		return q.err
	}
	all, err := s.config.Warmups.Warmups(r.Context())
	if err != nil {
		return err
	}
	var l WarmupList
	l.Warmups, l.Next = page(all, warmupKey, q.str("after"), limit)
	return writeJSON(w, l)
}

func (s *Server) warmup(w http.ResponseWriter, r *http.Request, _ *query) error {
	found, err := s.config.Warmups.Warmup(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return writeJSON(w, found)
}

func (s *Server) warmupPlans(w http.ResponseWriter, r *http.Request, _ *query) error {
	plans, err := s.config.Warmups.WarmupPlans(r.Context())
	if err != nil {
		return err
	}
	for i := range plans {
		if plans[i].Sources == nil {
			plans[i].Sources = []string{}
		}
	}
	return writeJSON(w, WarmupPlanList{plans})
}

// changeWarmup carries out one action. It ends with the warm-up as it is then.
func changeWarmup(a WarmupAction) func(*Server, *http.Request, StageChoice) (WarmupChanged, error) {
	return func(s *Server, r *http.Request, to StageChoice) (WarmupChanged, error) {
		name := r.PathValue("name")
		if _, err := s.config.Warmups.Warmup(r.Context(), name); err != nil {
			return WarmupChanged{}, err
		}
		staged := a == WarmupStart || a == WarmupSetStage
		switch {
		case !staged && to.Stage != 0:
			return WarmupChanged{}, Invalid("", "%s takes no stage", a)
		case to.Stage < 0 || a == WarmupSetStage && to.Stage == 0:
			return WarmupChanged{}, Invalid("stages are counted from 1", "stage %d: there is none", to.Stage)
		}
		if err := s.config.Warmups.ChangeWarmup(r.Context(), name, a, to); err != nil {
			return WarmupChanged{}, err
		}
		now, err := s.config.Warmups.Warmup(r.Context(), name)
		return WarmupChanged{one(nil), now}, err
	}
}

// WarmupReport is a day's complaints about the mail of a source, by a provider. Figures for the same day
// replace those before.
type WarmupReport struct {
	Intent
	Provider   string  `json:"provider"`
	Day        string  `json:"day"` // 2026-11-22, in UTC
	Complaints int64   `json:"complaints,omitempty"`
	Rate       float64 `json:"rate,omitempty"` // in the place of complaints, their share of the mail, from 0 to 1
}

// reportWarmup ends with the warm-up as it is then.
func (s *Server) reportWarmup(r *http.Request, report WarmupReport) (WarmupChanged, error) {
	name := r.PathValue("name")
	if err := s.config.Warmups.ReportWarmup(r.Context(), name, report); err != nil {
		return WarmupChanged{}, err
	}
	now, err := s.config.Warmups.Warmup(r.Context(), name)
	return WarmupChanged{one(err), now}, err
}

// ReportWarmup takes a day's complaints into account and gives the warm-up as it is then.
func (c *Client) ReportWarmup(ctx context.Context, name string, r WarmupReport) (w WarmupChanged, err error) {
	return w, c.post(ctx, "/v1/warmup/"+url.PathEscape(name)+"/report", r, &w)
}

// Warmups gives a page of the sources that warm up, without their providers and history. after is
// WarmupList.Next of the page before, limit is from 1 to MaxLimit, 0 is DefaultLimit.
func (c *Client) Warmups(ctx context.Context, after string, limit int) (WarmupList, error) {
	v := url.Values{}
	setPage(v, nil, after, limit)
	var l WarmupList
	return l, c.get(ctx, "/v1/warmup", v, &l)
}

// Warmup gives one of them, by the name of the source or its IP.
func (c *Client) Warmup(ctx context.Context, name string) (Warmup, error) {
	var w Warmup
	return w, c.get(ctx, "/v1/warmup/"+url.PathEscape(name), nil, &w)
}

// WarmupPlans gives the plans that can be named, sorted.
func (c *Client) WarmupPlans(ctx context.Context) ([]WarmupPlan, error) {
	var l WarmupPlanList
	if err := c.get(ctx, "/v1/warmup/plans", nil, &l); err != nil {
		return nil, err
	}
	slices.SortFunc(l.Plans, func(a, b WarmupPlan) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return l.Plans, nil
}

// ChangeWarmup carries an action out and gives the warm-up as it is then. The stage is for WarmupStart, where 0 is the
// plan's start stage, and for WarmupSetStage.
func (c *Client) ChangeWarmup(ctx context.Context, name string, a WarmupAction, to StageChoice) (w WarmupChanged, err error) {
	return w, c.post(ctx, "/v1/warmup/"+url.PathEscape(name)+"/"+string(a), to, &w)
}
