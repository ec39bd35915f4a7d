package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

func newQueueHold(c *cli) *cobra.Command {
	return newQueueChange(c, api.Hold, "held", "make no attempts until released", `Hold the selected recipients: no attempts until they are released. An attempt in progress
continues; recipients that it does not deliver are held when it ends, and are counted
separately. Held mail expires like all mail.`)
}

func newQueueRelease(c *cli) *cobra.Command {
	return newQueueChange(c, api.Release, "released", "release held messages", `Undo a hold: the selected recipients are tried as before.`)
}

func newQueueRetry(c *cli) *cobra.Command {
	return newQueueChange(c, api.Retry, "due now", "try now", `Try the selected recipients now, regardless of the time of their next attempt, within the
limits of their sites. The command names any remaining obstacle, such as a suspension or
the retry time of a host that does not answer; --now removes it. Scheduled mail keeps its
time, unless --scheduled is given.`)
}

func newQueueBounce(c *cli) *cobra.Command {
	return newQueueChange(c, api.Bounce, "bounced", "give up and send a report to the sender", `Give up the selected recipients. Their senders get a report, as if the mail had been
refused.`)
}

func newQueueRemove(c *cli) *cobra.Command {
	return newQueueChange(c, api.Remove, "removed", "give up without a report", `Remove the selected recipients from the queue, without a report to the sender.

With --receipt, remove exactly what another relay has taken, as the receipt of
'mta queue import' says. What has left the queue meanwhile is counted.`)
}

func newQueueReroute(c *cli) *cobra.Command {
	return newQueueChange(c, api.Reroute, "rerouted", "send by another pool or route", `Send the selected recipients from the sources of another pool (--pool), or by the route of
a domain block in the configuration (--route), such as a smarthost, until they have left
the queue. They are due immediately by the new way; held and scheduled mail stays so. An
attempt in progress continues, and counts if it delivers.

--own ends this: the mail goes its own way again. If a reload removes the pool or the
route, the mail goes its own way, too; 'mta explain ID' says so. Sites that have suspended
one pool's sources take the mail of another's.`)
}

// newQueueChange makes the command of an action; done is the word for what has become of the
// recipients.
func newQueueChange(c *cli, action api.Action, done, short, long string) *cobra.Command {
	var (
		filters filterFlags
		change  = api.Change{Action: action}
		asJSON  bool
		receipt string
	)
	cmd := &cobra.Command{
		Use:   string(action) + " [ID...]",
		Short: short,
		Long: long + `

There is no confirmation: --dry-run counts and changes nothing. To select the whole
queue, use --all.`,
		ValidArgsFunction: c.completeIDs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			var err error
			if change.Filter, err = filters.with(ids); err != nil {
				return err
			}
			if receipt != "" {
				if !change.Filter.Empty() || change.All {
					return usagef("--receipt says what is meant: leave out ids, filters and --all")
				}
				return c.removeByReceipt(cmd.Context(), receipt, change.Intent, asJSON)
			}
			if change.Filter.Empty() && !change.All {
				return hinted{usagef("no message is named and no filter given"), "to mean the whole queue, add: --all"}
			}
			if change.All && !change.Filter.Empty() {
				return usagef("--all means everything: leave out either it or the ids and filters")
			}
			if way := change.Reroutes != (api.Reroutes{}); action == api.Reroute && way == change.Own {
				return hinted{usagef("want a way for the mail"), "as in: --pool NAME or --route DOMAIN; --own ends an earlier reroute"}
			}
			return c.queueChange(cmd.Context(), change, done, asJSON)
		},
	}
	c.addParams(cmd, &filters.filter)
	cmd.Flags().BoolVar(&change.All, "all", false, "everything in the queue")
	changeFlags(cmd, &change.Intent)
	if action == api.Retry {
		cmd.Flags().BoolVar(&change.Now, "now", false, "remove obstacles: holds, suspensions of sites and hosts, retry times of hosts")
		cmd.Flags().BoolVar(&change.Scheduled, "scheduled", false, "also release scheduled mail before its time")
	}
	if action == api.Remove {
		cmd.Flags().StringVar(&receipt, "receipt", "", "remove what another relay has, as this `file` says; - is standard input")
	}
	if action == api.Reroute {
		cmd.Flags().StringVar(&change.Pool, "pool", "", "leave from the sources of this `pool`")
		cmd.Flags().StringVar(&change.Route, "route", "", "take the route that the configuration has for this `domain`")
		cmd.Flags().BoolVar(&change.Own, "own", false, "end a reroute")
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) queueChange(ctx context.Context, change api.Change, done string, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	result, err := client.Change(ctx, change)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.out, result)
	}
	if change.DryRun {
		done = "would be " + done
	}
	if n := result.Recipients - result.Later; n > 0 || result.Later == 0 {
		fmt.Fprintf(c.out, "%s %s\n", plural(n, "recipient"), done)
	}
	if result.Later > 0 {
		fmt.Fprintf(c.out, "%s on a connection: %s\n", plural(result.Later, "recipient"), whenItEnds[change.Action])
	}
	if why := nothingDone[change.Action]; result.Recipients == 0 && result.Scheduled == 0 && len(result.Obstacles) == 0 && why != "" {
		fmt.Fprintln(c.err, why)
	}
	c.inTheWay(&result, change.Now)
	return nil
}

// inTheWay prints what keeps mail from leaving though it is due.
func (c *cli) inTheWay(result *api.Changed, removed bool) {
	if n := result.Scheduled; n > 0 {
		fmt.Fprintf(c.err, "%s scheduled for later, unchanged; to release scheduled mail too: --scheduled\n", plural(n, "recipient"))
	}
	removable := false
	for _, o := range result.Obstacles {
		where, until, remedy := "", "", ""
		if o.Site != "" {
			where = " for " + o.Site
		}
		if !o.Until.IsZero() {
			until = ", until " + moment(o.Until, c.now())
		}
		if removable = removable || o.Remedy == "" && !o.Stays; o.Remedy != "" {
			remedy = "; to end that: " + draw.Clean(o.Remedy)
		}
		fmt.Fprintf(c.err, "%s%s blocked: %s%s\n", plural(o.Recipients, "recipient"), draw.Clean(where), draw.Clean(o.Why), until+remedy)
	}
	switch {
	case result.Ended > 0:
		fmt.Fprintf(c.err, "%s ended\n", plural(result.Ended, "obstacle"))
	case removable && !removed:
		fmt.Fprintln(c.err, "to end them: --now")
	}
}

// whenItEnds says what becomes of recipients that are on a connection.
var whenItEnds = map[api.Action]string{
	api.Hold:    "held when the attempt ends, unless it delivers",
	api.Bounce:  "bounced when the attempt ends, unless it delivers",
	api.Remove:  "removed when the attempt ends",
	api.Reroute: "rerouted when the attempt ends, unless it delivers",
	api.Retry:   "tried again at once if the attempt fails",
}

// nothingDone says why an action found nothing to do, though what was meant may be in the queue.
var nothingDone = map[api.Action]string{
	api.Hold:    "all matching recipients are already held, or final",
	api.Reroute: "no matching recipient can be rerouted; with --own: none is",
	api.Release: "no matching recipient is held",
	api.Retry:   "no matching recipient waits for its time; held ones are tried after 'mta queue release', or with --now",
}
