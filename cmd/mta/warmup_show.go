package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
	"example.org/mta/warmup"
)

const warmupShowHelp = `Show the progress of a source in its plan: the volume sent of the hourly and daily caps,
also by provider; how the mail was received today, and the effect on the stage if the day
ended now; each day so far, desired against sent, with its effect on the stage; and the
volumes of the coming days if each is good. The chart has a column for each day: bars are
the sent volume, lines the desired one, and the last line the plan's next.

SOURCE is the name of a source, or its IP.`

func newWarmupShow(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "show SOURCE",
		Short:   "show the progress of a source in its plan",
		Long:    warmupShowHelp,
		Example: "  mta warmup show 192.0.2.20",
		Args:    oneName("a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.warmupShow(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = c.complete(c.sourceNames)
	return c.watchable(cmd)
}

func (c *cli) warmupShow(ctx context.Context, name string, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	w, err := client.Warmup(ctx, name)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.out, w)
	}
	plans, err := client.WarmupPlans(ctx)
	if err != nil {
		return err
	}
	var plan warmup.PlanFile // zero when a reload has just taken it away
	if i := slices.IndexFunc(plans, func(p api.WarmupPlan) bool { return p.Name == w.Plan }); i >= 0 {
		plan = plans[i].Plan
	}
	var b strings.Builder
	c.warmupFacts(&b, &w)
	if !known(&w) {
		b.WriteString(forecastLines(w.Forecast, plan.DayStarts, false))
	}
	if _, err := fmt.Fprint(c.out, b.String()); err != nil || !known(&w) {
		return err
	}
	for _, t := range []*draw.Table{c.warmupProviders(&w), warmupHealth(&w, &plan.Health), warmupDays(&w, &plan)} {
		if t.Empty() {
			continue
		}
		fmt.Fprintln(c.out)
		if err := t.Write(c.out, c.screen); err != nil {
			return err
		}
	}
	fmt.Fprint(c.out, forecastLines(w.Forecast, plan.DayStarts, true))
	if w.State == api.WarmupWarm && len(w.History) == 0 {
		return nil
	}
	_, err = fmt.Fprint(c.out, "\n"+draw.Curve(warmupCurve(&w, plan.Stages[min(w.Stage, len(plan.Stages)):]), c.screen))
	return err
}

func (c *cli) warmupFacts(b *strings.Builder, w *api.Warmup) {
	fact(b, "source", "%s (%s)", w.Source, w.IP)
	fact(b, "state", "%s%s", w.State, stateMeans[w.State])
	if !known(w) {
		fact(b, "plan", "%s", w.Plan)
		if w.State == api.WarmupScheduled {
			fact(b, "begins", "%s", moment(w.Started, c.now()))
		}
		return
	}
	fact(b, "plan", "%s, %s, since %s", w.Plan, onStage(w), moment(w.StageStarted, c.now()))
	fact(b, "this hour", "%s%s", ofCap(w, w.SentHour, w.HourlyLimit), c.endsIn(w.HourEnds))
	fact(b, "today", "%s%s", ofCap(w, w.SentDay, w.StageLimit), c.endsIn(w.DayEnds))
	fact(b, "this stage", "%d sent", w.SentStage)
	fact(b, "throttle", "%s: the share of the mail that uses this source now", listing.Throttle(w).Text)
	if d := &w.Diverted; d.Sum() > 0 {
		fact(b, "diverted", "%s", warmupDiverted(w.Offered, d))
	}
	fact(b, "outlook", "%s", listing.Outlook(w))
}

// warmupDiverted returns what of today's mail took shared sources, and why.
func warmupDiverted(offered int64, d *api.WarmupDiverted) string {
	var why []string
	for _, x := range []struct {
		n    int64
		text string
	}{{d.TooFast, "came faster than the plan takes it"}, {d.OverCap, "exceeded the day's cap"}, {d.Waited, "reached the end of its patience"}, {d.Suspended, "was for a suspended site"}} {
		if x.n > 0 {
			why = append(why, fmt.Sprintf("%d %s", x.n, x.text))
		}
	}
	return fmt.Sprintf("%d of %d today, %s: %s", d.Sum(), offered, wholePercent(d.Sum(), offered), strings.Join(why, ", "))
}

// stateMeans says what follows from a state.
var stateMeans = map[string]string{
	api.WarmupPaused:    " by an operator: nothing is sent from here until 'mta warmup resume'",
	api.WarmupWarm:      ": the plan is complete, and there are no caps",
	api.WarmupScheduled: ": its plan begins later; nothing is sent from here before that, except after 'mta warmup start'",
	api.WarmupStoreDown: ": the ledger can't be reached, and nothing is sent from here",
	api.WarmupUnknown:   ": the ledger has not been read yet",
	api.WarmupCorrupt:   ": the ledger's record can't be read, and nothing is sent from here until 'mta warmup start'",
}

// ofCap puts a volume beside its cap, in words.
func ofCap(w *api.Warmup, sent, limit int64) string {
	if w.State == api.WarmupWarm || limit == 0 {
		return fmt.Sprintf("%d sent", sent)
	}
	return fmt.Sprintf("%d of %d sent, %s", sent, limit, wholePercent(sent, limit))
}

func wholePercent(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%d %%", 100*n/of)
}

func (c *cli) endsIn(t time.Time) string {
	if d := t.Sub(c.now()); d > 0 {
		return ", for " + short.Left(d) + " more"
	}
	return ""
}

