package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const suppressHelp = `Show and change the list of addresses that get no mail. Without a subcommand,
'mta suppress' lists them.

An entry applies to one tenant's mail or to all mail. The suppression block of the
configuration decides what happens to mail for such an address, and whether bounces add
addresses to the list.`

func newSuppress(c *cli) *cobra.Command {
	list := newSuppressList(c)
	g := group("suppress", "the list of addresses that get no mail", list,
		newSuppressAdd(c), newSuppressRemove(c), newSuppressCheck(c), newSuppressPending(c), newSuppressImport(c), newSuppressExport(c))
	g.Long = suppressHelp
	listByDefault(g, list)
	return g
}

func newSuppressList(c *cli) *cobra.Command {
	return newList(c, list[api.SuppressionFilter]{
		use: "list", short: "list suppressed addresses",
		long: `List suppressed addresses, by tenant and address. For all of them, see 'mta suppress export'.`,
		example: `  mta suppress list --source bounce --domain example.com
  mta suppress list --tenant acme --json`,
		what: "addresses", show: suppressList,
	})
}

func suppressList(ctx context.Context, c *cli, client *api.Client, f api.SuppressionFilter, p *pageFlags) error {
	l, err := collect(p, func(l *api.SuppressionList) (*[]api.Suppression, *string) { return &l.Suppressions, &l.Next },
		func(after string, limit int) (api.SuppressionList, error) {
			return client.Suppressions(ctx, f, after, limit)
		})
	if err != nil {
		return err
	}
	if p.asJSON {
		return writeJSON(c.out, l)
	}
	if err := c.printTable(tableOf(c, listing.Suppressions, l.Suppressions)); err != nil {
		return err
	}
	nothing := "no address on the list matches"
	if f == (api.SuppressionFilter{}) {
		nothing = "no address is suppressed"
	}
	c.pageFooter(len(l.Suppressions), "address", l.Next, nothing)
	return nil
}

// newEntry are the flags of what is added to the list.
type newEntry struct {
	tenant  string
	lasting api.Age
}

func (f *newEntry) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "for this `tenant`'s mail only (default: all mail)")
	reasonFlag(cmd)
	cmd.Flags().Var((*ageFlag)(&f.lasting), "for", "the duration, such as 90d (`age`; default: forever)")
}

// entry makes an entry for an address.
func (f *newEntry) entry(address string, now time.Time, source api.SuppressionSource) api.Suppression {
	s := api.Suppression{Address: address, Tenant: f.tenant, Source: source}
	if f.lasting > 0 {
		s.Expires = now.Add(time.Duration(f.lasting))
	}
	return s
}

func newSuppressAdd(c *cli) *cobra.Command {
	var (
		f newEntry
		s api.Suppress
	)
	cmd := answers(c, &cobra.Command{
		Use:   "add ADDRESS...",
		Short: "add addresses to the list",
		Long: `Add addresses to the list, replacing existing entries. The change is in force when the
command returns, for queued mail too, and survives a restart.`,
		Example: `  mta suppress add someone@example.com --reason "asked us to, ticket 4711"
  mta suppress add someone@example.com --tenant acme --for 90d`,
		Args: some("address"),
	}, func(ctx context.Context, client *api.Client, addresses []string) (api.Suppressed, error) {
		for _, a := range addresses {
			s.Suppressions = append(s.Suppressions, f.entry(a, c.now(), api.SuppressedByOperator))
		}
		return client.Suppress(ctx, s)
	}, func(done api.Suppressed) error {
		if done.DryRun {
			fmt.Fprintln(c.out, plural(done.Count, "entry")+" would be added or changed")
		} else {
			fmt.Fprintln(c.out, told(done))
		}
		c.printUnknown(done.UnknownTenants)
		return nil
	})
	f.add(cmd)
	cmd.Flags().BoolVarP(&s.DryRun, "dry-run", "n", false, "only count")
	return cmd
}

