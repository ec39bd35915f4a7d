package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const sitesHelp = `List the sites that mail goes to, and suspend them. A site is the set of hosts that
serve a domain; it usually has the name of its first host. Without a subcommand,
'mta sites' lists them.`

func newSites(c *cli) *cobra.Command {
	list := newSitesList(c)
	g := group("sites", "list sites, suspend and resume them", list, newSitesSuspend(c), newSitesResume(c))
	g.Long = sitesHelp
	listByDefault(g, list)
	return g
}

// listByDefault makes a group without a command below it the same as its listing, flags and arguments included.
// A word that is like a command is taken for a mistyped one.
func listByDefault(g, list *cobra.Command) {
	if list.Args == nil { // the listing takes names
		g.Use = strings.Replace(list.Use, list.Name(), g.Name(), 1)
		commandsOnly := g.Args
		g.Args = func(cmd *cobra.Command, args []string) error {
			if err := commandsOnly(cmd, args); errors.As(err, new(hinted)) {
				return err
			}
			return nil
		}
	}
	g.Flags().AddFlagSet(list.Flags())
	g.ValidArgsFunction = list.ValidArgsFunction
	g.RunE = func(cmd *cobra.Command, args []string) error {
		list.SetContext(cmd.Context())
		return list.RunE(list, args)
	}
}

// pageFlags are the flags of a listing in pages.
type pageFlags struct {
	limit  int
	after  string
	asJSON bool
}

func (p *pageFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&p.limit, "limit", api.DefaultLimit, what+" on the page; 0: all")
	cmd.Flags().StringVar(&p.after, "after", "", "continue after the previous page (`cursor`)")
	cmd.Flags().BoolVar(&p.asJSON, "json", false, "print JSON")
}

func (p *pageFlags) check() error {
	if p.limit < 0 {
		return usagef("--limit can't be negative")
	}
	return nil
}

// collect asks for pages until there are as many as the flags want.
func collect[T any](p *pageFlags, ask func(after string, limit int) ([]T, string, error)) (all []T, next string, err error) {
	all, next = []T{}, p.after
	for {
		n := api.MaxLimit
		if p.limit > 0 {
			n = min(p.limit-len(all), n)
		}
		some, more, err := ask(next, n)
		if err != nil {
			return nil, "", err
		}
		all = append(all, some...)
		if next = more; next == "" || len(all) == p.limit {
			return all, next, nil
		}
	}
}

// pageFooter prints on standard error what is not shown.
func (c *cli) pageFooter(shown int, what, next string) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %q\n", plural(shown, what), next)
	case shown == 0:
		fmt.Fprintf(c.err, "no %s is known or matches\n", what)
	}
}

const sitesListHelp = `List the known sites, the longest queue first. QUEUED counts the recipients in the queue
for a site, in any state. CONNS shows the connections to it, and the number it may have
so far: each site begins with one, and gets more as it accepts mail (slow start). Of the
queued recipients, RUNNING are on connections, WAITING wait for one, and DEFERRED wait
for their retry time. USUAL/s is the usual rate of messages, LAST the time since it last
accepted one.
` + sinceStart + `

NAME is a site's name; .example.com means all names with that ending.`

func newSitesList(c *cli) *cobra.Command {
	var (
		f api.SiteFilter
		p pageFlags
	)
	cmd := &cobra.Command{
		Use:   "list [NAME...]",
		Short: "list sites",
		Long:  sitesListHelp,
		Example: `  mta sites list --busy
  mta sites list --suspended --json
  mta sites list .protection.outlook.com`,
		RunE: func(cmd *cobra.Command, names []string) error {
			if err := p.check(); err != nil {
				return err
			}
			f.Names = names
			return c.sitesList(cmd.Context(), f, &p)
		},
	}
	p.add(cmd, "sites")
	cmd.Flags().StringVar(&f.Provider, "provider", "", "sites of this `provider`")
	cmd.Flags().BoolVar(&f.Suspended, "suspended", false, "only suspended sites")
	cmd.Flags().BoolVar(&f.Busy, "busy", false, "only sites with mail or connections")
	cmd.Flags().BoolVar(&f.Queued, "queued", false, "only sites with queued mail")
	cmd.Flags().BoolVar(&f.Failing, "failing", false, "only sites whose last recipient failed")
	addOrder(cmd, &f.Order)
	cmd.ValidArgsFunction = c.complete(c.siteNames)
	return c.watchable(cmd)
}

