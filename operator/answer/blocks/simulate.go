package blocks

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/warmup"
	"example.org/mta/warmup/simulate"
)

// simulationTime is how long a simulation may take. Most take a second, the longest plans with the largest volume ten.
const simulationTime = 30 * time.Second

var (
	errSlowSimulation = errors.New("the simulation takes too long")
	errManyRows       = errors.New("the simulation has too many rows")
)

func (w *Warmups) SimulateWarmup(ctx context.Context, q api.SimulateWarmup) (out api.SimulatedWarmup, _ error) {
	plan, err := w.simulated(&q)
	if err != nil {
		return out, err
	}
	d := simulate.Demand{PerDay: q.Volume, Shape: cmp.Or(q.Shape, "office")}
	if d.On, err = warmup.ParseWeekdays(q.On); err != nil {
		return out, api.Invalid("", "on %v", err)
	}
	begin := d.Begin(plan, w.Now())
	trace, err := d.Trace(begin, cmp.Or(q.Days, min(d.Days(plan, begin), api.MaxSimulatedDays)))
	if err != nil {
		return out, api.Invalid("", "%v", err)
	}
	trace = append(shares(&q), trace...)
	if !w.simulating.TryLock() {
		return out, api.Unavailable("try again in some seconds", "another simulation is running")
	}
	defer w.simulating.Unlock()
	ctx, done := context.WithTimeoutCause(ctx, simulationTime, errSlowSimulation)
	defer done()
	tier := config.DefaultTier
	if q.Tier != nil {
		tier = *q.Tier
	}
	return simulateOn(ctx, plan, trace, wiring.Simulation(w.Policy().Config, q.Plan, tier), &q)
}

// simulateOn runs a simulation and puts it into words.
func simulateOn(ctx context.Context, plan *warmup.Plan, trace []simulate.Event, opt simulate.Options,
	q *api.SimulateWarmup) (api.SimulatedWarmup, error) {
	out := api.SimulatedWarmup{Plan: plan.Name}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	opt.Seed, opt.Interval, opt.Stop = q.Seed, daySeconds, func() error { return context.Cause(ctx) }
	if q.Hours {
		opt.Interval = hourSeconds
	}
	history, err := simulate.Run(plan, trace, opt, func(r *simulate.Row) {
		out.Rows = append(out.Rows, api.SimulatedRow{
			Second: r.T, Provider: r.Provider, Stage: r.Stage, State: r.State, CapHour: r.CapHour, CapDay: r.CapDay,
			Offered: r.Offered, Sent: r.Sent, Diverted: r.Diverted, Expired: r.Expired, Waiting: r.Waiting,
		})
		out.Offered, out.Sent, out.Diverted, out.Expired = out.Offered+r.Offered, out.Sent+r.Sent,
			out.Diverted+r.Diverted, out.Expired+r.Expired
		if len(out.Rows) > api.MaxSimulatedRows {
			stop(errManyRows)
		}
	})
	switch {
	case errors.Is(err, errSlowSimulation):
		return out, api.Invalid(
			"give a smaller volume or fewer days, or use 'mta warmup simulate --demand', which has no such limit",
			"the simulation takes longer than %v", simulationTime)
	case errors.Is(err, errManyRows):
		return out, api.Invalid("ask for days instead of hours, or for fewer days",
			"the simulation has more than %d rows", api.MaxSimulatedRows)
	case simulate.IsInputError(err):
		return out, api.Invalid("", "%v", err)
	case err != nil:
		return out, err
	}
	for _, d := range history.Days {
		out.Days = append(out.Days, warmup.DayStatus{Stage: min(d.Stage+1, len(plan.Stages)), Limit: d.Cap,
			Sent: d.Sent, Why: d.Why.String(), Provider: d.Provider})
	}
	out.Full = full(out.Rows)
	for i := len(out.Rows) - 1; i >= 0 && out.Rows[i].Second == out.Rows[len(out.Rows)-1].Second; i-- {
		out.Waiting += out.Rows[i].Waiting
	}
	return out, nil
}

const hourSeconds, daySeconds = 3600, 86_400

// full is the day from which on the source takes all, counted from 1; 0 when there is none.
func full(rows []api.SimulatedRow) int {
	day, less := 0, 0
	for _, r := range rows {
		switch at := int(r.Second/daySeconds) + 1; {
		case r.Diverted > 0 || r.Expired > 0 || r.Waiting > 0:
			day, less = 0, at
		case day == 0 && r.Offered > 0 && at > less:
			day = at
		}
	}
	return day
}

// simulated gives the plan that a simulation is of: a copy.
func (w *Warmups) simulated(q *api.SimulateWarmup) (*warmup.Plan, error) {
	cfg := w.Policy().Config
	var plan warmup.Plan
	if q.Plan != "" {
		p := cfg.WarmupPlan(q.Plan)
		if p == nil {
			return nil, api.NotFound("the plans: "+strings.Join(cfg.WarmupPlans(), ", "), "there is no plan %q", q.Plan)
		}
		plan = *p
		plan.Overflow = cfg.OverflowOf(q.Plan)
	} else {
		p, err := warmup.ParsePlan(bytes.NewReader(q.Document))
		if err != nil {
			return nil, api.Invalid("a plan looks like the \"plan\" of 'mta warmup plans NAME --json'", "%v", err)
		}
		plan = *p
	}
	if o := warmup.Overflow(q.Overflow); o.Valid() {
		plan.Overflow = o
	} else if o != "" {
		return nil, api.Invalid("use shared or hold", "overflow %q is not known", q.Overflow)
	}
	return &plan, nil
}

// shares are the events by which parts of the sent mail have other outcomes.
func shares(q *api.SimulateWarmup) (events []simulate.Event) {
	for _, x := range []struct {
		kind  simulate.Kind
		share float64
	}{{simulate.Defer, q.Deferred}, {simulate.Bounce, q.Bounced}, {simulate.Complain, q.Complained}} {
		if x.share > 0 {
			events = append(events, simulate.Event{Kind: x.kind, Value: x.share})
		}
	}
	return events
}
