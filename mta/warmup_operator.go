package mta

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/mta/control"
	"example.org/mta/warmup"
)

// warmupController is what an operator needs of a *warmup.Controller.
type warmupController interface {
	Status(ip string) (warmup.Status, bool)
	IPs() []string
	Do(ctx context.Context, ip string, a warmup.Action) error
}

// warmups is what the control API asks of the warm-up.
type warmups struct {
	ctl    warmupController
	names  *warming // knows the sources by the names that the controller has for them
	config func() *config.Config
	now    func() time.Time
	paused func(source string) string // by whom an operator's pause of a source is, and why; "": there is none
}

// Warmups implements control.Warmups.
func (w warmups) Warmups(context.Context) ([]control.Warmup, error) {
	var all []control.Warmup
	for _, ip := range w.ctl.IPs() {
		if s, ok := w.ctl.Status(ip); ok {
			shown := w.shown(s)
			shown.Providers, shown.History, shown.Forecast = nil, nil, nil
			all = append(all, shown)
		}
	}
	return all, nil
}

// Warmup implements control.Warmups.
func (w warmups) Warmup(_ context.Context, name string) (control.Warmup, error) {
	_, s, err := w.find(name)
	if err != nil {
		return control.Warmup{}, err
	}
	return w.shown(s), nil
}

// find gives the controller's name of what an operator names, and how it is.
func (w warmups) find(name string) (key string, s warmup.Status, err error) {
	key, ok := w.names.keyOf(name)
	if ok {
		s, ok = w.ctl.Status(key)
	}
	if !ok {
		err = control.NotFound("those that have one: mta warmup list", "no source %q has a warm-up plan", name)
	}
	return key, s, err
}

// warmupPatience is how long an operator waits for the ledger.
const warmupPatience = 10 * time.Second

// warmupActions are what an operator can do; the number is that of a stage.
var warmupActions = map[control.WarmupAction]func(int) warmup.Action{
	control.WarmupStart:    warmup.Start,
	control.WarmupSetStage: warmup.SetStage,
	control.WarmupPause:    func(int) warmup.Action { return warmup.Pause() },
	control.WarmupResume:   func(int) warmup.Action { return warmup.Resume() },
}

// ChangeWarmup implements control.Warmups.
func (w warmups) ChangeWarmup(ctx context.Context, name string, action control.WarmupAction, stage int) error {
	act, ok := warmupActions[action]
	if !ok {
		return fmt.Errorf("a warm-up has no action %q", action)
	}
	return w.do(ctx, name, act(stage))
}

// ReportWarmup implements control.Warmups.
func (w warmups) ReportWarmup(ctx context.Context, name string, r control.WarmupReport) error {
	day, err := time.Parse(time.DateOnly, r.Day)
	if err != nil {
		return control.Invalid("write it as 2026-11-22", "day: %q is no day", r.Day)
	}
	if r.Provider != warmup.Other && !slices.ContainsFunc(w.config().Providers, func(p *config.Provider) bool { return p.Name == r.Provider }) {
		return control.Invalid("the providers that 'mta check --effective' prints have names, and the others are \"other\"", "there is no provider %q", r.Provider)
	}
	return w.do(ctx, name, warmup.Reported(r.Provider, warmup.Report{Day: day, Complaints: r.Complaints, Rate: r.Rate}))
}

// do carries out an action; its error says what the operator can do.
func (w warmups) do(ctx context.Context, name string, a warmup.Action) error {
	key, s, err := w.find(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, warmupPatience)
	defer cancel()
	err = w.ctl.Do(ctx, key, a)
	switch {
	case errors.Is(err, warmup.ErrNoStage):
		return control.Invalid(fmt.Sprintf("plan %s has stages 1 to %d", s.Plan, s.TotalStages), "%v", err)
	case errors.Is(err, warmup.ErrReport):
		return control.Invalid("give the figures of a day of the last two weeks: a number of complaints, or their share of the mail", "%v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return control.Unavailable("the relay's log says why; it may still be carried out", "%v", err)
	case err != nil && s.State == control.WarmupCorrupt:
		return control.Unavailable("nothing but a start replaces it: mta warmup start "+name, "%v", err)
	}
	return err
}

// WarmupPlans implements control.Warmups.
func (w warmups) WarmupPlans(context.Context) ([]control.WarmupPlan, error) {
	return WarmupPlans(w.config(), w.now()), nil
}

// WarmupPlans lists the plans that can be named in a configuration, by name: its own and the presets, with the
// days of a warm-up that begins now.
func WarmupPlans(cfg *config.Config, now time.Time) []control.WarmupPlan {
	used := make(map[string][]string)
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			used[d.Plan] = append(used[d.Plan], d.Name)
		}
	}
	var all []control.WarmupPlan
	for _, name := range cfg.WarmupPlans() {
		plan, origin := cfg.WarmupPlan(name), "preset"
		if slices.ContainsFunc(cfg.Plans, func(p *config.Plan) bool { return p.Name == name }) {
			origin = "configuration"
		}
		slices.Sort(used[name])
		all = append(all, control.WarmupPlan{
			Name: name, Origin: origin, Sources: slices.Compact(used[name]), Plan: plan.File(), Forecast: plan.Forecast(plan.First(now), plan.StartStage),
		})
	}
	return all
}

// shown gives a status in the words of the API.
func (w warmups) shown(s warmup.Status) control.Warmup {
	out := control.Warmup{Source: w.names.sourceOf(s.IP), Status: s}
	if w.paused != nil {
		out.Paused = w.paused(out.Source)
	}
	if s.Stage == 0 {
		return out // nothing is known
	}
	d := w.names.divertedSince(s.IP, s.DayEnds.AddDate(0, 0, -1))
	out.Offered, out.Diverted = d.offered(), control.WarmupDiverted{
		TooFast: d[cameFaster] + d[cameTooFast], OverCap: d[hadNoRoom], Waited: d[lostPatience], Suspended: d[foundNoWay],
	}
	out.Advice = d.advice(&s)
	slices.SortFunc(out.Providers, func(a, b warmup.ProviderStatus) int { return cmp.Compare(a.Provider, b.Provider) })
	return out
}
