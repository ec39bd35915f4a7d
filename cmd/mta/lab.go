package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
	"example.org/mta/lab/bench"
	"example.org/mta/lab/demo"
	"example.org/mta/lab/overload"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/warmup"
	"example.org/mta/warmup/simulate"
)

const benchHelp = `Measure a mail server: submit messages, receive them at the bench's own sites, and report
the speed, the cost, and whether each recipient got each message exactly once.

Without --target the command starts a relay, in a temporary directory, with the defaults
and the additions of --relay-config. --target measures a running server. It must route the
sites' domains to them: by their name server (--dns), or by a transport table for Postfix,
which --transports prints. Only loopback is used.

Ctrl-C ends it without a report. Exit code 1: messages were lost, or duplicated without cause.`

// benchCommand is the flags of 'mta bench', except those of the scenario.
type benchCommand struct {
	c          *cli
	scenario   bench.Scenario
	standard   string
	scale      float64
	target     string
	pid        int
	relay      bench.RelayOptions
	config     string // the file of further lines
	transports bool
	json       bool
}

func newBench(c *cli) *cobra.Command {
	b := &benchCommand{c: c, scenario: bench.DefaultScenario()}
	cmd := &cobra.Command{
		Use: "bench", Short: "measure a mail server, and check that every message arrives once", Long: benchHelp,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.choose(cmd.Flags()); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return b.run(ctx)
		},
	}
	flags := cmd.Flags()
	addFlags(flags, &b.scenario)
	flags.StringVar(&b.standard, "scenario", "",
		"start from the standard scenario of this `letter`, a to i; other flags change it")
	flags.Float64Var(&b.scale, "scale", 1, "`factor` for the number of messages")
	flags.StringVar(&b.target, "target", "", "measure the server at this `ip:port`")
	flags.IntVar(&b.pid, "pid", 0, "the process `id` of the target; its process group is measured")
	flags.IntVar(&b.relay.Limit, "connection-limit", 20, "connections of the bench's relay to a site")
	flags.IntVar(&b.relay.Sources, "sources", 0,
		"the `number` of addresses in 127.41.0.0/16 that the bench's relay sends from (default: one, chosen by the "+
			"system)")
	flags.StringVar(&b.config, "relay-config", "",
		"a `file` with more lines for the configuration of the bench's relay")
	flags.StringVar(&b.relay.Dir, "dir", "",
		"the `directory` for the data and log of the bench's relay, kept afterwards (default: a temporary one)")
	flags.BoolVar(&b.transports, "transports", false, "only print a transport table for Postfix; needs --port")
	flags.BoolVar(&b.json, "json", false, "print the report as JSON")
	_ = cmd.RegisterFlagCompletionFunc("scenario",
		cobra.FixedCompletions(standardLetters(), cobra.ShellCompDirectiveNoFileComp))
	oneOf(cmd, "death", []bench.Death{bench.Silent, bench.Unreachable, bench.Refusing})
	return cmd
}

func standardLetters() (letters []string) {
	for _, s := range bench.Standards() {
		letters = append(letters, s.Letter+"\t"+s.Title)
	}
	return letters
}

// choose makes the scenario of all flags.
func (b *benchCommand) choose(given *pflag.FlagSet) error {
	if b.standard != "" {
		s, ok := bench.FindStandard(b.standard)
		if !ok {
			return usagef("there is no scenario %q: want a letter from a to i", b.standard)
		}
		over := pflag.NewFlagSet("", pflag.ContinueOnError)
		addFlags(over, &s)
		var err error
		given.Visit(func(f *pflag.Flag) {
			if over.Lookup(f.Name) != nil {
				err = errors.Join(err, over.Set(f.Name, f.Value.String()))
			}
		})
		if err != nil {
			return err
		}
		b.scenario = s
	}
	if given.Changed("domains") && !given.Changed("hosts") {
		b.scenario.Hosts = b.scenario.Domains
	}
	if b.transports && b.scenario.Port == 0 {
		return usagef("--transports needs --port: without it the hosts have another port each time")
	}
	if b.scale <= 0 {
		return usagef("--scale must be more than 0")
	}
	if b.scale != 1 {
		b.scenario = b.scenario.Scaled(b.scale)
	}
	if err := b.scenario.Validate(); err != nil {
		return usageError{err}
	}
	return nil
}

func (b *benchCommand) run(ctx context.Context) (err error) {
	if b.config != "" {
		text, err := os.ReadFile(b.config)
		if err != nil {
			return fmt.Errorf("reading further lines of configuration: %w", err)
		}
		b.relay.Config = string(text)
	}
	ground, err := b.scenario.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ground.Close()) }()
	if b.transports {
		_, err := fmt.Fprintln(b.c.out, strings.Join(ground.Transports(), "\n"))
		return err
	}
	server := bench.Server{Name: b.target, Address: b.target, PID: b.pid}
	if b.target == "" {
		relay, err := bench.StartRelay(ctx, b.relay, ground)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, relay.Close()) }()
		server = relay.Server()
	}
	return b.measure(ctx, ground, server)
}

