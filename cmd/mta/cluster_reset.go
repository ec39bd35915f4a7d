package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/owner"
	"example.org/mta/operator/api"
	"example.org/mta/operator/everywhere"
)

func newClusterReset(c *cli) *cobra.Command {
	r := resetting{c: c}
	cmd := &cobra.Command{
		Use: "reset", Short: "have all nodes take part again after the database has lost writes",
		Long: `Have all nodes take part again after the database has lost writes: a server was promoted that
lacked some that were acknowledged, or a backup was restored. Each node that finds this takes
no part: mail under shared limits waits there, and requests with a key get a 503. Correct
what has lost them first. No relay is stopped or restarted.

Each node gives the keys of clients' requests to all others, so that what the database has
lost of these is not accepted twice. Then the nodes exchange anew all that they know, and
nobody has any of the shared limits until all that was granted has ended, in 3 minutes. The
command shows how far that is. --no-wait and an interrupt end the command alone.

--dry-run shows what each node has found. A node that does not answer can't give its keys:
the command is refused, unless --accept is given or the node is forgotten.`,
		Example: `  mta cluster reset --dry-run
  mta cluster reset --reason "failover to db2, which lagged"`,
		Args: noArgs,
	}
	cmd.Flags().BoolVar(&r.noWait, "no-wait", false, "don't wait until the limits are shared again")
	cmd.Flags().BoolVar(&r.accept, "accept", false,
		"go on although a node does not answer or get all keys, or none has found lost writes")
	changeFlags(cmd, &r.in)
	return answers(c, cmd, r.run, c.wasReset)
}

// resetting is the command.
type resetting struct {
	c              *cli
	in             api.Intent
	noWait, accept bool
}

// nodeFound is what a node has found of the database.
type nodeFound struct {
	Node  int    `json:"node"`
	Lost  string `json:"lost_writes,omitempty"` // absent: nothing
	Error string `json:"error,omitempty"`       // it has not answered
}

// resetDone is the outcome.
type resetDone struct {
	Nodes  []nodeFound `json:"nodes"`
	DryRun bool        `json:"dry_run,omitempty"`
	Reset  bool        `json:"reset"`             // the nodes begin anew
	Shared bool        `json:"shared"`            // all limits are shared again
	Lacks  string      `json:"lacks,omitempty"`   // what was lacking when the command gave up waiting
	Keys   []string    `json:"without,omitempty"` // which nodes have not got the keys of which, and why
}

func (d resetDone) lacks() error {
	if d.Lacks != "" {
		return exitError(exitFailed)
	}
	return nil
}

func (r *resetting) run(ctx context.Context, client *api.Client, _ []string) (done resetDone, err error) {
	done.DryRun = r.in.DryRun
	nodes, err := everywhere.Nodes(ctx, client)
	if err != nil {
		return done, err
	}
	var away []string
	lost := false
	for _, n := range nodes {
		s, err := api.OpCluster.Call(api.AtNode(ctx, n), client, api.None{})
		found := nodeFound{Node: n, Lost: s.Lost}
		if err != nil {
			found.Error = everywhere.Failure{Node: n, Err: err}.Error()
			away = append(away, found.Error)
		}
		lost = lost || s.Lost != ""
		done.Nodes = append(done.Nodes, found)
	}
	switch {
	case r.in.DryRun:
		return done, nil
	case !lost && !r.accept:
		return done, hinted{errors.New("no node that answers has found that the database has lost writes"),
			"'mta cluster status' has what is wrong"}
	case len(away) > 0 && !r.accept:
		return done, hinted{fmt.Errorf("%s: what its clients send again may be taken twice",
			strings.Join(away, "; ")),
			"start that relay, or 'mta cluster forget' the node if it is gone for good; or --accept"}
	}
	for _, found := range done.Nodes {
		if found.Error != "" {
			continue
		}
		without, err := r.keys(ctx, client, found.Node)
		if err != nil {
			return done, err
		}
		done.Keys = append(done.Keys, without...)
	}
	if len(done.Keys) > 0 && !r.accept {
		return done, hinted{fmt.Errorf("the keys of clients' requests can't be given to all nodes: %s",
			strings.Join(done.Keys, "; ")), "see to that; or --accept: what clients send again there is taken twice"}
	}
	if _, err := api.OpReset.Call(ctx, client, api.Reset{Intent: r.in}); err != nil {
		return done, err
	}
	if done.Reset = true; !r.noWait {
		done.Lacks, err = r.watch(ctx, client, nodes)
		done.Shared = err == nil && done.Lacks == ""
	}
	return done, err
}

