package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
	"example.org/mta/warmup"
)

const warmupPlanHelp = `Generate a plan block from the target volume per day and its date, with reasons and
dates as comments. A plan begins with 250 recipients a day and grows by a fifth to three
fifths each day, with a fifth of the days in reserve; with too few days it grows faster,
at most doubling each day.

--providers limits each provider to a percentage of every stage. A day without mail
advances nothing: --on names the days of the week with mail, if it isn't all of them.`

// planFlags are the flags of 'mta warmup plan'.
type planFlags struct {
	Volume    string `flag:"volume" help:"the target <volume> in recipients, such as 20000/day"`
	By        string `flag:"by" help:"the <date> of the target volume, such as 2027-03-01"`
	Begin     string `flag:"begin" help:"the <date> of the first day (default: tomorrow)"`
	DayStarts string `flag:"day-starts" help:"the <time> and zone at which days start, such as \"08:00 Europe/Berlin\" (default: when the warm-up begins)"`
	Providers string `flag:"providers" help:"the <percentage> of the mail for each provider, such as google=45,microsoft=30"`
	On        string `flag:"on" help:"the <days> of the week with mail, such as mon-fri or tue (default: all)"`
	Name      string `flag:"name" help:"the <name> of the plan (default: to-VOLUME)"`
	JSON      bool   `flag:"json" help:"print JSON in the format that 'mta warmup simulate' reads"`
}

func newWarmupPlan(c *cli) *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use: "plan --volume N/day --by DATE", Short: "generate a plan from a volume and a date",
		Long: warmupPlanHelp,
		Example: `  mta warmup plan --volume 20000/day --by 2027-03-01
  mta warmup plan --volume 20000/day --by 2027-06-01 --on tue
  mta warmup plan --volume 20000/day --by 2027-03-01 --providers google=45,microsoft=30 ` +
			`--day-starts "08:00 Europe/Berlin"`,
		Args: noArgs, RunE: func(*cobra.Command, []string) error { return c.warmupPlan(&f) },
	}
	addFlags(cmd.Flags(), &f)
	return cmd
}

// wantedPlan is what the flags ask for.
type wantedPlan struct {
	*warmup.Ramp
	name      string
	now       time.Time
	volume    int64
	begin, by time.Time // days, at 00:00 UTC
	on        warmup.Weekdays
	dayStarts string
	providers []providerShare
	plan      warmup.Plan
	eachDay   []warmup.Forecast
	lastDay   time.Time
	unlimited time.Time
}

type providerShare struct {
	name    string
	percent float64
}

func (c *cli) warmupPlan(f *planFlags) error {
	if f.Volume == "" || f.By == "" {
		return usagef("the target volume and date are required: --volume and --by")
	}
	w, err := c.wantedPlan(f)
	if err != nil {
		return err
	}
	if f.JSON {
		return writeJSON(c.out, w.plan.File())
	}
	_, err = fmt.Fprint(c.out, w.text())
	return err
}

// wantedPlan reads the flags and makes the plan.
func (c *cli) wantedPlan(f *planFlags) (*wantedPlan, error) {
	w := &wantedPlan{now: c.now(), dayStarts: f.DayStarts}
	var err error
	if w.volume, err = strconv.ParseInt(strings.TrimSuffix(f.Volume, "/day"), 10, 64); err != nil || w.volume < 1 ||
		w.volume > 1e9 {
		return nil, usagef("--volume %q: write it as 20000/day, from 1 to 1000000000", f.Volume)
	}
	if w.name = f.Name; w.name == "" {
		w.name = fmt.Sprintf("to-%d", w.volume)
	}
	if strings.ContainsAny(w.name, "\"\\$%{}\r\n\t") {
		return nil, usagef("--name %q: write letters, digits, - and _", w.name)
	}
	if f.DayStarts != "" {
		if err := warmup.DayStart(f.DayStarts).Check(); err != nil {
			return nil, usagef(
				"--day-starts %q: %w: write a time and a zone of the tz database, as \"08:00 Europe/Berlin\"",
				f.DayStarts, err)
		}
	}
	if err := w.dates(f); err != nil {
		return nil, err
	}
	if w.providers, err = c.providerShares(f.Providers); err != nil {
		return nil, err
	}
	few := (*warmup.TooFewDays)(nil)
	if w.Ramp, err = warmup.NewRamp(w.volume, w.on.Count(w.begin, w.by)); errors.As(err, &few) {
		return nil, usagef("--by %s: %w: the soonest is %s", f.By, err,
			w.on.After(w.begin, few.Least-1).Format(time.DateOnly))
	}
	w.make()
	return w, nil
}