func (c *cli) sitesList(ctx context.Context, f api.SiteFilter, p *pageFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	sites, next, err := collect(p, func(after string, limit int) ([]api.Site, string, error) {
		l, err := client.Sites(ctx, f, after, limit)
		return l.Sites, l.Next, err
	})
	if err != nil {
		return err
	}
	if filtered := f.Provider != "" || f.Suspended || f.Busy || f.Queued || f.Failing; len(sites) == 0 && len(f.Names) > 0 && !filtered && p.after == "" {
		return hinted{fmt.Errorf("no known site has the name %s", strings.Join(f.Names, ", ")),
			"to list the known sites: mta sites; a site has the name of its first host, and 'mta explain DOMAIN' shows the site of a domain"}
	}
	if p.asJSON {
		return writeJSON(c.out, api.SiteList{Sites: sites, Next: next})
	}
	t := &draw.Table{
		Columns: append([]draw.Column{
			{Title: "SITE", Shrink: true}, {Title: "PROVIDER"}, {Title: "QUEUED", Right: true}, {Title: "CONNS", Right: true},
			{Title: "RUNNING", Right: true, Spare: true}, {Title: "WAITING", Right: true, Spare: true}, {Title: "DEFERRED", Right: true},
		}, append(slices.Clone(tallyColumns), draw.Column{Title: "USUAL/s", Right: true, Spare: true}, draw.Column{Title: "LAST", Right: true, Spare: true})...),
		NoteTitle: "REASON",
	}
	for _, s := range sites {
		cells := []string{s.Name, orDash(s.Provider), fmt.Sprint(s.Queued), fmt.Sprintf("%d/%d", s.Connections, s.SlowStart),
			fmt.Sprint(s.Running), fmt.Sprint(s.Waiting + s.Parked), fmt.Sprint(s.Deferred)}
		cells = append(cells, tallyCells(&s.Tally)...)
		t.Add(notes(c.siteNote(&s), c.lastError(&s.Tally)), append(cells, orNone(s.Usual), c.since(s.LastGood))...)
	}
	return c.showPage(t, len(sites), "site", next)
}

// siteNote is what holds back mail for a site.
func (c *cli) siteNote(s *api.Site) string {
	var notes []string
	for _, a := range s.Actions {
		notes = append(notes, c.action(a))
	}
	switch {
	case s.Why == "" || len(notes) > 0:
	case s.Waiting+s.Parked > 0:
		notes = append(notes, "waits: "+s.Why+c.until(s.Until))
	default:
		notes = append(notes, "can't be tried: "+s.Why+c.until(s.Until))
	}
	return strings.Join(notes, "; ")
}

func (c *cli) action(a api.SiteAction) string {
	from := ""
	if a.Source != "" {
		from = " from " + a.Source
	}
	return a.What + from + " for " + shortLeft(a.End.Sub(c.now())) + " more: " + oneLine(a.Reason)
}

// until says in how long something ends, "" when that is not known or no time at all.
func (c *cli) until(t time.Time) string {
	if d := t.Sub(c.now()); !t.IsZero() && d >= time.Second {
		return " (for " + shortLeft(d) + " more)"
	}
	return ""
}

// since returns how long ago something was.
func (c *cli) since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return shortAge(c.now().Sub(t))
}

// orNone writes a rate, none as a dash.
func orNone(rate float64) string {
	if rate == 0 {
		return "-"
	}
	return short.Rate(rate)
}

const sitesSuspendHelp = `Stop all mail to a site for a time. Transactions in progress finish; waiting mail expires
as usual.

SITE is the name of a site, or a domain that it serves. A site can serve many domains: the
output counts and names the known ones. 'mta pause domain' stops a single one of them.`

func newSitesSuspend(c *cli) *cobra.Command {
	var (
		s      api.Suspend
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:     "suspend SITE --for TIME",
		Short:   "stop mail to a site for a time",
		Long:    sitesSuspendHelp,
		Example: `  mta sites suspend example.com --for 30m --reason "postmaster asked us to"`,
		Args:    oneName("a site or domain"),
		RunE: func(cmd *cobra.Command, args []string) error {
			s.Site = args[0]
			if s.For <= 0 {
				return hinted{usagef("a duration is required"), "as in: --for 30m"}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			done, err := client.Suspend(cmd.Context(), s)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			if c.wouldChange(done.Effect, "site") {
				return nil
			}
			fmt.Fprintf(c.out, "nothing is sent to %s%s until %s\n", draw.Clean(done.Site), fromSource(s.Source), moment(done.Until, c.now()))
			if done.Domains > 1 {
				fmt.Fprintf(c.err, "the site serves %s, and mail for all of them waits: %s\nto stop one of them alone: mta pause domain NAME\n",
					plural(done.Domains, "domain"), draw.Clean(someOf(done.Some, done.Domains)))
			}
			return nil
		},
	}
	cmd.Flags().Var((*ageFlag)(&s.For), "for", "the duration, such as 90s, 15m, 2h; 30d at most")
	cmd.Flags().StringVar(&s.Source, "source", "", "only mail from this `source`")
	changeFlags(cmd, &s.Intent)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = c.complete(c.siteNames)
	return cmd
}

// someOf lists the first of n names.
func someOf(names []string, n int) string {
	text := strings.Join(names, ", ")
	if more := n - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// fromSource names the one source that a suspension is of, if it is of one.
func fromSource(source string) string {
	if source == "" {
		return ""
	}
	return " from " + source
}

func newSitesResume(c *cli) *cobra.Command {
	var (
		r      api.Resume
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "resume SITE",
		Short: "end suspensions of a site",
		Long: `End all suspensions of a site, including automatic ones.

SITE is the name of a site, or a domain that it serves.`,
		Args: oneName("a site or domain"),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			r.Site = args[0]
			done, err := client.Resume(cmd.Context(), r)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			if c.wouldChange(done.Effect, "suspension") {
				return nil
			}
			fmt.Fprintf(c.out, "%s of %s ended\n", plural(done.Ended, "suspension"), draw.Clean(done.Site))
			return nil
		},
	}
	changeFlags(cmd, &r.Intent)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = c.complete(c.siteNames)
	return cmd
}

// oneName wants exactly one argument.
func oneName(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usagef("want the name of %s, got %d", what, len(args))
		}
		return nil
	}
}
