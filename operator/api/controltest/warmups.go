package controltest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

var _ api.Warmups = (*Relay)(nil)

// Warmups gives KnownWarmups.
func (r *Relay) Warmups(context.Context) ([]api.Warmup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.KnownWarmups)
	for i := range all {
		all[i].Providers, all[i].History, all[i].Forecast = nil, nil, nil
	}
	return all, nil
}

// Warmup gives the one of that name or IP.
func (r *Relay) Warmup(_ context.Context, name string) (api.Warmup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.warmup(name)
	if err != nil {
		return api.Warmup{}, err
	}
	return *w, nil
}

func (r *Relay) warmup(name string) (*api.Warmup, error) {
	for i := range r.KnownWarmups {
		if w := &r.KnownWarmups[i]; w.Source == name || w.IP == name {
			return w, nil
		}
	}
	return nil, api.NotFound("those that have one: mta warmup list", "no source %q has a warm-up plan", name)
}

// ChangeWarmup changes the state and the stage, and nothing else.
func (r *Relay) ChangeWarmup(_ context.Context, name string, a api.WarmupAction, to api.StageChoice) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.warmup(name)
	if err != nil {
		return err
	}
	stage := to.Stage
	if stage > w.TotalStages {
		return api.Invalid(fmt.Sprintf("plan %s has stages 1 to %d", w.Plan, w.TotalStages), "stage %d: no such stage", stage)
	}
	if to.DryRun {
		return nil
	}
	switch a {
	case api.WarmupPause:
		w.State = api.WarmupPaused
	case api.WarmupResume:
		w.State = api.WarmupNormal
	case api.WarmupStart:
		w.State, w.Stage, w.History = api.WarmupNormal, max(1, stage), nil
	case api.WarmupSetStage:
		w.Stage = stage
	}
	return nil
}

// ReportWarmup counts complaints today.
func (r *Relay) ReportWarmup(_ context.Context, name string, x api.WarmupReport) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, err := r.warmup(name)
	if err != nil {
		return err
	}
	for i := range w.Providers {
		if p := &w.Providers[i]; p.Provider == x.Provider && !x.DryRun {
			p.Complaints, p.Reported = x.Complaints, true
		}
	}
	return nil
}

// WarmupPlans gives KnownPlans.
func (r *Relay) WarmupPlans(context.Context) ([]api.WarmupPlan, error) {
	return slices.Clone(r.KnownPlans), nil
}

// SimulateWarmup gives three days, each with a cap that doubles.
func (r *Relay) SimulateWarmup(_ context.Context, q api.SimulateWarmup) (api.SimulatedWarmup, error) {
	r.mu.Lock()
	r.Simulated = &q
	r.mu.Unlock()
	out := api.SimulatedWarmup{Plan: q.Plan}
	for day := range int64(3) {
		sent := min(q.Volume, 250<<day)
		out.Rows = append(out.Rows, api.SimulatedRow{Provider: "*", Second: day * 86_400, Stage: day + 1, State: api.WarmupNormal, CapHour: 31 << day, CapDay: 250 << day, Offered: q.Volume, Sent: sent, Diverted: q.Volume - sent})
		out.Days = append(out.Days, warmup.DayStatus{Stage: int(day) + 1, Limit: 250 << day, Sent: sent, Why: warmup.Advanced.String()})
		out.Offered, out.Sent, out.Diverted = out.Offered+q.Volume, out.Sent+sent, out.Diverted+q.Volume-sent
	}
	return out, nil
}