// dates reads the days of the flags.
func (w *wantedPlan) dates(f *planFlags) error {
	today := w.now.In(warmup.DayStart(f.DayStarts).Zone())
	today = time.Date(today.Year(), today.Month(), today.Day(), 0, 0, 0, 0, time.UTC)
	w.begin = today.AddDate(0, 0, 1)
	for _, d := range []struct {
		flag, text string
		to         *time.Time
	}{{"--begin", f.Begin, &w.begin}, {"--by", f.By, &w.by}} {
		if d.text == "" {
			continue
		}
		var err error
		if *d.to, err = time.Parse(time.DateOnly, d.text); err != nil {
			return usagef("%s %q: write a date, as 2027-03-01", d.flag, d.text)
		}
	}
	var err error
	if w.on, err = warmup.ParseWeekdays(f.On); err != nil {
		return usagef("--on %w", err)
	}
	begin := w.begin
	w.begin = w.on.After(begin, 0)
	switch {
	case begin.Before(today):
		return usagef("--begin %s has passed: name today, %s, or a day to come", f.Begin, today.Format(time.DateOnly))
	case w.by.Before(w.begin):
		return usagef("--by %s is before the first day, %s: name a later one", f.By, w.begin.Format(time.DateOnly))
	}
	return nil
}

// providerShares reads --providers. Each must be known to the configuration.
func (c *cli) providerShares(text string) (shares []providerShare, err error) {
	if text == "" {
		return nil, nil
	}
	cfg, err := c.config()
	if errors.Is(err, os.ErrPermission) {
		fmt.Fprintf(c.err, "%s can't be read: only preset providers are known\n", c.configPath())
		cfg, err = config.Default(), nil
	}
	if err != nil {
		return nil, err
	}
	known := append([]string{warmup.Other}, cfg.Names("provider")...)
	sum := 0.
	for _, part := range strings.Split(text, ",") {
		name, percent, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.ParseFloat(strings.TrimSuffix(percent, "%"), 64)
		switch {
		case err != nil || !(n > 0 && n <= 100):
			return nil, usagef("--providers %q: write each as google=45, in per cent of the mail, above 0 to 100", part)
		case !slices.Contains(known, name):
			return nil, usagef("--providers: there is no provider %q: those that are known are %s", name,
				strings.Join(known, ", "))
		case slices.ContainsFunc(shares, func(s providerShare) bool { return s.name == name }):
			return nil, usagef("--providers: %s is there twice", name)
		}
		shares = append(shares, providerShare{name, n})
		sum += n
	}
	if sum > 100.001 {
		return nil, usagef("--providers: they have %.4g %% of the mail together: it can't be above 100", sum)
	}
	return shares, nil
}

// make makes the plan of what is wanted.
func (w *wantedPlan) make() {
	w.plan = warmup.DefaultPlan()
	p := &w.plan
	p.Name, p.Stages, p.Finish = w.name, w.Stages, true
	p.DayStarts = warmup.DayStart(w.dayStarts)
	p.Begin = p.DayStarts.On(w.begin)
	for _, s := range w.providers {
		if p.Shares == nil {
			p.Shares = make(map[string]float64)
		}
		p.Shares[s.name] = s.percent / 100
	}
	w.eachDay = p.Forecast(p.Begin, 1)
	for i := range w.eachDay { // the last ends the caps after a day with mail
		day := w.on.After(w.begin, i)
		if i == len(w.eachDay)-1 && i > 0 {
			day = w.on.After(w.begin, i-1).AddDate(0, 0, 1)
		}
		w.eachDay[i].Day = w.eachDay[i].Day.AddDate(0, 0, int(day.Sub(w.begin)/(24*time.Hour))-i)
	}
	w.lastDay = w.eachDay[len(p.Stages)-1].Day
	w.unlimited = w.eachDay[len(w.eachDay)-1].Day
}

