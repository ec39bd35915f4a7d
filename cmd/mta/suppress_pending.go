package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const suppressPendingHelp = `Show and decide about entries that were set aside. When a provider calls far more
recipients unknown than usual, the relay does not believe it: the addresses stay off the list
until you accept or drop them. A delivery to an address takes it from this list, and so does
another refusal after the flood. Without a subcommand, 'mta suppress pending' lists them.`

func newSuppressPending(c *cli) *cobra.Command {
	list := newPendingList(c)
	g := group("pending", "show and decide about entries that were set aside", list,
		newPendingDecision(c, "accept", "put entries that were set aside on the list", `Put entries that were set aside on the list: the provider was right. When these are all entries
of a provider whose flood is still under way, its share of unknown recipients counts as
usual from now on.`, "accepted", (*api.Client).AcceptPending),
		newPendingDecision(c, "drop", "forget entries that were set aside", `Forget entries that were set aside: the provider was wrong. An address that does not exist
comes on the list when it is refused again.`, "dropped", (*api.Client).DropPending))
	g.Long = suppressPendingHelp
	listByDefault(g, list)
	return g
}

func newPendingList(c *cli) *cobra.Command {
	return newList(c, list[api.SuppressionFilter]{
		use: "list", short: "list the entries that were set aside",
		long: `List the entries that were set aside, by tenant and address, after the providers that are doubted.`,
		example: `  mta suppress pending
  mta suppress pending list --provider google --since 2h --json`,
		what: "addresses", show: pendingList,
	})
}

func pendingList(ctx context.Context, c *cli, client *api.Client, f api.SuppressionFilter, p *pageFlags) error {
	l, err := collect(p, func(l *api.PendingList) (*[]api.Suppression, *string) { return &l.Suppressions, &l.Next },
		func(after string, limit int) (api.PendingList, error) {
			return client.PendingSuppressions(ctx, f, after, limit)
		})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, l)
	}
	for _, d := range l.Providers {
		fmt.Fprintln(c.out, c.doubt(&d))
	}
	if len(l.Providers) > 0 && len(l.Suppressions) > 0 {
		fmt.Fprintln(c.out)
	}
	if err := c.printTable(tableOf(c, listing.Suppressions, l.Suppressions)); err != nil {
		return err
	}
	c.pageFooter(len(l.Suppressions), "address", l.Next, "no entry is set aside")
	return nil
}

// doubt returns why a provider is doubted.
func (c *cli) doubt(d *api.DoubtedProvider) string {
	const day, minute = "2006-01-02", "15:04"
	when := "since " + d.Since.UTC().Format(day+" "+minute)
	if !d.Until.IsZero() {
		until := minute
		if d.Until.UTC().Format(day) != d.Since.UTC().Format(day) {
			until = day + " " + minute
		}
		when = fmt.Sprintf("from %s to %s", d.Since.UTC().Format(day+" "+minute), d.Until.UTC().Format(until))
	}
	return fmt.Sprintf("%s called %d of %d recipients unknown %s UTC; usual: %s", d.Provider, d.Unknown, d.Known+d.Unknown, when, percent(d.Usual))
}

func newPendingDecision(c *cli, name, short, long, done string, decide func(*api.Client, context.Context, api.SuppressionSelection) (api.PendingDecided, error)) *cobra.Command {
	var sel api.SuppressionSelection
	cmd := answers(c, &cobra.Command{
		Use:   name,
		Short: short,
		Long:  long,
		Example: "  mta suppress pending " + name + ` --provider google
  mta suppress pending ` + name + " --provider google --since 2h --dry-run",
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.PendingDecided, error) {
		return decide(client, ctx, sel)
	}, func(decided api.PendingDecided) error {
		c.entriesAre(decided.Entries, sel.DryRun, done)
		return nil
	})
	c.addParams(cmd, &sel.SuppressionFilter)
	changeFlags(cmd, &sel.Intent)
	return cmd
}
