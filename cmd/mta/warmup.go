package main

import (
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
	"example.org/mta/warmup"
)

const warmupHelp = `Show and control the warm-up of new sources, and try plans before you use them. Without a
subcommand, 'mta warmup' lists the warming sources.

The configuration puts a source under a plan: in the dedicated block of a pool.` + sourceName

const sourceName = `

SOURCE is the name of a source, or its IP.`

func newWarmup(c *cli) *cobra.Command {
	return listGroup("warmup", "show and control the warm-up of sources, try plans", warmupHelp,
		newWarmupList(c), newWarmupShow(c), newWarmupPlans(c), newWarmupPlan(c), newWarmupStart(c), newWarmupPause(c),
		newWarmupResume(c), newWarmupSetStage(c), newWarmupReport(c), newWarmupSimulate(c))
}

const warmupListHelp = `List the sources that have a plan: the stage, the volume sent of
the hourly and daily caps, and the source's share of the mail now. OUTLOOK is the effect
of the day on the stage if it ended now; it reports too little mail only when the volume
falls behind.`

func newWarmupList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.Paging]{
		use: "list", short: "list the warming sources", long: warmupListHelp, example: "  mta warmup list --json",
		what: "sources", cluster: true,
		show: func(ctx context.Context, c *cli, client *api.Client, f api.Paging, p *pageFlags) error {
			if p.all {
				all := pages[api.Paging, api.WarmupList, api.Warmup]{table: listing.Warmups, row: api.OpWarmups}
				return all.showAll(ctx, c, f, p)
			}
			l, err := pagesOf[api.Warmup](ctx, client, p, api.OpWarmups, f)
			switch {
			case err != nil:
				return err
			case p.asJSON:
				return writeJSON(c.out, l)
			case len(l.Warmups) == 0 && l.Next == "":
				fmt.Fprintln(c.out, "no source has a plan: give it one where a pool dedicates it")
				s, err := api.OpStatus.Call(ctx, client, api.None{})
				if s.Pending != "" {
					fmt.Fprintln(c.out, s.Pending)
				}
				return err
			}
			return printPage(c, listing.Warmups, l.Warmups, l.Next, "")
		},
	}))
}

// known reports whether the ledger could be read.
func known(w *api.Warmup) bool { return w.Stage > 0 }

// warmupTitle names a warm-up.
func warmupTitle(w *api.Warmup) string {
	return draw.Clean(fmt.Sprintf("%s (%s)", w.Source, w.IP))
}

// onStage returns where a warm-up is, in words.
func onStage(w *api.Warmup) string { return fmt.Sprintf("stage %d of %d", w.Stage, w.TotalStages) }

// warmupChange makes a command that does one thing to a source. stage reads the stage that is meant
// from the arguments behind the source; nil: none is.
func warmupChange(c *cli, cmd *cobra.Command, a api.WarmupAction, stage func(args []string) (int, error),
	done func(*api.Warmup) string) *cobra.Command {
	var to api.StageChoice
	return changes(c, c.ofSource(cmd), &to.Intent, "warm-up",
		func(ctx context.Context, client *api.Client, args []string) (w api.WarmupChanged, err error) {
			if stage != nil {
				if to.Stage, err = stage(args[1:]); err != nil {
					return w, err
				}
			}
			return api.OpChangeWarmup[a].Call(ctx, client, to, args[0])
		}, func(w api.WarmupChanged) {
			fmt.Fprintf(c.out, "%s %s\n", warmupTitle(&w.Warmup), done(&w.Warmup))
		})
}

func newWarmupStart(c *cli) *cobra.Command {
	var to api.StageChoice
	cmd := &cobra.Command{
		Use: "start SOURCE", Short: "start a warm-up over",
		Long: `Start the warm-up of a source over, on the plan's first stage or another one.
Its past days are forgotten and a pause ends; mail of this hour and day still counts.
The command also replaces a state that can't be read: this hour and this day then count
as used up.

A new warm-up starts automatically.`,
		Example: "  mta warmup start acme-1 --stage 3",
	}
	c.addParams(cmd, &to)
	return warmupChange(c, cmd, api.WarmupStart, func([]string) (int, error) {
		if to.Stage < 0 || to.Stage == 0 && cmd.Flags().Changed("stage") {
			return 0, usagef("--stage: stages are counted from 1")
		}
		return to.Stage, nil
	}, func(w *api.Warmup) string { return "begins again on " + onStage(w) })
}

func newWarmupPause(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use: "pause SOURCE", Short: "pause a warming source",
		Long: `Pause a source until 'mta warmup resume'. Its stage and its counters stay; its mail uses
the pool's shared sources or waits, depending on the pool.`,
	}, api.WarmupPause, nil, func(w *api.Warmup) string { return "is paused on " + onStage(w) })
}