func (c *cli) warmupProviders(w *api.Warmup) *draw.Table {
	t := &draw.Table{
		Columns: []draw.Column{
			{Title: "PROVIDER", Shrink: true}, {Title: "HOUR", Right: true}, {Title: "DAY", Right: true}, {Title: "RATE/s", Right: true},
			{Title: "DEMAND/s", Right: true}, {Title: "WAITING", Right: true},
		},
		NoteTitle: "STATE",
	}
	for i := range w.Providers {
		p := &w.Providers[i]
		t.Add(c.providerNote(p), p.Provider, listing.OfCap(w, p.SentHour, p.HourlyLimit).Text, listing.OfCap(w, p.SentDay, p.DailyLimit).Text,
			listing.KnownRate(p.Rate).Text, listing.KnownRate(p.Demand).Text, fmt.Sprint(p.Waiting))
	}
	return t
}

// warmupHealth is how the mail was received today, above what the plan wants of that.
func warmupHealth(w *api.Warmup, h *warmup.Health) *draw.Table {
	t := &draw.Table{Columns: []draw.Column{
		{Title: "TODAY", Shrink: true}, {Title: "OUTCOMES", Right: true}, {Title: "BOUNCED", Right: true}, {Title: "DEFERRED", Right: true},
		{Title: "COMPLAINED", Right: true}, {Title: "HEALTH"},
	}}
	for i := range w.Providers {
		p := &w.Providers[i]
		n := p.Delivered + p.HardBounces + p.Deferred + p.Refused
		t.Add("", p.Provider, fmt.Sprint(n), shareOf(p.HardBounces, n), shareOf(p.Deferred+p.Refused, n), complained(p, n), p.Health)
	}
	if !t.Empty() && h.MinSample > 0 {
		a, r := h.AdvanceBelow, h.RegressAbove
		t.Add("", "to go on", fmt.Sprintf(">= %d", h.MinSample), "< "+percent(a.Bounce), "< "+percent(a.Defer), "< "+percent(a.Complaint), "good")
		t.Add("", "to go back", "", "> "+percent(r.Bounce), "> "+percent(r.Defer), "> "+percent(r.Complaint), "bad")
	}
	return t
}

// complained is the share of complaints; without any report it is not known.
func complained(p *warmup.ProviderStatus, of int64) string {
	if !p.Reported {
		return "-"
	}
	return shareOf(p.Complaints, of)
}

func shareOf(n, of int64) string {
	if of == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(n)/float64(of))
}

// providerNote returns what is unusual about a provider.
func (c *cli) providerNote(p *warmup.ProviderStatus) string {
	var notes []string
	if p.State != "normal" {
		notes = append(notes, p.State+c.look().More(p.Until))
	}
	if p.Network != "" {
		notes = append(notes, "it blocks another source in "+p.Network)
	}
	if p.Refused > 0 {
		notes = append(notes, plural(int(p.Refused), "refusal")+" by policy")
	}
	if p.Stage > 0 {
		notes = append(notes, fmt.Sprintf("it is on stage %d by itself", p.Stage))
	}
	if p.Factor < 1 {
		notes = append(notes, fmt.Sprintf("its caps are %s of the stage's after a bad day", percent(p.Factor)))
	}
	return strings.Join(notes, "; ")
}

// warmupDays is each day so far, and today.
func warmupDays(w *api.Warmup, p *warmup.PlanFile) *draw.Table {
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "DAY", Right: true}, {Title: "DATE"}, {Title: "STAGE", Right: true}, {Title: "DESIRED", Right: true}, {Title: "SENT", Right: true}, {Title: "SHARE", Right: true}},
		NoteTitle: "THEN",
	}
	today := dayNumber(w, p)
	date := func(day int) string {
		return dateOf(w.DayEnds.Add(-time.Duration(today-day+1)*lengthOfDay(p)), p.DayStarts)
	}
	for i, d := range w.History {
		t.Add(listing.Because(d.Why, d.Provider), fmt.Sprint(today-len(w.History)+i), date(today-len(w.History)+i), fmt.Sprint(d.Stage), fmt.Sprint(d.Limit), fmt.Sprint(d.Sent), wholePercent(d.Sent, d.Limit))
	}
	limit := fmt.Sprint(w.StageLimit)
	share := wholePercent(w.SentDay, w.StageLimit)
	if w.State == api.WarmupWarm {
		limit, share = "-", "-"
	}
	t.Add("so far today: "+listing.Outlook(w), fmt.Sprint(today), date(today), fmt.Sprint(w.Stage), limit, fmt.Sprint(w.SentDay), share)
	return t
}

// dayNumber counts today from the begin of the warm-up.
func dayNumber(w *api.Warmup, p *warmup.PlanFile) int {
	return max(len(w.History)+1, int(w.DayEnds.Sub(w.Started)/lengthOfDay(p)))
}

func lengthOfDay(p *warmup.PlanFile) time.Duration {
	if p.HourSeconds > 0 {
		return time.Duration(24 * p.HourSeconds * float64(time.Second))
	}
	return 24 * time.Hour
}

// mostAhead is how many stages of the plan to come a curve has. Plans grow by so much each day that
// with more of them nothing could be seen of the past.
const mostAhead = 1

func warmupCurve(w *api.Warmup, ahead []warmup.Stage) []draw.Day {
	var days []draw.Day
	for _, d := range w.History {
		days = append(days, draw.Day{Desired: float64(d.Limit), Sent: float64(d.Sent)})
	}
	days = append(days, draw.Day{Desired: float64(w.StageLimit), Sent: float64(w.SentDay)})
	if w.State != api.WarmupWarm {
		for _, s := range ahead[:min(mostAhead, len(ahead))] {
			days = append(days, draw.Day{Desired: float64(s.Daily), Future: true})
		}
	}
	return days
}
