package blocks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

// Controller has the warm-ups, as a *warmup.Controller.
type Controller interface {
	Status(ip string) (warmup.Status, bool)
	IPs() []string
	Do(ctx context.Context, ip string, a warmup.Action) error
	Check(ip string, a warmup.Action) error
}

// Warmups answers about warm-ups; it implements api.Warmups.
type Warmups struct {
	Policy     func() *wiring.Policy // in force
	Now        func() time.Time
	Controller Controller
	Rules      *rules.Rules
	// Diverted returns what became of the mail for the pools of a warm-up since a time, to the hour.
	Diverted func(key string, since time.Time) Diverted

	simulating sync.Mutex // mail needs the processors, too: one simulation runs at a time
}

// Diverted counts recipients by what became of the mail that a warming source could have taken.
type Diverted struct {
	Offered int64 // to the source and its like, those it took included
	Faster  int64 // of TooFast: came faster than the plan takes it, and had no patience
	api.WarmupDiverted
}

func (w *Warmups) Warmups(_ context.Context, q api.Paging) (l api.WarmupList, _ error) {
	var all []row[api.Warmup]
	for _, ip := range w.Controller.IPs() {
		if s, ok := w.Controller.Status(ip); ok {
			shown := w.shown(s)
			shown.Providers, shown.History, shown.Forecast = nil, nil, nil
			all = append(all, row[api.Warmup]{value: shown, name: shown.Source + " " + ip})
		}
	}
	l.Warmups, l.Next = cut(all, &api.BlockFilter{Paging: q})
	return l, nil
}

func (w *Warmups) Warmup(_ context.Context, name string) (api.Warmup, error) {
	_, s, err := w.find(name)
	if err != nil {
		return api.Warmup{}, err
	}
	return w.shown(s), nil
}

// find gives the controller's name of what an operator names, and how it is.
func (w *Warmups) find(name string) (key string, s warmup.Status, err error) {
	key, ok := w.Policy().WarmupKeyOf(name)
	if ok {
		s, ok = w.Controller.Status(key)
	}
	if !ok {
		err = api.NotFound("those that have one: mta warmup list", "no source %q has a warm-up plan", name)
	}
	return key, s, err
}

// warmupPatience is how long an operator waits for the ledger.
const warmupPatience = 10 * time.Second

// warmupActions are what an operator can do; the number is that of a stage.
var warmupActions = map[api.WarmupAction]func(int) warmup.Action{
	api.WarmupStart:    warmup.Start,
	api.WarmupSetStage: warmup.SetStage,
	api.WarmupPause:    func(int) warmup.Action { return warmup.Pause() },
	api.WarmupResume:   func(int) warmup.Action { return warmup.Resume() },
}

func (w *Warmups) ChangeWarmup(
	ctx context.Context, name string, action api.WarmupAction, to api.StageChoice,
) (api.WarmupChanged, error) {
	if _, _, err := w.find(name); err != nil {
		return api.WarmupChanged{}, err
	}
	switch staged := action == api.WarmupStart || action == api.WarmupSetStage; {
	case !staged && to.Stage != 0:
		return api.WarmupChanged{}, api.Invalid("", "%s takes no stage", action)
	case to.Stage < 0 || action == api.WarmupSetStage && to.Stage == 0:
		return api.WarmupChanged{}, api.Invalid("stages are counted from 1", "there is no stage %d", to.Stage)
	}
	return w.do(ctx, name, warmupActions[action](to.Stage), to.DryRun)
}

func (w *Warmups) ReportWarmup(ctx context.Context, name string, r api.WarmupReport) (done api.WarmupChanged, _ error) {
	day, err := time.Parse(time.DateOnly, r.Day)
	if err != nil {
		return done, api.Invalid("write it as 2026-11-22", "day: %q is not a valid date", r.Day)
	}
	if r.Provider != warmup.Other && !slices.ContainsFunc(w.Policy().Config.Providers, func(p *config.Provider) bool {
		return p.Name == r.Provider
	}) {
		return done, api.Invalid(
			"the providers that 'mta check --effective' prints have names, and the others are \"other\"",
			"there is no provider %q", r.Provider)
	}
	return w.do(ctx, name, warmup.Reported(r.Provider, warmup.Report{Day: day, Complaints: r.Complaints, Rate: r.Rate}),
		r.DryRun)
}

