package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

func newClusterDrain(c *cli) *cobra.Command {
	var q api.DrainNode
	cmd := &cobra.Command{
		Use: "drain [NODE]", Short: "take no new mail, and move the queue to the other nodes",
		Long: `Have this node, or another one, take no new mail as by 'mta drain', and move its queue to
the other nodes that take mail, while delivery goes on. Messages come there as they were:
with their attempts, times, holds and replies. What is in delivery moves when its attempt
has ended. A node that refuses mail or does not answer is left out, and named.

The command shows how far the move is, and ends when the queue is empty, or with the exit
code 1 when nothing more can move: the node delivers what is left, and goes on trying.
--no-wait and an interrupt end the command alone; run again, it shows the same move.
'mta cluster undrain' or a restart of the relay end the move.`,
		Example: `  mta cluster drain --reason "new disks"
  mta cluster drain 3`,
		Args: argCount(0, 1, "want one node, not %d"),
	}
	noWait := cmd.Flags().Bool("no-wait", false, "don't wait for the move")
	changeFlags(cmd, &q.Intent)
	return answers(c, cmd, func(ctx context.Context, client *api.Client, args []string) (done api.DrainedNode,
		err error) {
		if q.Node, err = nodeOf(args); err != nil {
			return done, err
		}
		if done, err = api.OpDrainNode.Call(ctx, client, q); err == nil && !*noWait && !q.DryRun {
			done.Moving, err = c.watchMoving(ctx, client, q.Node)
		}
		return done, err
	}, func(done api.DrainedNode) error {
		if c.wouldChange(done.Effect, "node") {
			return nil
		}
		fmt.Fprintf(c.out, "node %d takes no new mail; %s\n", done.Moving.Node, moved(&done.Moving))
		if *noWait || done.Moving.Left == 0 && done.Moving.Waiting == 0 {
			return nil
		}
		for _, why := range leftOut(&done.Moving) {
			fmt.Fprintf(c.err, "left out: %s\n", why)
		}
		return exitError(exitFailed)
	})
}

func newClusterUndrain(c *cli) *cobra.Command {
	var q api.DrainNode
	cmd := &cobra.Command{
		Use: "undrain [NODE]", Short: "take new mail again, and keep the queue",
		Long: `Have this node, or another one, take new mail again after 'mta cluster drain'. What has
moved stays where it is.`,
		Args: argCount(0, 1, "want one node, not %d"),
	}
	return changes(c, cmd, &q.Intent, "node",
		func(ctx context.Context, client *api.Client, args []string) (done api.DrainedNode, err error) {
			if q.Node, err = nodeOf(args); err != nil {
				return done, err
			}
			return api.OpUndrainNode.Call(ctx, client, q)
		}, func(done api.DrainedNode) {
			fmt.Fprintf(c.out, "node %d takes new mail; %s\n", done.Moving.Node, moved(&done.Moving))
		})
}

// nodeOf is the node that a command names, 0 without one.
func nodeOf(args []string) (int, error) {
	if len(args) == 0 {
		return 0, nil
	}
	n, err := nodeNumber(args[0])
	return int(n), err
}

const (
	movingPoll = time.Second
	// movingRests is for how long nothing more could move when the command gives up.
	movingRests = 10 * time.Second
)

// watchMoving shows how far a move is until its end.
func (c *cli) watchMoving(ctx context.Context, client *api.Client, node int) (m api.Moving, err error) {
	defer c.waiting("")
	timer := time.NewTicker(movingPoll)
	defer timer.Stop()
	rests := time.Time{}
	for n := 1; ; n++ {
		if m, err = api.OpMoving.Call(ctx, client, api.MovingQuery{Node: node}); err != nil {
			return m, err
		}
		if c.waiting(moved(&m)); !c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(c.err, moved(&m))
		}
		switch {
		case m.Left == 0 && m.Waiting == 0, !m.On:
			return m, nil
		case !m.Rests:
			rests = time.Time{}
		case rests.IsZero():
			rests = time.Now()
		case time.Since(rests) >= movingRests:
			return m, nil
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return m, ctx.Err()
		}
	}
}

// moved puts into words how far a move is.
func moved(m *api.Moving) string {
	parts := []string{fmt.Sprintf("%s with %s moved, %d left", plural(m.Messages, "message"),
		plural(m.Recipients, "recipient"), m.Left)}
	if m.Busy > 0 {
		parts = append(parts, fmt.Sprintf("%d in delivery", m.Busy))
	}
	if m.Waiting > 0 {
		parts = append(parts, fmt.Sprintf("%s withheld until their node has answered", plural(m.Waiting, "message")))
	}
	if m.Declined > 0 {
		parts = append(parts, fmt.Sprintf("%s declined", plural(m.Declined, "message")))
	}
	return strings.Join(parts, ", ")
}

// leftOut names the nodes that take no mail now.
func leftOut(m *api.Moving) (all []string) {
	for _, to := range m.To {
		if to.LeftOut != "" {
			all = append(all, fmt.Sprintf("node %d: %s", to.Node, to.LeftOut))
		}
	}
	return all
}