// text is the plan as the configuration has it, with its reasons.
func (w *wantedPlan) text() string {
	const date = "Mon 2 Jan 2006"
	var b strings.Builder
	p := &w.plan
	fmt.Fprintf(&b, "# %s recipients a day by %s, written by 'mta warmup plan' on %s.\n#\n",
		listing.Thousands(w.volume), w.by.Format(date), w.now.In(p.DayStarts.Zone()).Format(date))
	fmt.Fprintf(&b, "# begins   %s with %s: more from an address that nobody knows looks like spam\n",
		p.Begin.Format(date), listing.Thousands(w.Stages[0].Daily))
	if !w.on.All() {
		fmt.Fprintf(&b, "# mail     only on %s: a day without any advances nothing, and so it takes %s\n", w.on,
			plural(int(w.lastDay.Sub(w.eachDay[0].Day).Hours()/24+.5)+1, "day"))
	}
	if len(w.Stages) > 1 {
		fmt.Fprintf(&b, "# grows    x%.2f a day in %d stages: %s\n", w.Growth, len(w.Stages), w.why())
	}
	fmt.Fprintf(&b, "# reached  %s, if each day is good; %s\n", w.lastDay.Format(date), w.spare())
	fmt.Fprintf(&b, "# then     its caps double each day, and from %s on there are none\n#\n", w.unlimited.Format(date))
	fmt.Fprintf(&b, "# A source comes under it where a pool dedicates that: dedicated \"SOURCE\" { plan = %q }\n",
		w.name)
	fmt.Fprintf(&b, "plan %q {\n  begin      = %q\n", w.name, w.begin.Format(time.DateOnly))
	if w.dayStarts != "" {
		fmt.Fprintf(&b, "  day_starts = %q\n", w.dayStarts)
	}
	b.WriteString("  finish     = true\n")
	for _, s := range w.providers {
		part := func(n int64) string { return listing.Thousands(int64(float64(n) * s.percent / 100)) }
		fmt.Fprintf(&b, "\n  # %.4g %% of the mail goes there: %s on the first day, %s in the end.\n", s.percent,
			part(w.Stages[0].Daily), part(w.volume))
		fmt.Fprintf(&b, "  provider %q { share = %s }\n", s.name, strconv.FormatFloat(s.percent/100, 'g', 6, 64))
	}
	b.WriteString("\n  # An hour has an eighth of its day.\n")
	for i, s := range p.Stages {
		fmt.Fprintf(&b, "  stage { # %s: %s\n    hourly = %d\n    daily  = %d\n  }\n",
			w.eachDay[i].Day.Format("Mon 2 Jan"), listing.Thousands(s.Daily), s.Hourly, s.Daily)
	}
	b.WriteString("}\n")
	return b.String()
}

// why returns why the plan grows as it does.
func (w *wantedPlan) why() string {
	if w.Steep {
		return "steeper than providers like, which is x1.6, since there are so few days"
	}
	return "slower than x1.2 earns nothing more, and faster than x1.6 gets deferred"
}

// spare returns what the days are for that are left.
func (w *wantedPlan) spare() string {
	if w.Spare == 0 {
		return "no day is left for one that is not: a later --by would leave some"
	}
	return plural(w.Spare, "day") + " left for those that are not"
}

const warmupPlansHelp = `List the plans: those of the configuration and the presets.
With NAME, show one by date if each day is good, for a warm-up that begins now or at the
plan's date. FIRST and LAST are the caps of the first and the last stage, in recipients
per hour and per day; PASSED is the date on which the last stage would be finished.

The plans are those in force in the running relay. Without one, the command reads the
configuration file.`