func newWarmupResume(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use: "resume SOURCE", Short: "end a pause",
		Long: `End the pause of a source.`,
	}, api.WarmupResume, nil, func(w *api.Warmup) string { return "goes on with " + onStage(w) })
}

func newWarmupSetStage(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use: "set-stage SOURCE STAGE", Short: "continue with another stage",
		Long: `Continue with another stage of the plan, and its caps, immediately. Mail of
this hour and day still counts, and a paused source stays paused. STAGE is counted from 1.`,
		Example: "  mta warmup set-stage acme-1 5",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return usagef("want a source and a stage, got %s", plural(len(args), "argument"))
			}
			return nil
		},
	}, api.WarmupSetStage, func(args []string) (int, error) {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return 0, usagef("stage %q: want a number from 1", args[0])
		}
		return n, nil
	}, func(w *api.Warmup) string {
		if w.State == api.WarmupPaused {
			return "is on " + onStage(w) + ", and stays paused"
		}
		return "is on " + onStage(w)
	})
}

const warmupShowHelp = `Show the progress of a source in its plan: the volume sent of the hourly and daily caps,
also by provider; today's outcomes, and their effect on the stage if the day ended now;
each day so far, and the coming ones if each is good. In the chart, bars are the sent
volume of a day, lines the desired one.`

func newWarmupShow(c *cli) *cobra.Command {
	var plan warmup.PlanFile
	return c.watchable(c.ofSource(answers(c, &cobra.Command{
		Use: "show SOURCE", Short: "show the progress of a source in its plan", Long: warmupShowHelp,
		Example: "  mta warmup show 192.0.2.20",
	}, func(ctx context.Context, client *api.Client, args []string) (w api.Warmup, err error) {
		w, plan, err = client.WarmupAndPlan(ctx, args[0])
		return w, err
	}, func(w api.Warmup) error { return c.warmupShow(&w, &plan) })))
}

// ofSource makes a command take the name of a source.
func (c *cli) ofSource(cmd *cobra.Command) *cobra.Command {
	cmd.Long += sourceName
	cmd.ValidArgsFunction = c.complete(c.sourceNames)
	if cmd.Args == nil {
		cmd.Args = oneName("a source")
	}
	return cmd
}

func (c *cli) warmupShow(w *api.Warmup, plan *warmup.PlanFile) error {
	c.warmupFacts(c.facts(12), w)
	if !known(w) {
		_, err := fmt.Fprint(c.out, forecastLines(w.Forecast, plan.DayStarts, false))
		return err
	}
	for _, t := range []*draw.Table{tableOf(c, listing.WarmupProviders, listing.ProvidersOf(w)),
		warmupHealth(w, &plan.Health), warmupDays(w, plan)} {
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
	_, err := fmt.Fprint(c.out, "\n"+draw.Curve(warmupCurve(w, plan.Stages[min(w.Stage, len(plan.Stages)):]), c.screen))
	return err
}

func (c *cli) warmupFacts(f facts, w *api.Warmup) {
	f.add("source", "%s (%s)", w.Source, w.IP)
	f.add("state", "%s%s", w.State, stateMeans[w.State])
	if !known(w) {
		f.add("plan", "%s", w.Plan)
		if w.State == api.WarmupScheduled {
			f.add("begins", "%s", moment(w.Started, c.now()))
		}
		return
	}
	f.add("plan", "%s, %s, since %s", w.Plan, onStage(w), moment(w.StageStarted, c.now()))
	f.add("this hour", "%s%s", ofCap(w, w.SentHour, w.HourlyLimit), c.endsIn(w.HourEnds))
	f.add("today", "%s%s", ofCap(w, w.SentDay, w.StageLimit), c.endsIn(w.DayEnds))
	f.add("this stage", "%d sent", w.SentStage)
	f.add("throttle", "%s: the share of the mail that uses this source now", listing.Throttle(w).Text)
	if d := &w.Diverted; d.Sum() > 0 {
		f.add("diverted", "%s", warmupDiverted(w.Offered, d))
	}
	f.add("outlook", "%s", listing.Outlook(w))
}

// warmupDiverted returns what of today's mail took shared sources, and why.
func warmupDiverted(offered int64, d *api.WarmupDiverted) string {
	var why []string
	for _, x := range []struct {
		n    int64
		text string
	}{{d.TooFast, "came faster than the plan takes it"}, {d.OverCap, "exceeded the day's cap"},
		{d.Waited, "reached the end of its patience"}, {d.Suspended, "was for a suspended site"}} {
		if x.n > 0 {
			why = append(why, fmt.Sprintf("%d %s", x.n, x.text))
		}
	}
	return fmt.Sprintf("%d of %d today, %s: %s", d.Sum(), offered, wholePercent(d.Sum(), offered),
		strings.Join(why, ", "))
}

// stateMeans says what follows from a state.
var stateMeans = map[string]string{
	api.WarmupPaused: " by an operator: nothing is sent from here until 'mta warmup resume'",
	api.WarmupWarm:   ": the plan is complete, and there are no caps",
	api.WarmupScheduled: ": its plan begins later; nothing is sent from here before that, except after 'mta warmup " +
		"start'",
	api.WarmupStoreDown: ": the ledger can't be reached, and nothing is sent from here",
	api.WarmupStarting:  ": the relay reads the ledger, which takes seconds after a start or a reload",
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
		return ", for " + legible.Left(d) + " more"
	}
	return ""
}