// do carries out an action, or checks it in a dry run, and returns the warm-up as it is then. Its error names the
// remedy.
func (w *Warmups) do(ctx context.Context, name string, a warmup.Action, dry bool) (done api.WarmupChanged, _ error) {
	key, s, err := w.find(name)
	if err != nil {
		return done, err
	}
	ctx, cancel := context.WithTimeout(ctx, warmupPatience)
	defer cancel()
	if dry {
		err = w.Controller.Check(key, a)
	} else {
		err = w.Controller.Do(ctx, key, a)
	}
	switch {
	case errors.Is(err, warmup.ErrNoStage):
		return done, api.Invalid(fmt.Sprintf("plan %s has stages 1 to %d", s.Plan, s.TotalStages), "%v", err)
	case errors.Is(err, warmup.ErrReport):
		return done, api.Invalid(
			"give the figures of a day of the last two weeks: a number of complaints, or their share of the mail", "%v",
			err)
	case errors.Is(err, context.DeadlineExceeded):
		why := "the relay's log says why"
		if _, now, _ := w.find(name); now.LedgerFailure() != "" {
			why = now.LedgerFailure()
		}
		return done, api.Unavailable(why+"; it may still be carried out", "%v", err)
	case err != nil && s.State == api.WarmupCorrupt:
		return done, api.Unavailable("nothing but a start replaces it: mta warmup start "+name, "%v", err)
	case err != nil:
		return done, err
	}
	_, s, err = w.find(name)
	return api.WarmupChanged{Effect: api.Effect{Count: 1}, Warmup: w.shown(s)}, err
}

func (w *Warmups) WarmupPlans(context.Context) (api.WarmupPlanList, error) {
	return api.WarmupPlanList{Plans: WarmupPlans(w.Policy().Config, w.Now())}, nil
}

// WarmupPlans lists the plans that can be named in a configuration, by name: its own and the presets, with the
// days of a warm-up that begins now.
func WarmupPlans(cfg *config.Config, now time.Time) []api.WarmupPlan {
	used := make(map[string][]string)
	for _, p := range cfg.Pools {
		for _, d := range p.Dedicated {
			used[d.Plan] = append(used[d.Plan], d.Name)
		}
	}
	var all []api.WarmupPlan
	for _, name := range cfg.WarmupPlans() {
		plan, origin := cfg.WarmupPlan(name), "preset"
		if slices.ContainsFunc(cfg.Plans, func(p *config.Plan) bool { return p.Name == name }) {
			origin = "configuration"
		}
		slices.Sort(used[name])
		all = append(all, api.WarmupPlan{
			Name: name, Origin: origin, Sources: slices.Compact(used[name]), Plan: plan.File(),
			Forecast: plan.Forecast(plan.First(now), plan.StartStage),
		})
	}
	return all
}

// shown gives a status in the words of the API.
func (w *Warmups) shown(s warmup.Status) api.Warmup {
	source := w.Policy().WarmupSource(s.IP)
	out := api.Warmup{Source: source, Status: s, Paused: pausedSource(w.Rules, source)}
	if s.Stage == 0 {
		return out // nothing is known
	}
	d := w.Diverted(s.IP, s.DayEnds.AddDate(0, 0, -1))
	out.Offered, out.Diverted, out.Advice = d.Offered, d.WarmupDiverted, d.advice(&s)
	slices.SortFunc(out.Providers, func(a, b warmup.ProviderStatus) int { return cmp.Compare(a.Provider, b.Provider) })
	return out
}

// adviceFrom is the share of the mail, in per cent, that must have come too fast before that is worth a word.
const adviceFrom = 10

// advice is what an operator can do about a day that will not be filled, "" for nothing.
func (d *Diverted) advice(s *warmup.Status) string {
	open := s.Outlook == warmup.Undecided.String() || s.Outlook == warmup.StayedFill.String()
	if !open || s.SentDay >= s.StageLimit || 100*d.TooFast < adviceFrom*d.Offered || d.TooFast == 0 {
		return ""
	}
	more := ""
	if d.TooFast > 2*d.Faster {
		more = "more "
	}
	return fmt.Sprintf("%d %% of the mail came faster than the plan takes it: give it %spatience",
		100*d.TooFast/d.Offered, more)
}
