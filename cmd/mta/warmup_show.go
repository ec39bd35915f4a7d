package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/mta/control"
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
	if i := slices.IndexFunc(plans, func(p control.WarmupPlan) bool { return p.Name == w.Plan }); i >= 0 {
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
	for _, t := range []*table{c.warmupProviders(&w), warmupHealth(&w, &plan.Health), warmupDays(&w, &plan)} {
		if len(t.rows) == 0 {
			continue
		}
		fmt.Fprintln(c.out)
		if err := t.write(c.out, c.screen); err != nil {
			return err
		}
	}
	fmt.Fprint(c.out, forecastLines(w.Forecast, plan.DayStarts, true))
	if w.State == control.WarmupWarm && len(w.History) == 0 {
		return nil
	}
	_, err = fmt.Fprint(c.out, "\n"+curve(warmupCurve(&w, plan.Stages[min(w.Stage, len(plan.Stages)):]), c.screen))
	return err
}

func (c *cli) warmupFacts(b *strings.Builder, w *control.Warmup) {
	fact(b, "source", "%s (%s)", w.Source, w.IP)
	fact(b, "state", "%s%s", w.State, stateMeans[w.State])
	if !known(w) {
		fact(b, "plan", "%s", w.Plan)
		if w.State == control.WarmupScheduled {
			fact(b, "begins", "%s", moment(w.Started, c.now()))
		}
		return
	}
	fact(b, "plan", "%s, %s, since %s", w.Plan, onStage(w), moment(w.StageStarted, c.now()))
	fact(b, "this hour", "%s%s", ofCap(w, w.SentHour, w.HourlyLimit), c.endsIn(w.HourEnds))
	fact(b, "today", "%s%s", ofCap(w, w.SentDay, w.StageLimit), c.endsIn(w.DayEnds))
	fact(b, "this stage", "%d sent", w.SentStage)
	fact(b, "throttle", "%s: the share of the mail that takes this source now", warmupThrottle(w))
	if d := &w.Diverted; d.Sum() > 0 {
		fact(b, "diverted", "%s", warmupDiverted(w.Offered, d))
	}
	fact(b, "outlook", "%s", warmupOutlook(w))
}

// warmupDiverted says what of today's mail took shared sources, and why.
func warmupDiverted(offered int64, d *control.WarmupDiverted) string {
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
	control.WarmupPaused:    " by an operator: nothing is sent from here until 'mta warmup resume'",
	control.WarmupWarm:      ": the plan is passed, there are no caps any more",
	control.WarmupScheduled: ": its plan begins later, and nothing is sent from here before, unless by 'mta warmup start'",
	control.WarmupStoreDown: ": the ledger can't be reached, and nothing is sent from here",
	control.WarmupUnknown:   ": the ledger was not read yet",
	control.WarmupCorrupt:   ": what the ledger has can't be read, and nothing is sent from here until 'mta warmup start'",
}

// ofCap puts a volume beside its cap, in words.
func ofCap(w *control.Warmup, sent, limit int64) string {
	if w.State == control.WarmupWarm || limit == 0 {
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
		return ", for " + shortLeft(d) + " more"
	}
	return ""
}

func (c *cli) warmupProviders(w *control.Warmup) *table {
	t := &table{
		columns: []column{
			{title: "PROVIDER", shrink: true}, {title: "HOUR", right: true}, {title: "DAY", right: true}, {title: "RATE/s", right: true},
			{title: "DEMAND/s", right: true}, {title: "WAITING", right: true},
		},
		noteTitle: "STATE",
	}
	for i := range w.Providers {
		p := &w.Providers[i]
		t.add(c.providerNote(p), p.Provider, warmupOf(w, p.SentHour, p.HourlyLimit), warmupOf(w, p.SentDay, p.DailyLimit),
			orNone(p.Rate), orNone(p.Demand), fmt.Sprint(p.Waiting))
	}
	return t
}

