package web

import (
	"bytes"
	"html/template"
	"math"
	"strconv"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/plot"
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

// simulationPage is how a plan would take a daily volume: the form, and below it the answer.
type simulationPage struct {
	Plans  []api.WarmupPlan
	Shapes []mailShape
	Tiers  int // how many there are
	simulateQuery
	Result *api.SimulatedWarmup // nil until the form is filled in
	Days   []simulatedDay
	Curve  template.HTML // an SVG picture
}

// mailShape is how mail arrives within a day.
type mailShape struct{ Name, Words string }

var mailShapes = []mailShape{{"office", "from 8 to 18 o'clock"}, {"even", "all day"},
	{"campaign", "within ten minutes"}}

// simulatedDay is a day of a simulation, all providers together.
type simulatedDay struct {
	Number                                    int // counted from 1
	Stage, Cap                                int64
	Offered, Sent, Diverted, Expired, Waiting int64
	Why, Provider                             string // of the day's effect on the stage; "": not known
}

// simulateQuery is what the form asks for.
type simulateQuery struct {
	Plan   string `q:"plan"`
	Volume int    `q:"volume" min:"1" max:"10000000"` // 0: nothing is simulated yet
	Shape  string `q:"shape"`
	On     string `q:"on"` // the days of the week with mail; "": all
	Tier   int    `q:"tier" max:"5"`
}

func simulateWarmup(r *request) (any, error) {
	p := simulationPage{Shapes: mailShapes, Tiers: envelope.TierCount, simulateQuery: simulateQuery{Tier: 3}}
	err := r.read(&p.simulateQuery)
	if err != nil {
		return nil, err
	}
	plans, err := api.OpWarmupPlans.Call(r.ctx, r.relay, api.None{})
	if p.Plans = plans.Plans; err != nil || p.Volume == 0 {
		return p, err
	}
	q := api.SimulateWarmup{Plan: p.Plan, Volume: int64(p.Volume), Shape: p.Shape, On: p.On, Tier: &p.Tier, Seed: 1}
	done, err := api.OpSimulateWarmup.Call(r.ctx, r.relay, q)
	if err != nil {
		return nil, err
	}
	p.Result, p.Days = &done, simulatedDays(&done)
	p.Curve, err = simulationCurve(p.Days)
	return p, err
}

// daySeconds is the step of a simulation's rows.
const daySeconds = 86_400

// simulatedDays adds the providers of each day up. What a day did to the stage is known of the first 59 days: the
// relay gives the last 60, without saying which those are.
func simulatedDays(s *api.SimulatedWarmup) (days []simulatedDay) {
	for _, row := range s.Rows {
		n := int(row.Second/daySeconds) + 1
		if len(days) == 0 || days[len(days)-1].Number != n {
			d := simulatedDay{Number: n}
			if len(s.Days) < 60 && n <= len(s.Days) {
				d.Why, d.Provider, d.Cap = s.Days[n-1].Why, s.Days[n-1].Provider, s.Days[n-1].Limit
			}
			days = append(days, d)
		}
		d := &days[len(days)-1]
		d.Stage, d.Cap = row.Stage, max(d.Cap, row.CapDay)
		d.Offered, d.Sent, d.Diverted, d.Expired, d.Waiting = d.Offered+row.Offered, d.Sent+row.Sent,
			d.Diverted+row.Diverted, d.Expired+row.Expired, d.Waiting+row.Waiting
	}
	return days
}

// simulationCurve draws the days on a logarithmic scale, on which the first ones can be seen beside the last. Its
// colours are names of the style sheet, which knows the theme.
func simulationCurve(days []simulatedDay) (template.HTML, error) {
	if len(days) == 0 {
		return "", nil
	}
	line := func(name, colour string, of func(simulatedDay) int64) plot.Line {
		l := plot.Line{Name: name, Colour: "var(--plot-" + colour + ")"}
		for _, d := range days {
			if v := of(d); v > 0 || name != "cap" { // a plan that is passed has no cap
				l.Points = append(l.Points, plot.Point{At: float64(d.Number), Value: float64(v)})
			}
		}
		return l
	}
	last := days[len(days)-1].Number
	g := &plot.Picture{End: float64(last) + .5,
		Panels: []plot.Panel{{Unit: "recipients a day", Least: 1, Log: true, Lines: []plot.Line{
			line("offered", "3", func(d simulatedDay) int64 { return d.Offered }),
			line("cap", "1", func(d simulatedDay) int64 { return d.Cap }),
			line("sent", "2", func(d simulatedDay) int64 { return d.Sent }),
		}}}}
	every := int(math.Ceil(float64(last) / 15))
	for n := 1; n <= last; n += every {
		g.Ticks = append(g.Ticks, plot.Tick{At: float64(n), Text: "day " + strconv.Itoa(n)})
	}
	var svg bytes.Buffer
	err := plot.Draw(g, &svg)
	return template.HTML(svg.String()), err
}
