package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

func newClusterAdopt(c *cli) *cobra.Command {
	var in api.Adopt
	cmd := &cobra.Command{
		Use: "adopt DIR", Short: "move the mail of a dead node to the living ones, from its data directory",
		Long: `Have the mail of a node that is gone move to all living nodes, from its data directory, such as
a volume of the dead machine that is mounted here. The running relay does it, and must be able
to read and write the directory. Messages come as from 'mta cluster drain'; streams get the
events that the node had not sent. First the node is forgotten as by 'mta cluster forget',
which is refused while it answers, and the directory is marked: no relay starts on it any more.

The command shows how far the move is, and ends when nothing is left, or with the exit code 1
when nothing more can move. What is damaged, or can't be sent from here, is found before any
mail moves: the command refuses, or with --accept moves all else, names what stays, and ends with
the exit code 1. If it is interrupted it goes on in the relay. If that stops, or
something was left, run the command again at the same node: it goes on from there.`,
		Example: `  mta cluster adopt /mnt/node-1 --dry-run
  mta cluster adopt /mnt/node-1 --reason "mainboard"`,
		Args: oneArg("a data directory"),
	}
	noWait := cmd.Flags().Bool("no-wait", false, "don't wait for the move")
	cmd.Flags().BoolVar(&in.Dead, "dead", false, "the machine is off, although the node has just answered")
	cmd.Flags().BoolVar(&in.Accept, "accept", false,
		"go on although some of it can't move: damaged mail, events, or keys of requests")
	changeFlags(cmd, &in.Intent)
	return answers(c, cmd, func(ctx context.Context, client *api.Client, args []string) (done adoption, err error) {
		if in.Dir, err = filepath.Abs(args[0]); err != nil {
			return done, err
		}
		if done.Adopted, err = api.OpAdopt.Call(ctx, client, in); err == nil && !*noWait && done.Adoption.Running {
			done.Adoption, err = c.watchAdoption(ctx, client)
		}
		return done, err
	}, func(done adoption) error { return c.adopted(&done.Adopted) })
}

// adopted shows what an adoption has come to.
func (c *cli) adopted(done *api.Adopted) error {
	a := &done.Adoption
	who := fmt.Sprintf("node %d (%s)", a.Moving.Node, a.NodeID)
	if a.Letters > 0 {
		fmt.Fprintf(c.err, "%s of sendmail stay in %s: move them to maildrop/new of a node\n",
			plural(a.Letters, "letter"), filepath.Join(a.Dir, "maildrop", "new"))
	}
	switch {
	case done.DryRun && a.Ended.IsZero():
		var states []string
		for _, state := range slices.Sorted(maps.Keys(done.States)) {
			states = append(states, fmt.Sprintf("%d %s", done.States[state], state))
		}
		fmt.Fprintf(c.out, "%s: %s would be moved: %s\n", who, plural(done.Count, "recipient"),
			strings.Join(states, ", "))
	case !a.Ended.IsZero() && done.Count == 0 && a.Moving.Messages == 0:
		fmt.Fprintf(c.out, "nothing to do: the mail of %s was adopted on %s\n", who,
			a.Ended.UTC().Format(time.DateTime))
	default:
		fmt.Fprintf(c.out, "%s: %s\n", who, adopting(a))
	}
	if a.Failed != "" {
		fmt.Fprintf(c.err, "problem: %s\n", a.Failed)
	}
	for _, what := range a.Stays {
		fmt.Fprintf(c.err, "stays: %s\n", what)
	}
	if !a.Running && a.Ended.IsZero() && !done.DryRun {
		for _, why := range leftOut(&a.Moving) {
			fmt.Fprintf(c.err, "left out: %s\n", why)
		}
	}
	return nil
}

// adoption is the answer of the command; it has failed when something is left, also where that is printed as JSON.
type adoption struct{ api.Adopted }

func (a adoption) lacks() error {
	x := &a.Adoption
	if a.DryRun && x.Failed == "" || x.Running || !x.Ended.IsZero() {
		return nil
	}
	return exitError(exitFailed)
}

// adopting puts into words how far an adoption is.
func adopting(a *api.Adoption) string {
	words := moved(&a.Moving)
	if a.Events > 0 {
		words += fmt.Sprintf(", %d events to send", a.Events)
	}
	return words
}

// watchAdoption shows how far an adoption is until its end.
func (c *cli) watchAdoption(ctx context.Context, client *api.Client) (a api.Adoption, err error) {
	defer c.waiting("")
	for n := 1; ; n++ {
		if a, err = api.OpAdoption.Call(ctx, client, api.None{}); err != nil {
			return a, hinted{err,
				"if the relay has stopped, start it and give the command again: it goes on from there"}
		}
		if !a.Running {
			return a, nil
		}
		if c.waiting(adopting(&a)); !c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(c.err, adopting(&a))
		}
		select {
		case <-time.After(movingPoll):
		case <-ctx.Done():
			return a, ctx.Err()
		}
	}
}