// warmupHealth is how the mail was received today, above what the plan wants of that.
func warmupHealth(w *api.Warmup, h *warmup.Health) *draw.Table {
	t := draw.New("", "~TODAY", ">OUTCOMES", ">BOUNCED", ">DEFERRED", ">COMPLAINED", "HEALTH")
	for i := range w.Providers {
		p := &w.Providers[i]
		n := p.Delivered + p.HardBounces + p.Deferred + p.Refused
		t.Add("", p.Provider, n, shareOf(p.HardBounces, n), shareOf(p.Deferred+p.Refused, n),
			complained(p, n), p.Health)
	}
	if !t.Empty() && h.MinSample > 0 {
		a, r := h.AdvanceBelow, h.RegressAbove
		t.Add("", "to go on", fmt.Sprintf(">= %d", h.MinSample), "< "+percent(a.Bounce), "< "+percent(a.Defer),
			"< "+percent(a.Complaint), "good")
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

// warmupDays is each day so far, and today.
func warmupDays(w *api.Warmup, p *warmup.PlanFile) *draw.Table {
	t := draw.New("THEN", ">DAY", "DATE", ">STAGE", ">DESIRED", ">SENT", ">SHARE")
	today := dayNumber(w, p)
	date := func(day int) string {
		return dateOf(w.DayEnds.Add(-time.Duration(today-day+1)*lengthOfDay(p)), p.DayStarts)
	}
	for i, d := range w.History {
		t.Add(listing.Because(d.Why, d.Provider), today-len(w.History)+i, date(today-len(w.History)+i), d.Stage,
			d.Limit, d.Sent, wholePercent(d.Sent, d.Limit))
	}
	limit := fmt.Sprint(w.StageLimit)
	share := wholePercent(w.SentDay, w.StageLimit)
	if w.State == api.WarmupWarm {
		limit, share = "-", "-"
	}
	t.Add("so far today: "+listing.Outlook(w), today, date(today), w.Stage, limit, w.SentDay, share)
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

const warmupReportHelp = `Import complaints about the mail of a warming source. They
count for its health from now on, whatever their day (in UTC). Figures for the same day
replace earlier ones; days before the last two weeks are ignored.

--google reads the daily figures of Google's Postmaster Tools: CSV with a header, a
column "Date" and one with "spam rate" or "spam ratio" in its name. --snds reads those
of Microsoft's SNDS: CSV without a header, the IP in the first column, the end of the
activity in the third, recipients in the sixth, the complaint rate in the eighth; rows
of other IPs are ignored.`

func newWarmupReport(c *cli) *cobra.Command {
	var r api.WarmupReport
	var google, snds string
	cmd := &cobra.Command{
		Use: "report SOURCE", Short: "import complaints", Long: warmupReportHelp,
		Example: `  mta warmup report acme-1 --provider yahoo --complaints 3 --day 2026-11-21
  mta warmup report acme-1 --snds snds.csv`,
		Args: oneName("a source"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.warmupReport(cmd, args[0], r, google, snds)
		},
	}
	f := cmd.Flags()
	c.addParams(cmd, &r)
	f.StringVar(&google, "google", "", "a CSV `file` of Google's Postmaster Tools, - for standard input")
	f.StringVar(&snds, "snds", "", "a CSV `file` of Microsoft's SNDS, - for standard input")
	changeFlags(cmd, &r.Intent)
	return c.ofSource(cmd)
}

func (c *cli) warmupReport(cmd *cobra.Command, name string, r api.WarmupReport, google, snds string) error {
	counted := cmd.Flags().Changed("complaints")
	switch {
	case google != "" && snds != "" || google+snds != "" && (counted || r.Day != ""):
		return usagef("give one of --complaints, --google and --snds")
	case google+snds == "" && !counted:
		return usagef("give --complaints, or a file: --google or --snds")
	case counted && r.Provider == "":
		return usagef("give the provider whose users complained: --provider")
	case r.Complaints < 0:
		return usagef("--complaints: %d is less than none", r.Complaints)
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	w, err := api.OpWarmup.Call(cmd.Context(), client, api.None{}, name)
	if err != nil {
		return err
	}
	r.Day = cmp.Or(r.Day, c.now().UTC().Format(time.DateOnly))
	reports := []api.WarmupReport{r}
	if google+snds != "" {
		if reports, err = c.readReports(google, snds, w.IP); err != nil {
			return err
		}
	}
	for i := range reports {
		reports[i].Provider = cmp.Or(r.Provider, reports[i].Provider)
		reports[i].Intent = r.Intent
		done, err := api.OpReportWarmup.Call(cmd.Context(), client, reports[i], name)
		if err != nil {
			return err
		}
		w = done.Warmup
	}
	if r.DryRun {
		fmt.Fprintf(c.out, "the complaints of %s would be taken\n", plural(len(reports), "day"))
		return nil
	}
	fmt.Fprintf(c.out, "%s: took the complaints of %s\n", warmupTitle(&w), plural(len(reports), "day"))
	return nil
}

// readReports reads a file of Google's or Microsoft's daily figures, those of the last two weeks.
func (c *cli) readReports(google, snds, ip string) ([]api.WarmupReport, error) {
	path, read := google, readGoogle
	if snds != "" {
		path, read = snds, func(rows [][]string) ([]api.WarmupReport, error) { return readSNDS(rows, ip) }
	}
	in, shown, err := c.input(path)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	const most = 16 << 20
	r := csv.NewReader(io.LimitReader(in, most))
	r.FieldsPerRecord = -1
	rows, err := r.ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	all, err := read(rows)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", shown, err)
	}
	since := c.now().UTC().AddDate(0, 0, -13).Format(time.DateOnly)
	all = slices.DeleteFunc(all, func(r api.WarmupReport) bool { return r.Day < since })
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: it has no figures for %s since %s", shown, ip, since)
	}
	return all, nil
}

func readGoogle(rows [][]string) (all []api.WarmupReport, err error) {
	column := func(names ...string) int {
		if len(rows) == 0 {
			return -1
		}
		return slices.IndexFunc(rows[0], func(title string) bool {
			return slices.ContainsFunc(names, func(n string) bool {
				return strings.Contains(strings.ToLower(strings.NewReplacer("_", " ", "-", " ").Replace(title)), n)
			})
		})
	}
	day, rate := column("date"), column("spam rate", "spam ratio")
	if day < 0 || rate < 0 {
		return nil, errors.New(`line 1: a header with "Date" and "Spam rate" is wanted`)
	}
	for i, row := range rows[1:] {
		if len(row) <= max(day, rate) || strings.TrimSpace(row[rate]) == "" {
			continue // too little mail for a figure
		}
		d, err := reportDay(row[day], time.DateOnly, "20060102", "Jan 2, 2006", "1/2/2006")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		x, err := reportRate(row[rate])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+2, err)
		}
		all = append(all, api.WarmupReport{Provider: "google", Day: d, Rate: x})
	}
	return all, nil
}