// warmupHealth is how the mail was received today, above what the plan wants of that.
func warmupHealth(w *control.Warmup, h *warmup.Health) *table {
	t := &table{columns: []column{
		{title: "TODAY", shrink: true}, {title: "OUTCOMES", right: true}, {title: "BOUNCED", right: true}, {title: "DEFERRED", right: true},
		{title: "COMPLAINED", right: true}, {title: "HEALTH"},
	}}
	for i := range w.Providers {
		p := &w.Providers[i]
		n := p.Delivered + p.HardBounces + p.Deferred + p.Refused
		t.add("", p.Provider, fmt.Sprint(n), shareOf(p.HardBounces, n), shareOf(p.Deferred+p.Refused, n), complained(p, n), p.Health)
	}
	if len(t.rows) > 0 && h.MinSample > 0 {
		a, r := h.AdvanceBelow, h.RegressAbove
		t.add("", "to go on", fmt.Sprintf(">= %d", h.MinSample), "< "+percent(a.Bounce), "< "+percent(a.Defer), "< "+percent(a.Complaint), "good")
		t.add("", "to go back", "", "> "+percent(r.Bounce), "> "+percent(r.Defer), "> "+percent(r.Complaint), "bad")
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

// providerNote says what is unusual about a provider.
func (c *cli) providerNote(p *warmup.ProviderStatus) string {
	var notes []string
	if p.State != "normal" {
		notes = append(notes, p.State+c.until(p.Until))
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
func warmupDays(w *control.Warmup, p *warmup.PlanFile) *table {
	t := &table{
		columns:   []column{{title: "DAY", right: true}, {title: "DATE"}, {title: "STAGE", right: true}, {title: "DESIRED", right: true}, {title: "SENT", right: true}, {title: "SHARE", right: true}},
		noteTitle: "THEN",
	}
	today := dayNumber(w, p)
	date := func(day int) string {
		return dateOf(w.DayEnds.Add(-time.Duration(today-day+1)*lengthOfDay(p)), p.DayStarts)
	}
	for i, d := range w.History {
		t.add(becauseOf(d.Why, d.Provider), fmt.Sprint(today-len(w.History)+i), date(today-len(w.History)+i), fmt.Sprint(d.Stage), fmt.Sprint(d.Limit), fmt.Sprint(d.Sent), wholePercent(d.Sent, d.Limit))
	}
	limit := fmt.Sprint(w.StageLimit)
	share := wholePercent(w.SentDay, w.StageLimit)
	if w.State == control.WarmupWarm {
		limit, share = "-", "-"
	}
	t.add("today, as it looks: "+warmupOutlook(w), fmt.Sprint(today), date(today), fmt.Sprint(w.Stage), limit, fmt.Sprint(w.SentDay), share)
	return t
}

// dayNumber counts today from the begin of the warm-up.
func dayNumber(w *control.Warmup, p *warmup.PlanFile) int {
	return max(len(w.History)+1, int(w.DayEnds.Sub(w.Started)/lengthOfDay(p)))
}

func lengthOfDay(p *warmup.PlanFile) time.Duration {
	if p.HourSeconds > 0 {
		return time.Duration(24 * p.HourSeconds * float64(time.Second))
	}
	return 24 * time.Hour
}

// curveDay is a column of a curve.
type curveDay struct {
	desired, sent float64
	future        bool
}

// mostAhead is how many stages of the plan to come a curve has. Plans grow by so much each day that
// with more of them nothing could be seen of the past.
const mostAhead = 1

func warmupCurve(w *control.Warmup, ahead []warmup.Stage) []curveDay {
	var days []curveDay
	for _, d := range w.History {
		days = append(days, curveDay{desired: float64(d.Limit), sent: float64(d.Sent)})
	}
	days = append(days, curveDay{desired: float64(w.StageLimit), sent: float64(w.SentDay)})
	if w.State != control.WarmupWarm {
		for _, s := range ahead[:min(mostAhead, len(ahead))] {
			days = append(days, curveDay{desired: float64(s.Daily), future: true})
		}
	}
	return days
}

const (
	curveHeight = 10  // lines
	curveWidth  = 100 // columns, where the screen doesn't say
	widestDay   = 4   // columns
)

// eighths are bars from none to a whole character.
var eighths = []rune(" ▁▂▃▄▅▆▇█")

// curve draws days: bars for what was sent, lines for what was desired.
func curve(days []curveDay, s screen) string {
	var most float64
	for _, d := range days {
		most = max(most, d.desired, d.sent)
	}
	if most == 0 {
		return ""
	}
	title := fmt.Sprintf("%.0f", most)
	room := curveWidth
	if s.width > 0 {
		room = s.width
	}
	room -= len(title) + 2
	if len(days) > room {
		days = days[len(days)-max(room, 1):]
	}
	each := min(widestDay, max(1, room/len(days)))
	var b strings.Builder
	for line := curveHeight - 1; line >= 0; line-- {
		label := ""
		switch line {
		case curveHeight - 1:
			label = title
		case 0:
			label = "0"
		}
		var l strings.Builder
		for _, d := range days {
			l.WriteString(d.cell(line, most, each))
		}
		b.WriteString(strings.TrimRight(fmt.Sprintf("%*s │%s", len(title), label, l.String()), " ") + "\n")
	}
	fmt.Fprintf(&b, "%*s └%s\n", len(title), "", strings.Repeat("─", each*len(days)))
	return b.String()
}

// cell is what of a day is on one of the lines.
func (d curveDay) cell(line int, most float64, width int) string {
	level := func(v float64) int { return int(v/most*8*curveHeight + .5) } // in eighths of a line
	bar := min(8, max(0, level(d.sent)-8*line))
	mark := eighths[bar]
	if top := max(1, level(d.desired)); bar < 8 && (top-1)/8 == line && level(d.sent) < top-4 {
		mark = '─'
		if d.future {
			mark = '╌'
		}
	}
	if width == 1 {
		return string(mark)
	}
	return strings.Repeat(string(mark), width-1) + " "
}