func (b *benchCommand) measure(ctx context.Context, ground *bench.Ground, server bench.Server) error {
	bar := &benchBar{out: b.c.err, width: terminalWidth(b.c.err)}
	report, err := bench.Measure(ctx, b.scenario, ground, server, bar.show)
	bar.clear()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted, so there is no report")
	case report == nil:
		return err
	}
	if printed := b.print(report); printed != nil {
		return printed
	}
	switch {
	case err != nil:
		return err
	case !report.Right():
		return exitError(exitFailed) // the report has it
	}
	return nil
}

func (b *benchCommand) print(r *bench.Report) error {
	if !b.json {
		return r.Write(b.c.out)
	}
	return writeJSON(b.c.out, r)
}

// terminalWidth is 0 when out is not a terminal.
func terminalWidth(out any) int {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		return 80
	}
	return width
}

// benchBar shows on a terminal how far a measurement is, in one line that is drawn again and again.
type benchBar struct {
	out   io.Writer
	width int // 0: no terminal, nothing is shown
	drawn bool
	last  bench.Progress // that was shown
}

// barEvery is how often it is drawn: drawing takes processor time from what is measured.
const barEvery = 200 * time.Millisecond

func (b *benchBar) show(p bench.Progress) {
	since := p.Elapsed - b.last.Elapsed
	if b.width == 0 || b.drawn && since < barEvery {
		return
	}
	rate := float64(p.Delivered-b.last.Delivered) / max(since.Seconds(), barEvery.Seconds())
	numbers := fmt.Sprintf(" %d of %d accepted, %d of %d delivered, %.0f/s, %.0fs", p.Accepted, p.Messages, p.Delivered,
		p.Expected, rate, p.Elapsed.Seconds())
	b.last, b.drawn = p, true
	done, left := legible.Bar(p.Delivered, p.Expected, max(4, b.width-len(numbers)-1))
	fmt.Fprintf(b.out, "\r%s%s%s\x1b[K", done, left, numbers)
}

// clear takes the line away.
func (b *benchBar) clear() {
	if b.drawn {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
}

const demoHelp = `Show the relay at work on this machine, with a DNS server, realistic
mailbox providers and a mixed stream of mail. At the end every message is accounted for.
Only loopback is used.

Ctrl-C ends it early, and cleanly.`

func newDemo(c *cli) *cobra.Command {
	o := demo.Options{Out: c.out, TTY: c.screen.TTY}
	cmd := &cobra.Command{
		Use: "demo", Short: "show the relay at work against built-in providers", Long: demoHelp, Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Messages < 0 || o.Over < 0 || o.Limit < 0 {
				return usagef("numbers can't be negative")
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return demo.Run(ctx, o)
		},
	}
	addFlags(cmd.Flags(), &o)
	return cmd
}

const admissionSimulateHelp = `Simulate a load, with the production admission controller on a virtual clock. The output
is CSV with a row for every 500 ms. The same seed gives the same bytes.

The trace is CSV with the header t,event,value: t in seconds, in order, and as event

  rps        submissions offered per second, to all nodes together
  capacity   submissions per second that all nodes together can serve
  slots      in-flight slots of each node (default 20)
  nodes      number of nodes that share the load (default 1)
  mix        shares of the tiers, such as 0:10,3:60,4:30 (default 3:1)
  tenants    number of tenants that share the load evenly; 0, the default: very many
  end        the simulation ends

The columns count submissions: offered, admitted by the threshold, served, rejected by
the threshold, and timed_out while they waited for a slot. ratio is the share of the
offered submissions that were not admitted, threshold the number of admitted priority
levels out of 768, and goodput the served share of the capacity.`

// overloadFlags are the flags of 'mta admission simulate'.
type overloadFlags struct {
	Trace   string        `flag:"trace" help:"the <file> with the load; - is standard input"`
	Mode    string        `flag:"mode" help:"the <controller>: utilisation; or, for comparison, pid (as published), codel or none"`
	Seed    uint64        `flag:"seed" help:"the random seed"`
	Timeout time.Duration `flag:"timeout" help:"how <long> a submission waits for a slot"`
	Tune    bool          `flag:"tune" help:"let the tuner set the number of slots"`
	ByTier  bool          `flag:"by-tier" help:"add a column with the ratio of each tier"`
	Plot    string        `flag:"plot" help:"draw a chart into this <file>, as SVG"`
}

func newAdmissionSimulate(c *cli) *cobra.Command {
	f := overloadFlags{Mode: overload.Modes[0], Seed: 1, Timeout: 2 * time.Second}
	cmd := &cobra.Command{
		Use: "simulate --trace FILE", Short: "simulate a load", Long: admissionSimulateHelp,
		Example: `  mta admission simulate --trace surge.csv --plot surge.svg > surge.out
  mta admission simulate --trace surge.csv --mode pid --by-tier`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			err := c.admissionSimulate(&f)
			if input := (*overload.InputError)(nil); errors.As(err, &input) {
				fmt.Fprintf(c.err, "mta: %s\n", draw.Clean(oneLine(err.Error())))
				return exitError(exitUsage)
			}
			return err
		},
	}
	flags := cmd.Flags()
	addFlags(flags, &f)
	oneOf(cmd, "mode", overload.Modes)
	return cmd
}