func newWarmupPlans(c *cli) *cobra.Command {
	one := false
	return prints(c, &cobra.Command{
		Use: "plans [NAME]", Short: "list plans, or the stages of one", Long: warmupPlansHelp,
		Example: `  mta warmup plans standard
  mta warmup plans standard --json | jq '.plans[0].plan' > plan.json`,
		Args: argCount(0, 1, "want the name of one plan, got %d"),
	}, func(ctx context.Context, args []string) (l api.WarmupPlanList, err error) {
		if l.Plans, err = c.warmupPlans(ctx); err != nil || len(args) == 0 {
			return l, err
		}
		i := slices.IndexFunc(l.Plans, func(p api.WarmupPlan) bool { return p.Name == args[0] })
		if i < 0 {
			return l, hinted{fmt.Errorf("there is no plan %q", args[0]),
				"the plans: " + strings.Join(planNames(l.Plans), ", ")}
		}
		one, l.Plans = true, l.Plans[i:i+1]
		return l, nil
	}, func(l api.WarmupPlanList) error {
		if one {
			return c.showPlan(&l.Plans[0])
		}
		return planTable(l.Plans).Write(c.out, c.screen)
	})
}

// warmupPlans asks the relay, or reads the file when none is running.
func (c *cli) warmupPlans(ctx context.Context) ([]api.WarmupPlan, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	l, err := api.OpWarmupPlans.Call(ctx, client, api.None{})
	if !api.Down(err) || c.socketFlag != "" {
		return l.Plans, err
	}
	cfg, wrong := c.config()
	if wrong != nil {
		return nil, wrong
	}
	from := "there is no file, so these are the presets"
	if path := c.configPath(); path != "" {
		from = "this is what " + path + " says"
	}
	why := "no relay is running"
	if errors.Is(err, fs.ErrPermission) {
		why = "only the user and the group of its socket may ask the relay"
	}
	fmt.Fprintf(c.err, "%s: %s\n", why, from)
	return blocks.WarmupPlans(cfg, c.now()), nil
}

func planNames(plans []api.WarmupPlan) []string {
	names := make([]string, len(plans))
	for i := range plans {
		names[i] = plans[i].Name
	}
	return names
}

func planTable(plans []api.WarmupPlan) *draw.Table {
	t := draw.New("SOURCES", "~PLAN", "OF", ">STAGES", ">FIRST", ">LAST", "PASSED", "THEN")
	for i := range plans {
		p := &plans[i]
		stages := p.Plan.Stages
		first, last := stages[0], stages[len(stages)-1]
		t.Add(strings.Join(p.Sources, ", "), p.Name, p.Origin, len(stages),
			fmt.Sprintf("%d/%d", first.Hourly, first.Daily), fmt.Sprintf("%d/%d", last.Hourly, last.Daily), passed(p),
			afterwards(&p.Plan))
	}
	return t
}

// passed is the day after that of the last stage.
func passed(p *api.WarmupPlan) string {
	days := p.Forecast
	if n := len(p.Plan.Stages) - max(p.Plan.StartStage, 1); n >= 0 && n < len(days) {
		return dateOf(days[n].Day.AddDate(0, 0, 1), p.Plan.DayStarts)
	}
	return "-"
}

func afterwards(p *warmup.PlanFile) string {
	switch {
	case p.Finish && p.EaseOut > 0:
		return fmt.Sprintf("caps double for %s, then none", plural(p.EaseOut, "day"))
	case p.Finish:
		return "no caps"
	}
	return "caps stay"
}

