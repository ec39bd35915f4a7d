package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
	"example.org/mta/warmup/simulate"
)

const warmupSimulateHelp = `Simulate a plan before you use it, with the relay's own ledger and controller on a virtual
clock. The output is CSV with a row for each interval and provider with activity. The same
seed gives the same bytes.

The trace is CSV with the header t,event,provider,value: t in whole seconds, in order; the
provider, where * or an empty field means all; and as event:

  offer      VALUE recipients arrive for sending
  defer, bounce, complaint
             from now on, this share of the sent mail, 0 to 1
  block      1: each attempt is refused by policy; 0: no longer
  nodes      VALUE relays share the plan
  lag        statistics are VALUE seconds late
  store      0: the ledger can't be reached; 1: it can
  crash      VALUE relays lose their memory
  end        of the simulation

The plan is a preset, one of the configuration, or a JSON file: the output of 'mta warmup
plans NAME --json', or its "plan".`

// simulateFlags are the flags of 'mta warmup simulate'.
type simulateFlags struct {
	plan, trace, pacing, overflow, plot string
	demand, shape, on                   string
	seed                                uint64
	interval                            int64
	tier                                int
	patience                            time.Duration
	given                               bool // patience is given
	asJSON                              bool
}

func newWarmupSimulate(c *cli) *cobra.Command {
	var f simulateFlags
	cmd := &cobra.Command{
		Use:   "simulate --plan FILE|NAME --trace FILE|--demand N/day",
		Short: "simulate a plan",
		Long:  warmupSimulateHelp,
		Example: `  mta warmup simulate --plan standard --trace week.csv --interval 3600 > week.out
  mta warmup simulate --plan standard --demand 20000/day --shape campaign --plot days.svg
  mta warmup simulate --plan standard --demand 20000/day --on tue --shape campaign --interval 86400
  mta warmup simulate --plan plan.json --trace - --pacing pid --plot pid.svg`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.given = cmd.Flags().Changed("patience")
			return c.warmupSimulate(&f)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.plan, "plan", "", "the `plan`: its name, or a file")
	flags.StringVar(&f.trace, "trace", "", "the trace `file`; - is standard input")
	flags.StringVar(&f.demand, "demand", "", "instead of a trace: a daily `volume`, such as 20000/day, for as many days as the plan has caps and one more")
	flags.StringVar(&f.on, "on", "", "the `days` of the week with mail, such as mon-fri or tue (default: all)")
	flags.StringVar(&f.shape, "shape", "office", "when the mail arrives within a day: `SHAPE` is even, office (8 to 18 o'clock) or campaign (within ten minutes)")
	flags.Uint64Var(&f.seed, "seed", 1, "the random seed")
	flags.Int64Var(&f.interval, "interval", 10, "`seconds` per row")
	flags.StringVar(&f.pacing, "pacing", "", "the `pacing`: ledger or pid; or, for comparison and without caps, bare-pid or onoff (default: the plan's pacing)")
	flags.StringVar(&f.overflow, "overflow", "", "the handling of mail that exceeds the plan, shared or hold: it uses a shared source, or waits (default: that of the plan or its `pools`)")
	flags.IntVar(&f.tier, "tier", config.DefaultTier, "the `tier` of the mail, 0 to 5: more important mail has less patience")
	flags.DurationVar(&f.patience, "patience", 0, "how `long` mail waits before it uses a shared source, as far as the plan can take it (default: as the configuration has it for the plan and the tier)")
	flags.StringVar(&f.plot, "plot", "", "draw a chart into this `file`, as SVG")
	flags.BoolVar(&f.asJSON, "json", false, "print JSON instead of CSV")
	flags.StringVar(&f.pacing, "mode", "", "the former name of --pacing")
	_ = flags.MarkHidden("mode") // it exists
	oneOf(cmd, "pacing", simulate.Pacings)
	oneOf(cmd, "shape", simulate.Shapes())
	oneOf(cmd, "overflow", []string{"shared", "hold"})
	return cmd
}