func (c *cli) admissionSimulate(f *overloadFlags) error {
	if f.Trace == "" {
		return usagef("name the trace: --trace FILE, or --trace - for standard input")
	}
	if f.Timeout <= 0 {
		return &overload.InputError{What: "options", Text: fmt.Sprintf("timeout is %v, want more than 0", f.Timeout)}
	}
	law, err := overload.LawOf(f.Mode)
	if err != nil {
		return err
	}
	trace, err := c.overloadTrace(f.Trace)
	if err != nil {
		return err
	}
	out := overload.NewCSV(c.out, f.ByTier)
	var rows []overload.Row
	err = overload.Run(trace, overload.Options{Seed: f.Seed, Law: law, Timeout: f.Timeout, Tune: f.Tune},
		func(r *overload.Row) error {
			if f.Plot != "" {
				rows = append(rows, *r)
			}
			return out.Write(r)
		})
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if f.Plot == "" {
		return nil
	}
	var picture bytes.Buffer
	if err := overload.Plot(f.Mode+", "+filepath.Base(f.Trace), rows, &picture); err != nil {
		return err
	}
	return os.WriteFile(f.Plot, picture.Bytes(), 0o644)
}

// overloadTrace reads a trace.
func (c *cli) overloadTrace(path string) ([]overload.Event, error) {
	in, _, err := c.input(path)
	if err != nil {
		return nil, &overload.InputError{What: "trace", Text: err.Error()}
	}
	defer in.Close()
	trace, err := overload.ParseTrace(in)
	if err != nil && !errors.As(err, new(*overload.InputError)) {
		err = &overload.InputError{What: "trace", Text: plainly(err)}
	}
	return trace, err
}

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
	Plan     string        `flag:"plan" help:"the <plan>: its name, or a file"`
	Trace    string        `flag:"trace" help:"the trace <file>; - is standard input"`
	Demand   string        `flag:"demand" help:"instead of a trace: a daily <volume>, such as 20000/day, for as many days as the plan has caps and one more"`
	On       string        `flag:"on" help:"the <days> of the week with mail, such as mon-fri or tue (default: all)"`
	Shape    string        `flag:"shape" help:"when the mail arrives within a day: <SHAPE> is even, office (8 to 18 o'clock) or campaign (within ten minutes)"`
	Seed     uint64        `flag:"seed" help:"the random seed"`
	Interval int64         `flag:"interval" help:"<seconds> per row"`
	Pacing   string        `flag:"pacing" help:"the <pacing>: ledger or pid; or, for comparison and without caps, bare-pid or onoff (default: the plan's pacing)"`
	Overflow string        `flag:"overflow" help:"the handling of mail that exceeds the plan, shared or hold: it uses a shared source, or waits (default: that of the plan or its <pools>)"`
	Tier     int           `flag:"tier" help:"the <tier> of the mail, 0 to 5: more important mail has less patience"`
	Patience time.Duration `flag:"patience" help:"how <long> mail waits before it uses a shared source, as far as the plan can take it (default: as the configuration has it for the plan and the tier)"`
	Plot     string        `flag:"plot" help:"draw a chart into this <file>, as SVG"`
	JSON     bool          `flag:"json" help:"print JSON instead of CSV"`
	given    bool          // patience is given
}

