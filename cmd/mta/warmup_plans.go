package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/warmup"
)

const warmupPlansHelp = `List the available plans: those of the configuration and the presets. With NAME, show one
of them by date, for a warm-up that begins now or at the plan's date, if each day is good.
FIRST and LAST are the caps of the first and the last stage, in recipients per hour and per
day; PASSED is the date on which the last stage would be finished.

The plans are those in force in the running relay. Without one, the command reads the
configuration file.`

func newWarmupPlans(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "plans [NAME]",
		Short: "list plans, or the stages of one",
		Long:  warmupPlansHelp,
		Example: `  mta warmup plans standard
  mta warmup plans standard --json | jq '.plans[0].plan' > plan.json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want the name of one plan, got %d", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			plans, err := c.warmupPlans(cmd.Context())
			if err != nil {
				return err
			}
			if len(args) == 0 {
				if asJSON {
					return writeJSON(c.out, api.WarmupPlanList{Plans: plans})
				}
				return planTable(plans).Write(c.out, c.screen)
			}
			i := slices.IndexFunc(plans, func(p api.WarmupPlan) bool { return p.Name == args[0] })
			if i < 0 {
				return hinted{fmt.Errorf("there is no plan %q", args[0]), "the plans: " + strings.Join(planNames(plans), ", ")}
			}
			if asJSON {
				return writeJSON(c.out, api.WarmupPlanList{Plans: plans[i : i+1]})
			}
			return c.showPlan(&plans[i])
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// warmupPlans asks the relay, or reads the file when none is running.
func (c *cli) warmupPlans(ctx context.Context) ([]api.WarmupPlan, error) {
	client, err := c.client()
	if err != nil {
		return nil, err
	}
	plans, err := client.WarmupPlans(ctx)
	if !api.Down(err) || c.socketFlag != "" {
		return plans, err
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
	t := &draw.Table{
		Columns: []draw.Column{
			{Title: "PLAN", Shrink: true}, {Title: "OF"}, {Title: "STAGES", Right: true}, {Title: "FIRST", Right: true}, {Title: "LAST", Right: true}, {Title: "PASSED"}, {Title: "THEN"},
		},
		NoteTitle: "SOURCES",
	}
	for i := range plans {
		p := &plans[i]
		stages := p.Plan.Stages
		first, last := stages[0], stages[len(stages)-1]
		t.Add(strings.Join(p.Sources, ", "), p.Name, p.Origin, fmt.Sprint(len(stages)),
			fmt.Sprintf("%d/%d", first.Hourly, first.Daily), fmt.Sprintf("%d/%d", last.Hourly, last.Daily), passed(p), afterwards(&p.Plan))
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
	var b strings.Builder
	doc, h := &p.Plan, &p.Plan.Health
	fact(&b, "plan", "%s, of the %s", p.Name, map[bool]string{true: "presets", false: p.Origin}[p.Origin == "preset"])
	fact(&b, "sources", "%s", orDash(strings.Join(p.Sources, ", ")))
	if !doc.Begin.IsZero() {
		fact(&b, "begin", "%s", doc.Begin.In(zoneOf(doc.DayStarts)).Format("Mon 2 Jan 2006 15:04 MST"))
	}
	if doc.DayStarts != "" {
		fact(&b, "day starts", "%s", doc.DayStarts)
	}
	fact(&b, "pacing", "%s: catches up at up to %v times the even flow, saves up to %v s of it, at most %v caps in any 60 minutes",
		doc.Pacing, doc.Burst, doc.BucketSeconds, doc.SlidingHour)
	fact(&b, "spread", "%s", doc.Spread)
	if len(doc.Weights) > 0 {
		fact(&b, "weights", "%s", weightList(doc.Weights))
	}
	if h.MinSample == 0 {
		fact(&b, "health", "a stage a day, regardless of outcomes")
	} else {
		fact(&b, "advance", "if bounces < %s, deferrals < %s, complaints < %s, and %s of the day's cap was sent",
			percent(h.AdvanceBelow.Bounce), percent(h.AdvanceBelow.Defer), percent(h.AdvanceBelow.Complaint), percent(h.MinFill))
		fact(&b, "go back", "if bounces > %s, deferrals > %s or complaints > %s",
			percent(h.RegressAbove.Bounce), percent(h.RegressAbove.Defer), percent(h.RegressAbove.Complaint))
	}
	if h.Pause.Sample > 0 {
		fact(&b, "pause", "of a provider, when %s of its last %d outcomes are refusals by policy: %d s, then %d probes",
			percent(h.Pause.Share), h.Pause.Sample, h.Pause.Seconds, h.Pause.Probe)
	}
	fact(&b, "then", "%s", afterwards(doc))
	b.WriteByte('\n')
	if _, err := fmt.Fprint(c.out, draw.Clean(b.String())); err != nil {
		return err
	}
	t := &draw.Table{Columns: []draw.Column{{Title: "DATE"}, {Title: "STAGE", Right: true}, {Title: "AN HOUR", Right: true}, {Title: "A DAY", Right: true}}, NoteTitle: "OF THAT"}
	for i, s := range doc.Stages {
		date := "-" // before the start stage
		if k := i + 1 - max(doc.StartStage, 1); k >= 0 && k < len(p.Forecast) {
			date = dateOf(p.Forecast[k].Day, doc.DayStarts)
		}
		t.Add(stageProviders(&s), date, fmt.Sprint(i+1), fmt.Sprint(s.Hourly), fmt.Sprint(s.Daily))
	}
	return t.Write(c.out, c.screen)
}

// stageProviders returns which part of a stage some providers can have.
func stageProviders(s *warmup.Stage) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s.Providers)) {
		v := s.Providers[name]
		parts = append(parts, fmt.Sprintf("%s %s/%s", name, orDash(nonZero(v.Hourly)), orDash(nonZero(v.Daily))))
	}
	return strings.Join(parts, ", ")
}

func nonZero(n int64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func weightList(w map[string]float64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, fmt.Sprintf("%s %v", name, w[name]))
	}
	return strings.Join(parts, ", ")
}

// percent writes a share from 0 to 1, in as many digits as it needs and three at most.
func percent(share float64) string { return fmt.Sprintf("%.3g %%", 100*share) }
