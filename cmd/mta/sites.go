package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
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

const sitesListHelp = `List the known sites, the longest queue first. QUEUED counts the recipients in the queue
for a site, in any state. CONNS shows the connections to it, and the number it may have
so far: each site begins with one, and gets more as it accepts mail (slow start). Of the
queued recipients, ACTIVE are on connections, WAITING wait for one, and DEFERRED wait
for their retry time. USUAL/s is the usual rate of messages, LAST the time since it last
accepted one.
` + sinceStart + `

NAME is a site's name; .example.com means all names with that ending.`

func newSitesList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.SiteFilter]{
		use: "list [NAME...]", short: "list sites", long: sitesListHelp,
		example: `  mta sites list --busy
  mta sites list --suspended --json
  mta sites list .protection.outlook.com`,
		what: "sites", filter: api.SiteFilter{Order: api.BySize}, names: c.siteNames,
		show: pages[api.SiteFilter, api.SiteList, api.Site]{
			table: listing.Sites, ask: (*api.Client).Sites,
			of:      func(l *api.SiteList) (*[]api.Site, *string) { return &l.Sites, &l.Next },
			unknown: "no known site has the name",
			hint: "to list the known sites: mta sites; a site has the name of its first host, " +
				"and 'mta explain DOMAIN' shows the site of a domain",
		}.show,
	}))
}

const sitesSuspendHelp = `Stop all mail to a site for a time. Transactions in progress finish; waiting mail expires
as usual.

SITE is the name of a site, or a domain that it serves. A site can serve many domains: the
output counts and names the known ones. 'mta pause domain' stops a single one of them.`

func newSitesSuspend(c *cli) *cobra.Command {
	var s api.Suspend
	cmd := &cobra.Command{
		Use:     "suspend SITE --for TIME",
		Short:   "stop mail to a site for a time",
		Long:    sitesSuspendHelp,
		Example: `  mta sites suspend example.com --for 30m --reason "postmaster asked us to"`,
	}
	suspensionFlags(cmd, &s.For, &s.Source)
	return c.ofSite(changes(c, cmd, &s.Intent, "site",
		func(ctx context.Context, client *api.Client, args []string) (api.Suspended, error) {
			if s.Site = args[0]; s.For <= 0 {
				return api.Suspended{}, errNoDuration
			}
			return client.Suspend(ctx, s)
		}, func(done api.Suspended) {
			fmt.Fprintf(c.out, "nothing is sent to %s%s until %s\n", draw.Clean(done.Site), fromSource(s.Source), moment(done.Until, c.now()))
			if done.Domains > 1 {
				fmt.Fprintf(c.err, "the site serves %s, and mail for all of them waits: %s\nto stop one of them alone: mta pause domain NAME\n",
					plural(done.Domains, "domain"), draw.Clean(someOf(done.Some, done.Domains)))
			}
		}))
}

var errNoDuration = hinted{usagef("a duration is required"), "as in: --for 30m"}

// suspensionFlags adds the flags of a suspension: how long, and of which source.
func suspensionFlags(cmd *cobra.Command, length *api.Age, source *string) {
	cmd.Flags().Var((*ageFlag)(length), "for", "the duration, such as 90s, 15m, 2h; 30d at most")
	cmd.Flags().StringVar(source, "source", "", "only mail from this `source`")
}

// ofSite makes a command take the name of a site.
func (c *cli) ofSite(cmd *cobra.Command) *cobra.Command {
	cmd.Args = oneName("a site or domain")
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
	var in api.Intent
	return c.ofSite(changes(c, &cobra.Command{
		Use:   "resume SITE",
		Short: "end suspensions of a site",
		Long: `End all suspensions of a site, including automatic ones.

SITE is the name of a site, or a domain that it serves.`,
	}, &in, "suspension", func(ctx context.Context, client *api.Client, args []string) (api.Resumed, error) {
		return client.Resume(ctx, api.Resume{Intent: in, Site: args[0]})
	}, func(done api.Resumed) {
		fmt.Fprintf(c.out, "%s of %s ended\n", plural(done.Ended, "suspension"), draw.Clean(done.Site))
	}))
}

// some wants one argument or more.
func some(noun string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("no %s is named", noun)
		}
		return nil
	}
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