func newWarmupSimulate(c *cli) *cobra.Command {
	f := simulateFlags{Shape: "office", Seed: 1, Interval: 10, Tier: config.DefaultTier}
	cmd := &cobra.Command{
		Use: "simulate --plan FILE|NAME --trace FILE|--demand N/day", Short: "simulate a plan",
		Long: warmupSimulateHelp,
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
	addFlags(flags, &f)
	flags.StringVar(&f.Pacing, "mode", "", "the former name of --pacing")
	_ = flags.MarkHidden("mode") // it exists
	oneOf(cmd, "pacing", simulate.Pacings)
	oneOf(cmd, "shape", simulate.Shapes())
	oneOf(cmd, "overflow", []string{"shared", "hold"})
	return cmd
}

func (c *cli) warmupSimulate(f *simulateFlags) error {
	if f.Plan == "" || (f.Trace == "") == (f.Demand == "") {
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
	opt.Seed, opt.Interval, opt.Pacing = f.Seed, f.Interval, simulate.Pacing(f.Pacing)
	out := bufio.NewWriter(c.out)
	if !f.JSON {
		fmt.Fprintln(out, simulate.Header) // it stays in the buffer where the input turns out to be bad
	}
	var rows []simulate.Row
	history, err := simulate.Run(plan, trace, opt, func(r *simulate.Row) {
		if !f.JSON {
			fmt.Fprintln(out, r)
		}
		if f.JSON || f.Plot != "" {
			rows = append(rows, *r)
		}
	})
	if err != nil {
		return c.badInput(err)
	}
	if f.JSON {
		if err := writeJSON(out, simulation{rows}); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil || f.Plot == "" {
		return err
	}
	mail := filepath.Base(f.Trace)
	if f.Demand != "" {
		mail = f.Demand + ", " + f.Shape
	}
	if f.On != "" {
		mail += ", " + f.On
	}
	return drawPlot(f.Plot, &simulate.Picture{
		Title: plan.Name + ", " + mail, Rows: rows, Interval: f.Interval, History: *history,
		Begin: begin.In(zoneOf(plan.DayStarts)),
	})
}

// check looks at the flags that the simulator has other defaults for, or none.
func (f *simulateFlags) check() error {
	wrong := func(format string, args ...any) error {
		return &simulate.InputError{What: "options", Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case f.On != "" && f.Demand == "":
		return wrong("--on is for --demand: a trace has its own days")
	case f.Interval == 0: // which is the default there
		return wrong("interval is 0: it must be 1 s or more")
	case f.Tier < 0 || f.Tier > 5:
		return wrong("tier is %d: it must be from 0 to 5", f.Tier)
	case f.Patience < 0:
		return wrong("patience is %v: it must not be negative", f.Patience)
	case f.Pacing != "" && !slices.Contains(simulate.Pacings, f.Pacing):
		return wrong("pacing %q is not known: use %s", f.Pacing, strings.Join(simulate.Pacings, ", "))
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
	if f.Demand != "" {
		return c.demanded(f, plan)
	}
	begin := plan.First(c.now())
	in, _, err := c.input(f.Trace)
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
	n, err := strconv.ParseInt(strings.TrimSuffix(f.Demand, "/day"), 10, 64)
	if err != nil {
		return nil, time.Time{},
			&simulate.InputError{What: "options", Text: fmt.Sprintf("demand %q: write it as 20000/day", f.Demand)}
	}
	d := simulate.Demand{PerDay: n, Shape: f.Shape}
	if d.On, err = warmup.ParseWeekdays(f.On); err != nil {
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
	plan, cfg, err := c.planOf(f.Plan)
	if err != nil {
		return nil, simulate.Options{}, err
	}
	if o := warmup.Overflow(f.Overflow); o.Valid() {
		plan.Overflow = o
	} else if o != "" {
		return nil, simulate.Options{},
			&simulate.InputError{What: "options",
				Text: fmt.Sprintf("overflow %q is not known: use shared or hold", f.Overflow)}
	}
	opt := wiring.Simulation(cfg, plan.Name, f.Tier)
	if f.given {
		opt.Patience = f.Patience
	}
	return plan, opt, nil
}

// planOf finds a plan and the configuration that it belongs to: in a file when the name looks like one's, else by its
// name, else in a file all the same.
func (c *cli) planOf(name string) (*warmup.Plan, *config.Config, error) {
	if !strings.Contains(name, string(filepath.Separator)) && filepath.Ext(name) != ".json" {
		cfg, err := c.config()
		// Presets are for everybody, and so for those who can't read the file, or the keys that it names.
		if err != nil && (errors.Is(err, os.ErrPermission) || config.Default().WarmupPlan(name) != nil) {
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
			return nil, nil, &simulate.InputError{What: "plan",
				Text: fmt.Sprintf("there is no plan and no file %q; the plans: %s", name,
					strings.Join(cfg.WarmupPlans(), ", "))}
		}
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, nil, &simulate.InputError{What: "plan", Text: plainly(err)}
	}
	p, err := warmup.ParsePlan(bytes.NewReader(planIn(text)))
	if err != nil {
		return nil, nil, &simulate.InputError{What: "plan",
			Text: name + ": " + strings.TrimPrefix(plainly(err), "reading plan: ")}
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
