package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/lab/overload"
)

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
	trace, mode, plot string
	seed              uint64
	timeout           time.Duration
	byTier, tune      bool
}

func newAdmissionSimulate(c *cli) *cobra.Command {
	var f overloadFlags
	cmd := &cobra.Command{
		Use:   "simulate --trace FILE",
		Short: "simulate a load",
		Long:  admissionSimulateHelp,
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
	flags.StringVar(&f.trace, "trace", "", "the `file` with the load; - is standard input")
	flags.StringVar(&f.mode, "mode", overload.Modes[0], "the `controller`: utilisation; or, for comparison, pid (as published), codel or none")
	flags.Uint64Var(&f.seed, "seed", 1, "the random seed")
	flags.DurationVar(&f.timeout, "timeout", 2*time.Second, "how `long` a submission waits for a slot")
	flags.BoolVar(&f.tune, "tune", false, "let the tuner set the number of slots")
	flags.BoolVar(&f.byTier, "by-tier", false, "add a column with the ratio of each tier")
	flags.StringVar(&f.plot, "plot", "", "draw a chart into this `file`, as SVG")
	oneOf(cmd, "mode", overload.Modes)
	return cmd
}

func (c *cli) admissionSimulate(f *overloadFlags) error {
	if f.trace == "" {
		return usagef("name the trace: --trace FILE, or --trace - for standard input")
	}
	if f.timeout <= 0 {
		return &overload.InputError{What: "options", Text: fmt.Sprintf("timeout is %v, want more than 0", f.timeout)}
	}
	law, err := overload.LawOf(f.mode)
	if err != nil {
		return err
	}
	trace, err := c.overloadTrace(f.trace)
	if err != nil {
		return err
	}
	out := overload.NewCSV(c.out, f.byTier)
	var rows []overload.Row
	err = overload.Run(trace, overload.Options{Seed: f.seed, Law: law, Timeout: f.timeout, Tune: f.tune}, func(r *overload.Row) error {
		if f.plot != "" {
			rows = append(rows, *r)
		}
		return out.Write(r)
	})
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	if f.plot == "" {
		return nil
	}
	var picture bytes.Buffer
	if err := overload.Plot(f.mode+", "+filepath.Base(f.trace), rows, &picture); err != nil {
		return err
	}
	return os.WriteFile(f.plot, picture.Bytes(), 0o644)
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
