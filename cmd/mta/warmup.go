package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const warmupHelp = `Show and control the warm-up of new sources, and try plans before you use them. Without a
subcommand, 'mta warmup' lists the warming sources.

The configuration puts a source under a plan: in the dedicated block of a pool.`

func newWarmup(c *cli) *cobra.Command {
	list := newWarmupList(c)
	g := group("warmup", "show and control the warm-up of sources, try plans", list, newWarmupShow(c), newWarmupPlans(c), newWarmupPlan(c),
		newWarmupStart(c), newWarmupPause(c), newWarmupResume(c), newWarmupSetStage(c), newWarmupReport(c), newWarmupSimulate(c))
	g.Long = warmupHelp
	listByDefault(g, list)
	return g
}

const warmupListHelp = `List the sources that have a plan: the stage, the volume sent of the hourly and daily
caps, and the share of the mail that uses the source now. OUTLOOK is the effect of the day
on the stage if it ended now; it reports too little mail only when the volume falls behind.`

func newWarmupList(c *cli) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "list the warming sources",
		Long:    warmupListHelp,
		Example: "  mta warmup list --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.warmupList(cmd.Context(), &p)
		},
	}
	p.add(cmd, "sources")
	return c.watchable(cmd)
}

func (c *cli) warmupList(ctx context.Context, p *pageFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := collect(p, func(l *api.WarmupList) (*[]api.Warmup, *string) { return &l.Warmups, &l.Next },
		func(after string, limit int) (api.WarmupList, error) { return client.Warmups(ctx, after, limit) })
	switch {
	case err != nil:
		return err
	case p.asJSON:
		return writeJSON(c.out, l)
	case len(l.Warmups) == 0 && l.Next == "":
		fmt.Fprintln(c.out, "no source has a plan: give it one where a pool dedicates it")
		return nil
	}
	return printPage(c, listing.Warmups, l.Warmups, l.Next)
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
func warmupChange(c *cli, cmd *cobra.Command, a api.WarmupAction, stage func(args []string) (int, error), done func(*api.Warmup) string) *cobra.Command {
	var to api.StageChoice
	cmd.ValidArgsFunction = c.complete(c.sourceNames)
	return changes(c, cmd, &to.Intent, "warm-up",
		func(ctx context.Context, client *api.Client, args []string) (w api.WarmupChanged, err error) {
			if stage != nil {
				if to.Stage, err = stage(args[1:]); err != nil {
					return w, err
				}
			}
			return client.ChangeWarmup(ctx, args[0], a, to)
		}, func(w api.WarmupChanged) {
			fmt.Fprintf(c.out, "%s %s\n", warmupTitle(&w.Warmup), done(&w.Warmup))
		})
}

func newWarmupStart(c *cli) *cobra.Command {
	var stage int
	cmd := &cobra.Command{
		Use:   "start SOURCE",
		Short: "start a warm-up over",
		Long: `Start the warm-up of a source over, on the plan's first stage or on another one. Its past
days are forgotten and a pause ends; mail sent in this hour and on this day still counts.
The command also replaces a state that can't be read: this hour and this day then count as
used up.

A new warm-up starts automatically. SOURCE is the name of a source, or its IP.`,
		Example: "  mta warmup start acme-1 --stage 3",
		Args:    oneName("a source"),
	}
	cmd.Flags().IntVar(&stage, "stage", 0, "the `stage` to begin on, counted from 1 (default: the plan's start_stage)")
	return warmupChange(c, cmd, api.WarmupStart, func([]string) (int, error) {
		if stage < 0 || stage == 0 && cmd.Flags().Changed("stage") {
			return 0, usagef("--stage: stages are counted from 1")
		}
		return stage, nil
	}, func(w *api.Warmup) string { return "begins again on " + onStage(w) })
}

func newWarmupPause(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use:   "pause SOURCE",
		Short: "pause a warming source",
		Long: `Pause a source until 'mta warmup resume'. Its stage and its counters stay; its mail uses
the pool's shared sources or waits, depending on the pool.

SOURCE is the name of a source, or its IP.`,
		Args: oneName("a source"),
	}, api.WarmupPause, nil, func(w *api.Warmup) string { return "is paused on " + onStage(w) })
}

func newWarmupResume(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use:   "resume SOURCE",
		Short: "end a pause",
		Long: `End the pause of a source.

SOURCE is the name of a source, or its IP.`,
		Args: oneName("a source"),
	}, api.WarmupResume, nil, func(w *api.Warmup) string { return "goes on with " + onStage(w) })
}

func newWarmupSetStage(c *cli) *cobra.Command {
	return warmupChange(c, &cobra.Command{
		Use:   "set-stage SOURCE STAGE",
		Short: "continue with another stage",
		Long: `Continue with another stage of the plan, and its caps, immediately. Mail sent in this hour
and on this day still counts, and a paused source stays paused.

SOURCE is the name of a source, or its IP. STAGE is counted from 1.`,
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