func readSNDS(rows [][]string, ip string) (all []api.WarmupReport, err error) {
	for i, row := range rows {
		if len(row) < 8 {
			return nil, fmt.Errorf("line %d: it has %d columns, SNDS has 14", i+1, len(row))
		}
		if row[0] != ip {
			continue
		}
		d, err := reportDay(row[2], "1/2/2006 3:04 PM", "1/2/2006 15:04")
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		n, err := strconv.ParseInt(row[5], 10, 64)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("line %d: %q is not a number of recipients", i+1, row[5])
		}
		x, err := reportRate(row[7])
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		all = append(all, api.WarmupReport{Provider: "microsoft", Day: d,
			Complaints: int64(math.Round(x * float64(n)))})
	}
	return all, nil
}

func reportDay(text string, layouts ...string) (string, error) {
	for _, l := range layouts {
		if t, err := time.Parse(l, strings.TrimSpace(text)); err == nil {
			return t.Format(time.DateOnly), nil
		}
	}
	return "", fmt.Errorf("%q is not a date", text)
}

// reportRate reads a share: "0.3%", "0.003", or "< 0.1%", which means none.
func reportRate(text string) (float64, error) {
	number, below := strings.CutPrefix(strings.TrimSpace(text), "<")
	number, percents := strings.CutSuffix(strings.TrimSpace(number), "%")
	x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percents {
		x /= 100
	}
	switch {
	case err != nil || !(x >= 0 && x <= 1):
		return 0, fmt.Errorf("%q is not a share of the mail", text)
	case below:
		return 0, nil
	}
	return x, nil
}
