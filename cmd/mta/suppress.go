package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
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
	if err := c.suppressionTable(l.Suppressions); err != nil {
		return err
	}
	nothing := "no address on the list matches"
	if f == (api.SuppressionFilter{}) {
		nothing = "no address is suppressed"
	}
	c.pageFooter(len(l.Suppressions), "address", l.Next, nothing)
	return nil
}

func (c *cli) suppressionTable(list []api.Suppression) error {
	if len(list) == 0 {
		return nil
	}
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "ADDRESS", Shrink: true}, {Title: "TENANT", Shrink: true}, {Title: "SOURCE"}, {Title: "AGE", Right: true}, {Title: "ENDS IN", Right: true}},
		NoteTitle: "REASON",
	}
	for _, s := range list {
		end := "-"
		if !s.Expires.IsZero() {
			end = shortLeft(s.Expires.Sub(c.now()))
		}
		t.Add(s.Reason, s.Address, orDash(s.Tenant), string(s.Source), shortAge(c.now().Sub(s.Added)), end)
	}
	return t.Write(c.out, c.screen)
}

// someAddresses demands arguments.
func someAddresses(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("no address is named")
	}
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
		f      newEntry
		s      api.Suppress
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "add ADDRESS...",
		Short: "add addresses to the list",
		Long: `Add addresses to the list, replacing existing entries. The change is in force when the
command returns, for queued mail too, and survives a restart.`,
		Example: `  mta suppress add someone@example.com --reason "asked us to, ticket 4711"
  mta suppress add someone@example.com --tenant acme --for 90d`,
		Args: someAddresses,
		RunE: func(cmd *cobra.Command, args []string) error {
			for _, a := range args {
				s.Suppressions = append(s.Suppressions, f.entry(a, c.now(), api.SuppressedByOperator))
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			done, err := client.Suppress(cmd.Context(), s)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			if done.DryRun {
				fmt.Fprintln(c.out, entries(done.Count)+" would be added or changed")
			} else {
				fmt.Fprintln(c.out, told(done))
			}
			c.printUnknown(done.UnknownTenants)
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&s.DryRun, "dry-run", "n", false, "only count")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
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
		filter api.SuppressionFilter
		in     api.Intent
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "remove [ADDRESS...]",
		Short: "remove addresses from the list",
		Long: `Take addresses off the list: all entries of each, or those of one tenant. Without an
address, take off all entries that match --since, --source, --provider and --domain: those
that a failing provider's bounces added, for example.`,
		Example: `  mta suppress remove someone@example.com
  mta suppress remove someone@example.com --tenant acme
  mta suppress remove --since 2h --source bounce --provider google --dry-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			matching := api.SuppressionSelection{SuppressionFilter: filter, Intent: in}
			wide := filter
			wide.Tenant = nil
			switch named := wide != (api.SuppressionFilter{}); {
			case len(args) == 0 && !named:
				return usagef("name addresses, or --since, --source, --provider or --domain")
			case len(args) > 0 && named:
				return usagef("with addresses there is only --tenant")
			case len(args) > 0:
				return c.unsuppress(cmd.Context(), api.Unsuppress{Intent: in, SuppressedAddresses: api.SuppressedAddresses{Addresses: args, Tenant: filter.Tenant}}, asJSON)
			}
			return c.unsuppressMatching(cmd.Context(), matching, asJSON)
		},
	}
	c.addParams(cmd, &filter)
	changeFlags(cmd, &in)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) unsuppress(ctx context.Context, a api.Unsuppress, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	done, err := client.Unsuppress(ctx, a)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.out, done)
	}
	if done.Removed == 0 {
		return hinted{fmt.Errorf("%s not on the list", isOrAre(a.Addresses)), "to list the entries: mta suppress"}
	}
	if done.DryRun {
		fmt.Fprintln(c.out, entries(done.Removed)+" would be removed")
	} else {
		fmt.Fprintln(c.out, entries(done.Removed)+" removed")
	}
	return nil
}

func (c *cli) unsuppressMatching(ctx context.Context, sel api.SuppressionSelection, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	done, err := client.UnsuppressMatching(ctx, sel)
	if err != nil {
		return err
	}
	switch {
	case asJSON:
		return writeJSON(c.out, done)
	case sel.DryRun:
		fmt.Fprintln(c.out, entries(done.Removed)+" would be removed")
	default:
		fmt.Fprintln(c.out, entries(done.Removed)+" removed")
	}
	return nil
}

// entries counts them in words.
func entries(n int) string {
	if n == 1 {
		return "1 entry"
	}
	return fmt.Sprintf("%d entries", n)
}

func isOrAre(args []string) string {
	if len(args) == 1 {
		return args[0] + " is"
	}
	return strings.Join(args, ", ") + " are"
}

func newSuppressCheck(c *cli) *cobra.Command {
	var (
		asked  api.SuppressedAddresses
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "check ADDRESS...",
		Short: "show whether addresses are suppressed, and why",
		Long: `Show the entries for addresses: all of them or, with --tenant, those that apply to this
tenant's mail, including entries for all mail.`,
		Example: `  mta suppress check someone@example.com
  mta suppress check someone@example.com --tenant acme --json`,
		Args: someAddresses,
		RunE: func(cmd *cobra.Command, args []string) error {
			asked.Addresses = args
			client, err := c.client()
			if err != nil {
				return err
			}
			l, err := client.CheckSuppressed(cmd.Context(), asked)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, l)
			}
			if len(l.Suppressions) == 0 {
				fmt.Fprintf(c.out, "%s not suppressed\n", isOrAre(args))
				return nil
			}
			return c.suppressionTable(l.Suppressions)
		},
	}
	c.addParams(cmd, &asked)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