// printUnknown prints which tenants nobody is.
func (c *cli) printUnknown(tenants []string) {
	for _, t := range tenants {
		fmt.Fprintf(c.err, "no tenant %q is configured: its entries have no effect until there is one\n", t)
	}
}

// told returns what was done to the list.
func told(done api.Suppressed) string {
	text := plural(done.Added, "address") + " suppressed"
	if done.Changed > 0 {
		text += fmt.Sprintf(", %d already listed and changed", done.Changed)
	}
	if done.Unchanged > 0 {
		text += fmt.Sprintf(", %d unchanged", done.Unchanged)
	}
	return text
}

func newSuppressRemove(c *cli) *cobra.Command {
	var (
		filter    api.SuppressionFilter
		in        api.Intent
		addresses []string
	)
	cmd := answers(c, &cobra.Command{
		Use:   "remove [ADDRESS...]",
		Short: "remove addresses from the list",
		Long: `Take addresses off the list: all entries of each, or those of one tenant. Without an
address, take off all entries that match --since, --source, --provider and --domain: those
that a failing provider's bounces added, for example.`,
		Example: `  mta suppress remove someone@example.com
  mta suppress remove someone@example.com --tenant acme
  mta suppress remove --since 2h --source bounce --provider google --dry-run`,
	}, func(ctx context.Context, client *api.Client, args []string) (api.Unsuppressed, error) {
		wide := filter
		wide.Tenant = nil
		switch named := wide != (api.SuppressionFilter{}); {
		case len(args) == 0 && !named:
			return api.Unsuppressed{}, usagef("name addresses, or --since, --source, --provider or --domain")
		case len(args) > 0 && named:
			return api.Unsuppressed{}, usagef("with addresses there is only --tenant")
		case len(args) == 0:
			return client.UnsuppressMatching(ctx, api.SuppressionSelection{SuppressionFilter: filter, Intent: in})
		}
		addresses = args
		return client.Unsuppress(ctx, api.Unsuppress{
			Intent: in, SuppressedAddresses: api.SuppressedAddresses{Addresses: args, Tenant: filter.Tenant},
		})
	}, func(done api.Unsuppressed) error {
		if done.Removed == 0 && addresses != nil {
			return hinted{fmt.Errorf("%s not on the list", isOrAre(addresses)), "to list the entries: mta suppress"}
		}
		c.entriesAre(done.Removed, done.DryRun, "removed")
		return nil
	})
	c.addParams(cmd, &filter)
	changeFlags(cmd, &in)
	return cmd
}

// entriesAre prints how many entries something was done to.
func (c *cli) entriesAre(n int, dry bool, done string) {
	if dry {
		done = "would be " + done
	}
	fmt.Fprintln(c.out, plural(n, "entry"), done)
}

func isOrAre(args []string) string {
	if len(args) == 1 {
		return args[0] + " is"
	}
	return strings.Join(args, ", ") + " are"
}

func newSuppressCheck(c *cli) *cobra.Command {
	var asked api.SuppressedAddresses
	cmd := answers(c, &cobra.Command{
		Use:   "check ADDRESS...",
		Short: "show whether addresses are suppressed, and why",
		Long: `Show the entries for addresses: all of them or, with --tenant, those that apply to this
tenant's mail, including entries for all mail.`,
		Example: `  mta suppress check someone@example.com
  mta suppress check someone@example.com --tenant acme --json`,
		Args: some("address"),
	}, func(ctx context.Context, client *api.Client, args []string) (api.SuppressionList, error) {
		asked.Addresses = args
		return client.CheckSuppressed(ctx, asked)
	}, func(l api.SuppressionList) error {
		if len(l.Suppressions) == 0 {
			fmt.Fprintf(c.out, "%s not suppressed\n", isOrAre(asked.Addresses))
			return nil
		}
		return c.printTable(tableOf(c, listing.Suppressions, l.Suppressions))
	})
	c.addParams(cmd, &asked)
	return cmd
}