func (c *cli) showPlan(p *api.WarmupPlan) error {
	f, doc, h := c.facts(12), &p.Plan, &p.Plan.Health
	f.add("plan", "%s, of the %s", p.Name, map[bool]string{true: "presets", false: p.Origin}[p.Origin == "preset"])
	f.add("sources", "%s", cmp.Or(strings.Join(p.Sources, ", "), "-"))
	if !doc.Begin.IsZero() {
		f.add("begin", "%s", doc.Begin.In(zoneOf(doc.DayStarts)).Format("Mon 2 Jan 2006 15:04 MST"))
	}
	f.some("day starts", string(doc.DayStarts))
	f.add("pacing", "%s: catches up at up to %v times the even flow, saves up to %v s of it, at most %v caps in any "+
		"60 minutes",
		doc.Pacing, doc.Burst, doc.BucketSeconds, doc.SlidingHour)
	f.add("spread", "%s", doc.Spread)
	f.some("weights", weightList(doc.Weights))
	f.some("shares", listOf(doc.Shares, func(x float64) string { return percent(x) + " of each stage" }))
	f.some("growth", listOf(doc.Growths, func(x float64) string { return fmt.Sprintf("%v times a stage at most", x) }))
	f.some("own stage", listOf(doc.OwnStages, func(bool) string { return "goes back a stage alone" }))
	if h.MinSample == 0 {
		f.add("health", "a stage a day, regardless of outcomes")
	} else {
		f.add("advance", "if bounces < %s, deferrals < %s, complaints < %s, and %s of the day's cap was sent",
			percent(h.AdvanceBelow.Bounce), percent(h.AdvanceBelow.Defer), percent(h.AdvanceBelow.Complaint),
			percent(h.MinFill))
		f.add("go back", "if bounces > %s, deferrals > %s or complaints > %s",
			percent(h.RegressAbove.Bounce), percent(h.RegressAbove.Defer), percent(h.RegressAbove.Complaint))
	}
	if h.Pause.Sample > 0 {
		f.add("pause", "of a provider, when %s of its last %d outcomes are refusals by policy: %d s, then %d probes",
			percent(h.Pause.Share), h.Pause.Sample, h.Pause.Seconds, h.Pause.Probe)
	}
	f.add("then", "%s", afterwards(doc))
	fmt.Fprintln(c.out)
	t := draw.New("OF THAT", "DATE", ">STAGE", ">AN HOUR", ">A DAY")
	for i, s := range doc.Stages {
		date := "-" // before the start stage
		if k := i + 1 - max(doc.StartStage, 1); k >= 0 && k < len(p.Forecast) {
			date = dateOf(p.Forecast[k].Day, doc.DayStarts)
		}
		t.Add(stageProviders(&s), date, i+1, s.Hourly, s.Daily)
	}
	return t.Write(c.out, c.screen)
}

// stageProviders returns which part of a stage some providers can have.
func stageProviders(s *warmup.Stage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		v := s.Providers[name]
		parts = append(parts,
			fmt.Sprintf("%s %s/%s", name, cmp.Or(nonZero(v.Hourly), "-"), cmp.Or(nonZero(v.Daily), "-")))
	}
	return strings.Join(parts, ", ")
}

func weightList(w map[string]float64) string {
	return listOf(w, func(x float64) string { return fmt.Sprint(x) })
}

// listOf lists what providers have, by name.
func listOf[T any](all map[string]T, words func(T) string) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		parts = append(parts, name+" "+words(all[name]))
	}
	return strings.Join(parts, ", ")
}

// percent writes a share from 0 to 1, in as many digits as it needs and three at most.
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }

// zoneOf is the zone in which a plan's days have their dates: that of its day_starts, or this machine's.
func zoneOf(dayStarts warmup.DayStart) *time.Location {
	if dayStarts == "" {
		return time.Local
	}
	return dayStarts.Zone()
}

// dateOf is the date of a plan's day.
func dateOf(day time.Time, dayStarts warmup.DayStart) string {
	return day.In(zoneOf(dayStarts)).Format("Mon 2 Jan")
}

// mostForecast is how many days of a forecast are shown before its end.
const mostForecast = 10

// forecastLines returns what the days to come allow, a line each: the next ones and the last.
func forecastLines(days []warmup.Forecast, dayStarts warmup.DayStart, more bool) string {
	if len(days) == 0 {
		return ""
	}
	var b strings.Builder
	if b.WriteString("\nif each day is good"); more {
		b.WriteString(" from now on")
	}
	b.WriteString(":\n")
	for i, d := range days {
		if left := len(days) - i; len(days) > mostForecast+3 && i >= mostForecast && left > 2 {
			if i == mostForecast {
				fmt.Fprintf(&b, "  ... %s\n", plural(left-2, "day"))
			}
			continue
		}
		fmt.Fprintf(&b, "  %s\n", forecastLine(d, dayStarts))
	}
	return b.String()
}

func forecastLine(d warmup.Forecast, dayStarts warmup.DayStart) string {
	limit := "no more caps"
	if d.Limit > 0 {
		limit = listing.Thousands(d.Limit)
	}
	return dateOf(d.Day, dayStarts) + ": " + limit
}