// keys has a node give the keys that it has to all others, and returns which have not got them.
func (r *resetting) keys(ctx context.Context, client *api.Client, node int) (without []string, err error) {
	defer r.c.waiting("")
	for {
		r.c.waiting(fmt.Sprintf("node %d gives the keys of clients' requests to the others", node))
		done, err := api.OpReset.Call(api.AtNode(ctx, node), client, api.Reset{Keys: true})
		if err != nil {
			return nil, err
		}
		for _, n := range done.Without {
			without = append(without, fmt.Sprintf("those of node %d to node %d: %s", node, n.Node, n.LeftOut))
		}
		if done.Done {
			return without, nil
		}
	}
}

// resetLate is how much longer than a term the command waits: shards are taken some at a time.
const resetLate = time.Minute

// watch waits until all shards are owned by nodes that have followed the reset, and returns what lacks when that takes
// too long.
func (r *resetting) watch(ctx context.Context, client *api.Client, nodes []int) (lacks string, err error) {
	defer r.c.waiting("")
	began := time.Now()
	for n := 1; ; n++ {
		shards, waits := 0, []string(nil)
		for _, node := range nodes {
			s, err := api.OpCluster.Call(api.AtNode(ctx, node), client, api.None{})
			switch {
			case err != nil:
				waits = append(waits, everywhere.Failure{Node: node, Err: err}.Error())
			case s.Lost != "" || !s.Takes:
				waits = append(waits, fmt.Sprintf("node %d takes no part yet", node))
			}
			shards += s.Shards
		}
		left := membership.Term.Waits() - time.Since(began)
		switch {
		case len(waits) == 0 && shards >= owner.Shards:
			return "", nil
		case left < -resetLate:
			waits = append(waits, fmt.Sprintf("%d of %d shards are owned", shards, owner.Shards))
			return strings.Join(waits, "; "), nil
		}
		line := fmt.Sprintf("limits are shared in %v: %d of %d shards", max(left, 0).Round(time.Second), shards,
			owner.Shards)
		if len(waits) > 0 {
			line += "; " + strings.Join(waits, "; ")
		}
		if r.c.waiting(line); !r.c.screen.TTY && n%lineEvery == 0 {
			fmt.Fprintln(r.c.err, line)
		}
		select {
		case <-time.After(movingPoll):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// wasReset shows the outcome.
func (c *cli) wasReset(d resetDone) error {
	if !d.Reset {
		for _, n := range d.Nodes {
			switch {
			case n.Error != "":
				fmt.Fprintln(c.out, n.Error)
			case n.Lost != "":
				fmt.Fprintf(c.out, "node %d: %s\n", n.Node, n.Lost)
			default:
				fmt.Fprintf(c.out, "node %d: has found nothing lost\n", n.Node)
			}
		}
		return nil
	}
	for _, what := range d.Keys {
		fmt.Fprintf(c.err, "the keys of clients' requests are not at all nodes: %s\n", what)
	}
	switch {
	case d.Shared:
		fmt.Fprintln(c.out, "all nodes take part again, and share the limits")
	case d.Lacks != "":
		fmt.Fprintf(c.err, "problem: %s\n", d.Lacks)
	default:
		fmt.Fprintln(c.out, "all nodes take part again as they see the reset; limits are shared in 3 minutes")
	}
	return nil
}
