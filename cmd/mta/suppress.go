package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const suppressHelp = `Show and change the list of addresses that get no mail. Without a subcommand,
'mta suppress' lists them.

An entry applies to one tenant's mail or to all mail. The suppression block of the
configuration decides about mail for such an address, and whether bounces add entries.`

func newSuppress(c *cli) *cobra.Command {
	return listGroup("suppress", "the list of addresses that get no mail", suppressHelp, newSuppressList(c),
		newSuppressAdd(c), newSuppressRemove(c), newSuppressCheck(c), newSuppressPending(c), newSuppressImport(c),
		newSuppressExport(c))
}

func newSuppressList(c *cli) *cobra.Command {
	return newList(c, list[api.SuppressionQuery]{
		use: "list", short: "list suppressed addresses",
		long: `List suppressed addresses, by tenant and address. For all of them, see 'mta suppress export'.`,
		example: `  mta suppress list --source bounce --domain example.com
  mta suppress list --tenant acme --json`,
		what: "addresses",
		show: pages[api.SuppressionQuery, api.SuppressionList, api.Suppression]{
			table: listing.Suppressions, row: api.OpSuppressions,
			nothing: func(q api.SuppressionQuery) string {
				if q.SuppressionFilter == (api.SuppressionFilter{}) {
					return "no address is suppressed"
				}
				return "no address on the list matches"
			},
		}.show,
	})
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
		Use: "add ADDRESS...", Short: "add addresses to the list",
		Long: `Add addresses to the list, replacing existing entries. The change is in force when the
command returns, for queued mail too, and survives a restart.`,
		Example: `  mta suppress add someone@example.com --reason "asked us to, ticket 4711"
  mta suppress add someone@example.com --tenant acme --for 90d`,
		Args: some("address"),
	}, func(ctx context.Context, client *api.Client, addresses []string) (api.Suppressed, error) {
		for _, a := range addresses {
			s.Suppressions = append(s.Suppressions, f.entry(a, c.now(), api.SuppressedByOperator))
		}
		return api.OpSuppress.Call(ctx, client, s)
	}, func(done api.Suppressed) error {
		if done.DryRun {
			fmt.Fprintln(c.out, plural(done.Count, "entry")+" would be added or changed")
		} else {
			fmt.Fprintln(c.out, suppressedText(done))
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

// suppressedText describes a change of the list.
func suppressedText(done api.Suppressed) string {
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
		Use: "remove [ADDRESS...]", Short: "remove addresses from the list",
		Long: `Remove addresses from the list: all entries of each, or those of one tenant.
Without an address, remove all entries that match --since, --source, --provider and
--domain, such as those that a failing provider's bounces added.`,
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
			return api.OpUnsuppressMatching.Call(ctx, client,
				api.SuppressionSelection{SuppressionFilter: filter, Intent: in})
		}
		addresses = args
		return api.OpUnsuppress.Call(ctx, client, api.Unsuppress{
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
		Use: "check ADDRESS...", Short: "show whether addresses are suppressed, and why",
		Long: `Show the entries for addresses: all of them or, with --tenant, those that apply to this
tenant's mail, including entries for all mail.`,
		Example: `  mta suppress check someone@example.com
  mta suppress check someone@example.com --tenant acme --json`,
		Args: some("address"),
	}, func(ctx context.Context, client *api.Client, args []string) (api.SuppressionList, error) {
		asked.Addresses = args
		return api.OpCheckSuppressed.Call(ctx, client, asked)
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

const suppressPendingHelp = `Show and decide about entries that were set aside. When a
provider reports far more unknown recipients than usual, the addresses stay off the list
until you accept or drop them, or a delivery or another refusal after the flood decides.
Without a subcommand, 'mta suppress pending' lists them.`

func newSuppressPending(c *cli) *cobra.Command {
	return listGroup("pending", "show and decide about entries that were set aside", suppressPendingHelp,
		newPendingList(c),
		newPendingDecision(c, "accept", "put entries that were set aside on the list",
			`Put entries that were set aside on the list: the
provider was right. If these are all entries of a provider whose flood continues, its
share of unknown recipients counts as usual from now on.`, "accepted", api.OpAcceptPending),
		newPendingDecision(c, "drop", "forget entries that were set aside", `Discard entries that were set aside: the
provider was wrong. An address that does not exist comes on the list when it is refused
again.`, "dropped", api.OpDropPending))
}

func newPendingList(c *cli) *cobra.Command {
	return newList(c, list[api.SuppressionQuery]{
		use: "list", short: "list the entries that were set aside",
		long: `List the entries that were set aside, by tenant and address, after the providers that are doubted.`,
		example: `  mta suppress pending
  mta suppress pending list --provider google --since 2h --json`,
		what: "addresses",
		show: pages[api.SuppressionQuery, api.PendingList, api.Suppression]{
			table: listing.Suppressions, row: api.OpPendingSuppressions,
			before: func(c *cli, l *api.PendingList) {
				for _, d := range l.Providers {
					fmt.Fprintln(c.out, c.doubt(&d))
				}
				if len(l.Providers) > 0 && len(l.Suppressions) > 0 {
					fmt.Fprintln(c.out)
				}
			},
			nothing: func(api.SuppressionQuery) string { return "no entry is set aside" },
		}.show,
	})
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
	return fmt.Sprintf("%s called %d of %d recipients unknown %s UTC; usual: %s", d.Provider, d.Unknown,
		d.Known+d.Unknown, when, percent(d.Usual))
}

func newPendingDecision(c *cli, name, short, long, done string,
	decide api.Op[api.SuppressionSelection, api.PendingDecided]) *cobra.Command {
	var sel api.SuppressionSelection
	cmd := answers(c, &cobra.Command{
		Use: name, Short: short, Long: long,
		Example: "  mta suppress pending " + name + ` --provider google
  mta suppress pending ` + name + " --provider google --since 2h --dry-run",
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.PendingDecided, error) {
		return decide.Call(ctx, client, sel)
	}, func(decided api.PendingDecided) error {
		c.entriesAre(decided.Entries, sel.DryRun, done)
		return nil
	})
	c.addParams(cmd, &sel.SuppressionFilter)
	changeFlags(cmd, &sel.Intent)
	return cmd
}

func newSuppressImport(c *cli) *cobra.Command {
	var f newEntry
	var dryRun bool
	expect := -1
	cmd := &cobra.Command{
		Use: "import [FILE]", Short: "add the addresses of a file to the list",
		Long: `Add addresses to the list, from a file or from standard input, one per line:

  someone@example.com
  someone@example.com,reason
  {"address":"someone@example.com", ...}    as 'mta suppress export' writes it

Empty lines and lines that begin with # are ignored. --tenant, --reason and --for apply to
lines without these values. Invalid lines are reported and skipped; the exit code is then
1. Importing a file again does no harm.`,
		Example: `  mta suppress import unsubscribed.csv --reason unsubscribed
  mta --socket old.sock suppress export | mta suppress import`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			in, shown, err := c.input(append(args, "-")[0])
			if err != nil {
				return err
			}
			defer in.Close()
			client, err := c.client()
			if err != nil {
				return err
			}
			im := suppressImport{c: c, client: client, name: shown, defaults: &f, dryRun: dryRun}
			if expect < 0 || dryRun {
				return im.run(cmd.Context(), in)
			}
			return im.expecting(cmd.Context(), in, expect)
		},
	}
	f.add(cmd)
	cmd.Flags().BoolVarP(&dryRun, "dry-run", "n", false, "only count")
	cmd.Flags().IntVar(&expect, "expect", -1,
		"change nothing unless this `number` of entries would be added or changed")
	return cmd
}

// suppressImport reads entries and hands them to the relay, as many at a time as a request can have.
type suppressImport struct {
	c        *cli
	client   *api.Client
	name     string // of what is read
	defaults *newEntry

	dryRun bool // only count

	batch []api.Suppression
	lines []int // where each of batch stands
	done  api.Suppressed
	bad   int
}

// importBatch is what is sent at once: with the longest reasons it still fits into a request.
const importBatch = 1000

// maxBad is after how many bad lines a file is taken for something else.
const maxBad = 100

// expecting imports what it has counted before, if that is as much as is expected.
func (im *suppressImport) expecting(ctx context.Context, in io.Reader, n int) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("reading %s: %w", im.name, err)
	}
	count := *im
	count.dryRun = true
	if err := count.read(ctx, bytes.NewReader(text)); err != nil {
		return err
	}
	if would := count.done.Added + count.done.Changed; would != n {
		return hinted{fmt.Errorf("this would add or change %d entries, not %d", would, n),
			"nothing was changed: look again, and expect the new count"}
	}
	if count.bad > 0 { // they were reported
		return hinted{fmt.Errorf("%s has %s", im.name, plural(count.bad, "invalid line")),
			"nothing was changed: correct the lines, or leave --expect out"}
	}
	return im.run(ctx, bytes.NewReader(text))
}

// run imports and prints what it did.
func (im *suppressImport) run(ctx context.Context, in io.Reader) error {
	if err := im.read(ctx, in); err != nil {
		return err
	}
	text := suppressedText(im.done)
	if im.dryRun {
		text += " (dry run: nothing has changed)"
	}
	fmt.Fprintln(im.c.out, text)
	im.c.printUnknown(im.done.UnknownTenants)
	if im.bad > 0 {
		return exitError(exitFailed)
	}
	return nil
}

// read hands over all lines.
func (im *suppressImport) read(ctx context.Context, in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		text := strings.TrimSpace(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if text == "" || text[0] == '#' {
			continue
		}
		s, err := im.parse(text)
		if err != nil {
			im.complain(n, err)
		} else {
			im.batch, im.lines = append(im.batch, s), append(im.lines, n)
		}
		if im.bad >= maxBad {
			return fmt.Errorf("%s: more than %d invalid lines; %s", im.name, maxBad, suppressedText(im.done))
		}
		if len(im.batch) == importBatch {
			if err := im.send(ctx); err != nil {
				return err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading %s, line %d: %w; %s", im.name, n+1, err, suppressedText(im.done))
	}
	return im.send(ctx)
}

func (im *suppressImport) complain(line int, err error) {
	im.bad++
	im.c.printError(fmt.Errorf("%s:%d: %w", im.name, line, err))
}

// parse reads a line.
func (im *suppressImport) parse(text string) (api.Suppression, error) {
	if text[0] != '{' {
		address, reason, _ := strings.Cut(text, ",")
		s := im.defaults.entry(unbracketed(address), im.c.now(), api.SuppressedByImport)
		if reason = unquoted(reason); reason != "" {
			s.Reason = reason
		}
		return s, nil
	}
	s := im.defaults.entry("", im.c.now(), api.SuppressedByImport)
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("reading JSON: %w", err)
	}
	return s, nil
}

// unbracketed takes an address out of quotes and angle brackets.
func unbracketed(s string) string {
	s = unquoted(s)
	if inner, ok := strings.CutPrefix(s, "<"); ok {
		return strings.TrimSuffix(inner, ">")
	}
	return s
}

// unquoted takes the quotes of CSV off.
func unquoted(s string) string {
	s = strings.TrimSpace(s)
	if len(s) >= 2 && s[0] == '"' && s[len(s)-1] == '"' {
		return strings.ReplaceAll(s[1:len(s)-1], `""`, `"`)
	}
	return s
}

// send hands over the batch. When the relay refuses it, each line is tried by itself: the error names the number of a
// bad one, and the others enter the list.
func (im *suppressImport) send(ctx context.Context) error {
	batch, lines := im.batch, im.lines
	im.batch, im.lines = nil, nil
	if len(batch) == 0 {
		return nil
	}
	err := im.add(ctx, batch)
	if refused := (*api.Error)(nil); !errors.As(err, &refused) || refused.Status != 400 {
		return err
	}
	for i := range batch {
		err := im.add(ctx, batch[i:i+1])
		if refused := (*api.Error)(nil); errors.As(err, &refused) && refused.Status == 400 {
			im.complain(lines[i], errors.New(refused.Message))
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (im *suppressImport) add(ctx context.Context, some []api.Suppression) error {
	done, err := api.OpSuppress.Call(ctx, im.client,
		api.Suppress{Suppressions: some, Intent: api.Intent{DryRun: im.dryRun}})
	im.done.Added += done.Added
	im.done.Changed += done.Changed
	im.done.Unchanged += done.Unchanged
	for _, t := range done.UnknownTenants {
		if !slices.Contains(im.done.UnknownTenants, t) {
			im.done.UnknownTenants = append(im.done.UnknownTenants, t)
		}
	}
	return err
}

func newSuppressExport(c *cli) *cobra.Command {
	var q api.SuppressionQuery
	cmd := &cobra.Command{
		Use: "export", Short: "write the list as lines of JSON",
		Long: `Write the list, or a part of it, as lines of JSON, for 'mta suppress import' and for other programs.`,
		Example: `  mta suppress export > suppressed.jsonl
  mta suppress export --source bounce | jq -r .address`,
		Args: noArgs,
		RunE: c.asking(func(ctx context.Context, client *api.Client, _ []string) error {
			out := bufio.NewWriter(c.out)
			e := newEncoder(out)
			for q.Limit = api.MaxLimit; ; {
				l, err := api.OpSuppressions.Call(ctx, client, q)
				if err != nil {
					return err
				}
				for _, s := range l.Suppressions {
					if err := e.Encode(s); err != nil {
						return err
					}
				}
				if q.After = l.Next; q.After == "" {
					return out.Flush()
				}
			}
		}),
	}
	c.addParams(cmd, &q)
	return cmd
}
