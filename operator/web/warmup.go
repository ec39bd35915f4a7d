package web

import (
	"math"
	"strconv"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
	"example.org/mta/warmup"
)

// warmupPage is where a source stands in its plan.
type warmupPage struct {
	Warmup    api.Warmup
	Plan      warmup.PlanFile // zero when a reload has just taken it away
	Curve     Plot
	Providers *table
	Back      string
}

func warmupOf(r *request) (any, error) {
	p := warmupPage{Back: r.here()}
	if r.get("source") == "" {
		return nil, api.Invalid("", "name a source")
	}
	var err error
	if p.Warmup, p.Plan, err = r.relay.WarmupAndPlan(r.ctx, r.get("source")); err != nil {
		return nil, err
	}
	providers := listing.WarmupProviders
	providers.NoteTitle = listing.Reason // the page has a column of states
	p.Providers = newTable(r, providers, listing.ProvidersOf(&p.Warmup))
	p.Curve = warmupCurve(&p.Warmup)
	return p, nil
}

// warmupCurve has a value for each day: what the plan wanted, what was sent, and what the plan wants of the days to
// come.
func warmupCurve(w *api.Warmup) Plot {
	const day = 24 * time.Hour
	ahead := min(len(w.Forecast), 7)
	n := len(w.History) + 1 + ahead
	plan, sent := make([]float64, n), make([]float64, n)
	for i, d := range w.History {
		plan[i], sent[i] = float64(d.Limit), float64(d.Sent)
	}
	today := len(w.History)
	plan[today], sent[today] = float64(w.StageLimit), float64(w.SentDay)
	for i := range ahead {
		plan[today+1+i], sent[today+1+i] = float64(w.Forecast[i].Limit), math.NaN()
	}
	return Plot{ID: "curve", Title: "Recipients a day", Sentence: curveSentence(w, most(sent), ahead),
		Start: w.DayEnds.Add(-time.Duration(today+1) * day), Step: day,
		Series: []Series{{"plan", plan}, {"sent", sent}}, Log: true}
}

// curveSentence returns what the curve shows: the newest value of the plan is one of the days to come.
func curveSentence(w *api.Warmup, most float64, ahead int) string {
	text := plural(int(w.SentDay), "recipient") + " sent today"
	if w.StageLimit > 0 {
		text += ", of " + count(w.StageLimit) + " that the plan takes"
	}
	text += "; " + count(int64(most)) + " on the best day."
	if ahead > 0 {
		text += " If every day goes well, the plan takes " + count(w.Forecast[ahead-1].Limit) + " in " +
			plural(ahead, "day") + "."
	}
	return text
}

// Outcomes counts today's outcomes at a provider.
func (warmupPage) Outcomes(p warmup.ProviderStatus) int64 {
	return p.Delivered + p.HardBounces + p.Deferred + p.Refused
}

// Share writes n of a whole as a percentage, "" without a whole.
func (warmupPage) Share(n, of int64) string {
	if of == 0 {
		return ""
	}
	return percentage(float64(n) / float64(of))
}

// Refusals counts what a provider deferred or refused by policy: both count in one gate.
func (warmupPage) Refusals(p warmup.ProviderStatus) int64 { return p.Deferred + p.Refused }

func percentage(part float64) string { return strconv.FormatFloat(100*part, 'f', 1, 64) + " %" }