func (c *cli) warmupSimulate(f *simulateFlags) error {
	if f.plan == "" || (f.trace == "") == (f.demand == "") {
		return usagef("a plan and a load are required: --plan, and --trace or --demand")
	}
	if err := f.check(); err != nil {
		return c.badInput(err)
	}
	plan, opt, err := c.simulatedPlan(f)
	if err != nil {
		return c.badInput(err)
	}
	trace, begin, err := c.simulatedMail(f, plan)
	if err != nil {
		return c.badInput(err)
	}
	opt.Seed, opt.Interval, opt.Pacing = f.seed, f.interval, simulate.Pacing(f.pacing)
	out := bufio.NewWriter(c.out)
	if !f.asJSON {
		fmt.Fprintln(out, simulate.Header) // it stays in the buffer where the input turns out to be bad
	}
	var rows []simulate.Row
	history, err := simulate.Run(plan, trace, opt, func(r *simulate.Row) {
		if !f.asJSON {
			fmt.Fprintln(out, r)
		}
		if f.asJSON || f.plot != "" {
			rows = append(rows, *r)
		}
	})
	if err != nil {
		return c.badInput(err)
	}
	if f.asJSON {
		if err := writeJSON(out, simulation{rows}); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil || f.plot == "" {
		return err
	}
	mail := filepath.Base(f.trace)
	if f.demand != "" {
		mail = f.demand + ", " + f.shape
	}
	if f.on != "" {
		mail += ", " + f.on
	}
	return drawPlot(f.plot, &simulate.Picture{
		Title: plan.Name + ", " + mail, Rows: rows, Interval: f.interval, History: *history,
		Begin: begin.In(zoneOf(plan.DayStarts)),
	})
}

// check looks at the flags that the simulator has other defaults for, or none.
func (f *simulateFlags) check() error {
	wrong := func(format string, args ...any) error {
		return &simulate.InputError{What: "options", Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.on != "" && f.demand == "":
		return wrong("--on is for --demand: a trace has its own days")
	case f.interval == 0: // which is the default there
		return wrong("interval is 0: it must be 1 s or more")
	case f.tier < 0 || f.tier > 5:
		return wrong("tier is %d: it must be from 0 to 5", f.tier)
	case f.patience < 0:
		return wrong("patience is %v: it must not be negative", f.patience)
	case f.pacing != "" && !slices.Contains(simulate.Pacings, f.pacing):
		return wrong("pacing %q is not known: use %s", f.pacing, strings.Join(simulate.Pacings, ", "))
	}
	return nil
}

// simulation is the output as JSON.
type simulation struct {
	Rows []simulate.Row `json:"rows"`
}

// badInput returns on one line what is wrong with a plan, a trace or an option.
func (c *cli) badInput(err error) error {
	if !simulate.IsInputError(err) {
		return err
	}
	fmt.Fprintf(c.err, "mta: %s\n", draw.Clean(oneLine(err.Error())))
	return exitError(exitUsage)
}

// simulatedMail reads the trace, or makes that of a demand, and returns when it begins.
func (c *cli) simulatedMail(f *simulateFlags, plan *warmup.Plan) ([]simulate.Event, time.Time, error) {
	if f.demand != "" {
		return c.demanded(f, plan)
	}
	begin := plan.First(c.now())
	in, _, err := c.input(f.trace)
	if err != nil {
		return nil, begin, &simulate.InputError{What: "trace", Text: plainly(err)}
	}
	defer in.Close()
	trace, err := simulate.ParseTrace(in)
	if err != nil && !simulate.IsInputError(err) {
		err = &simulate.InputError{What: "trace", Text: plainly(err)}
	}
	return trace, begin, err
}

// demanded makes the trace of --demand, --shape and --on.
func (c *cli) demanded(f *simulateFlags, plan *warmup.Plan) ([]simulate.Event, time.Time, error) {
	n, err := strconv.ParseInt(strings.TrimSuffix(f.demand, "/day"), 10, 64)
	if err != nil {
		return nil, time.Time{}, &simulate.InputError{What: "options", Text: fmt.Sprintf("demand %q: write it as 20000/day", f.demand)}
	}
	d := simulate.Demand{PerDay: n, Shape: f.shape}
	if d.On, err = warmup.ParseWeekdays(f.on); err != nil {
		return nil, time.Time{}, &simulate.InputError{What: "options", Text: fmt.Sprintf("on %v", err)}
	}
	begin := d.Begin(plan, c.now())
	trace, err := d.Trace(begin, d.Days(plan, begin))
	return trace, begin, err
}

// plainly takes the name of the system call out of what package os says.
func plainly(err error) string {
	if e := (*os.PathError)(nil); errors.As(err, &e) {
		return fmt.Sprintf("reading %s: %v", e.Path, e.Err)
	}
	return err.Error()
}

// simulatedPlan finds a plan, and how long its mail waits.
func (c *cli) simulatedPlan(f *simulateFlags) (*warmup.Plan, simulate.Options, error) {
	plan, cfg, err := c.planOf(f.plan)
	if err != nil {
		return nil, simulate.Options{}, err
	}
	if o := warmup.Overflow(f.overflow); o.Valid() {
		plan.Overflow = o
	} else if o != "" {
		return nil, simulate.Options{}, &simulate.InputError{What: "options", Text: fmt.Sprintf("overflow %q is not known: use shared or hold", f.overflow)}
	}
	opt := wiring.Simulation(cfg, plan.Name, f.tier)
	if f.given {
		opt.Patience = f.patience
	}
	return plan, opt, nil
}

// planOf finds a plan and the configuration that it belongs to: in a file when the name looks like one's, else by its
// name, else in a file all the same.
func (c *cli) planOf(name string) (*warmup.Plan, *config.Config, error) {
	if !strings.Contains(name, string(filepath.Separator)) && filepath.Ext(name) != ".json" {
		cfg, err := c.config()
		if errors.Is(err, os.ErrPermission) { // presets are for everybody
			fmt.Fprintf(c.err, "%s can't be read: only presets are known\n", c.configPath())
			cfg, err = config.Default(), nil
		}
		if err != nil {
			return nil, nil, err
		}
		if p := cfg.WarmupPlan(name); p != nil {
			own := *p
			own.Overflow = cfg.OverflowOf(name)
			return &own, cfg, nil
		}
		if _, err := os.Stat(name); err != nil {
			return nil, nil, &simulate.InputError{What: "plan", Text: fmt.Sprintf("there is no plan and no file %q; the plans: %s", name, strings.Join(cfg.WarmupPlans(), ", "))}
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, &simulate.InputError{What: "plan", Text: plainly(err)}
	}
	p, err := warmup.ParsePlan(bytes.NewReader(planIn(text)))
	if err != nil {
		return nil, nil, &simulate.InputError{What: "plan", Text: name + ": " + strings.TrimPrefix(plainly(err), "reading plan: ")}
	}
	p.Name = strings.TrimSuffix(filepath.Base(name), ".json")
	return p, config.Default(), nil
}

// planIn gives the plan in what 'mta warmup plans NAME --json' prints; all else as it is.
func planIn(text []byte) []byte {
	var list struct {
		Plans []struct {
			Plan json.RawMessage `json:"plan"`
		} `json:"plans"`
	}
	if json.Unmarshal(text, &list) == nil && len(list.Plans) == 1 && len(list.Plans[0].Plan) > 0 {
		return list.Plans[0].Plan
	}
	return text
}

func drawPlot(path string, p *simulate.Picture) error {
	var b bytes.Buffer
	if err := simulate.Plot(p, &b); err != nil {
		return err
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("writing the plot: %w", err)
	}
	return nil
}