// addWarmups adds three sources: one in the midst of its plan, with every kind of day behind it and
// each state of a provider, one that an operator has paused, and one that is warm.
func (r *Relay) addWarmups() {
	daily := []int64{250, 400, 640, 1024, 1638, 2621, 4194, 6711, 10737, 17180, 27488, 43980, 70369, 112590}
	standard := plan(daily...)
	standard.Finish, standard.EaseOut = true, 3
	small := plan(350, 560, 560)
	small.Stages[1].Providers = map[string]warmup.Caps{"google": {Daily: 280}}
	small.Weights = map[string]float64{"google": 2}
	r.KnownPlans = []api.WarmupPlan{
		{Name: "small", Origin: "configuration", Sources: []string{"news-1"}, Plan: small, Forecast: r.forecast(&small, r.Now, 1)},
		{Name: "standard", Origin: "preset", Sources: []string{"acme-1", "old-1"}, Plan: standard, Forecast: r.forecast(&standard, r.Now, 1)},
	}
	began := r.Now.Add(-9*24*time.Hour - 10*time.Hour - 36*time.Minute)
	acme := api.Warmup{
		Source: "acme-1", Status: warmup.Status{IP: "192.0.2.20", Plan: "standard", Pacing: "ledger", State: api.WarmupNormal,
			Stage: 6, TotalStages: 14, StageLimit: 2621, HourlyLimit: 328, Throttle: .27, SentStage: 4210, SentHour: 197, SentDay: 1589,
			StageStarted: r.Now.Add(-34*time.Hour - 36*time.Minute), Started: began,
			HourEnds: r.Now.Add(24 * time.Minute), DayEnds: r.Now.Add(13*time.Hour + 24*time.Minute),
			Outlook: "stayed: outcomes not good enough to advance", OutlookProvider: "yahoo",
			Providers: []warmup.ProviderStatus{
				{Provider: "google", State: "normal", Health: "good", HourlyLimit: 328, DailyLimit: 2621, Factor: 1, SentHour: 120, SentDay: 1011,
					Rate: .048, Demand: .18, Delivered: 1004, HardBounces: 5, Deferred: 2},
				{Provider: "microsoft", State: "paused", Until: r.Now.Add(9 * time.Minute), Health: "unjudged", HourlyLimit: 164, DailyLimit: 1310, Factor: .5,
					SentHour: 22, SentDay: 64, Delivered: 47, Deferred: 1, Refused: 16, Demand: .05, Waiting: 12},
				{Provider: "yahoo", State: "normal", Health: "middling", HourlyLimit: 328, DailyLimit: 2621, Factor: 1, SentHour: 55, SentDay: 514,
					Rate: .02, Demand: .06, Delivered: 430, HardBounces: 3, Deferred: 81, Complaints: 1, Reported: true},
			},
			History: []warmup.DayStatus{
				{Stage: 1, Limit: 250, Sent: 250, Why: "advanced"},
				{Stage: 2, Limit: 400, Sent: 400, Why: "advanced"},
				{Stage: 3, Limit: 640, Sent: 639, Why: "advanced"},
				{Stage: 4, Limit: 1024, Sent: 410, Why: "stayed: daily cap not filled"},
				{Stage: 4, Limit: 1024, Sent: 1024, Why: "advanced"},
				{Stage: 5, Limit: 1638, Sent: 1637, Why: "advanced"},
				{Stage: 6, Limit: 2621, Sent: 2590, Why: "went back: outcomes over the limits", Provider: "microsoft"},
				{Stage: 5, Limit: 1638, Sent: 1638, Why: "advanced"},
				{Stage: 6, Limit: 2621, Sent: 2621, Why: "stayed: one provider is bad", Provider: "microsoft"},
			},
		}}
	acme.Offered, acme.Diverted = 9212, api.WarmupDiverted{TooFast: 6911, OverCap: 712}
	acme.Forecast = r.forecast(&standard, acme.DayEnds, 6)
	news := api.Warmup{
		Source: "news-1", Status: warmup.Status{IP: "2001:db8::20", Plan: "small", Pacing: "ledger", State: api.WarmupPaused,
			Stage: 1, TotalStages: 3, StageLimit: 350, HourlyLimit: 44, StageStarted: r.Now.Add(-time.Hour), Started: r.Now.Add(-time.Hour),
			HourEnds: r.Now, DayEnds: r.Now.Add(23 * time.Hour), Outlook: "stayed: paused",
		}}
	old := api.Warmup{
		Source: "old-1", Status: warmup.Status{IP: "192.0.2.21", Plan: "standard", Pacing: "ledger", State: api.WarmupWarm,
			Stage: 14, TotalStages: 14, StageLimit: 112590, HourlyLimit: 14074, Throttle: 1, SentStage: 400_000, SentHour: 20_000, SentDay: 400_000,
			StageStarted: r.Now.Add(-50 * 24 * time.Hour), Started: r.Now.Add(-64 * 24 * time.Hour),
			HourEnds: r.Now.Add(time.Minute), DayEnds: r.Now.Add(time.Hour), Outlook: "finished",
		}}
	news.Forecast = r.forecast(&small, news.DayEnds, 1)
	r.KnownWarmups = []api.Warmup{acme, news, old}
}

// forecast gives the days of a plan from a stage on.
func (r *Relay) forecast(p *warmup.PlanFile, start time.Time, stage int) (days []warmup.Forecast) {
	add := func(limit int64) {
		days = append(days, warmup.Forecast{Day: start.UTC(), Stage: min(stage, len(p.Stages)), Limit: limit})
		start, stage = start.Add(24*time.Hour), stage+1
	}
	for _, s := range p.Stages[stage-1:] {
		add(s.Daily)
	}
	if !p.Finish {
		return days
	}
	last := p.Stages[len(p.Stages)-1].Daily
	for i := range p.EaseOut {
		add(last << (i + 1))
	}
	add(0)
	return days
}

// plan makes one of daily caps, an eighth of the day in any hour.
func plan(daily ...int64) warmup.PlanFile {
	p := warmup.DefaultPlan()
	p.EaseOut = 0
	for _, d := range daily {
		p.Stages = append(p.Stages, warmup.Stage{Caps: warmup.Caps{Hourly: (d + 4) / 8, Daily: d}})
	}
	f := p.File()
	f.Hour = 0 // HourSeconds is what JSON has
	return f
}
