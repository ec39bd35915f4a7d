package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
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
	return listGroup("sites", "list sites, suspend and resume them", sitesHelp,
		newSitesList(c), newSitesSuspend(c), newSitesResume(c))
}

// listGroup makes a group that is, without a command below it, the same as its listing, flags and arguments included.
// A word that is like a command is taken for a mistyped one.
func listGroup(use, short, long string, list *cobra.Command, others ...*cobra.Command) *cobra.Command {
	g := group(use, short, long, append(others, list)...)
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
	return g
}

const sitesListHelp = `List the known sites, the longest queue first. QUEUED counts a
site's recipients in the queue, in any state; of these, ACTIVE are on connections,
WAITING wait for one, and DEFERRED wait for their retry time. CONNS shows the
connections, and the number that the site may have so far (slow start). USUAL/s is the
usual rate of messages, LAST the time since it last accepted one.` + sinceStart + `

NAME is a site's name; .example.com means all names with that ending.`

func newSitesList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.SiteFilter]{
		use: "list [NAME...]", short: "list sites", long: sitesListHelp,
		example: `  mta sites list --busy
  mta sites list --suspended --json
  mta sites list .protection.outlook.com`,
		what: "sites", cluster: true, filter: api.SiteFilter{Order: api.BySize}, names: c.siteNames,
		show: pages[api.SiteFilter, api.SiteList, api.Site]{
			table: listing.Sites, row: api.OpSites,
			unknown: "no known site has the name",
			hint: "to list the known sites: mta sites; a site has the name of its first host, " +
				"and 'mta explain DOMAIN' shows the site of a domain",
		}.show,
	}))
}

const sitesSuspendHelp = `Stop all mail to a site for a time. Transactions in progress finish; waiting mail expires
as usual.

SITE is the name of a site, or a domain that it serves: the output counts and names its
other known domains. 'mta pause domain' stops a single one of them.`

func newSitesSuspend(c *cli) *cobra.Command {
	var s api.Suspend
	cmd := &cobra.Command{
		Use: "suspend SITE --for TIME", Short: "stop mail to a site for a time", Long: sitesSuspendHelp,
		Example: `  mta sites suspend example.com --for 30m --reason "postmaster asked us to"`,
	}
	c.addParams(cmd, &s)
	return c.ofSite(changes(c, cmd, &s.Intent, "site",
		func(ctx context.Context, client *api.Client, args []string) (api.Suspended, error) {
			if s.Site = args[0]; s.For <= 0 {
				return api.Suspended{}, errNoDuration
			}
			return api.OpSuspend.Call(ctx, client, s)
		}, func(done api.Suspended) {
			fmt.Fprintf(c.out, "nothing is sent to %s%s until %s\n", draw.Clean(done.Site), listing.From(s.Source),
				moment(done.Until, c.now()))
			if done.Domains > 1 {
				fmt.Fprintf(c.err,
					"the site serves %s, and mail for all of them waits: %s\nto stop one of them alone: mta pause "+
						"domain NAME\n",
					plural(done.Domains, "domain"), draw.Clean(someOf(done.Some, done.Domains)))
			}
		}))
}

var errNoDuration = hinted{usagef("a duration is required"), "as in: --for 30m"}

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

func newSitesResume(c *cli) *cobra.Command {
	var in api.Intent
	return c.ofSite(changes(c, &cobra.Command{
		Use: "resume SITE", Short: "end suspensions of a site",
		Long: `End all suspensions of a site, including automatic ones.

SITE is the name of a site, or a domain that it serves.`,
	}, &in, "suspension", func(ctx context.Context, client *api.Client, args []string) (api.Resumed, error) {
		return api.OpResume.Call(ctx, client, api.Resume{Intent: in, Site: args[0]})
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

const hostsHelp = `List the hosts that mail goes to, suspend them, and discard their state. Without a
subcommand, 'mta hosts' lists them. To stop all mail for a set of domains, see
'mta sites suspend'.` + hostName

const hostName = `

NAME is a name or an address; .example.com means all names with that ending.`

func newHosts(c *cli) *cobra.Command {
	return listGroup("hosts", "list hosts, suspend them, discard their state", hostsHelp,
		newHostsList(c), newHostsSuspend(c), newHostsResume(c), newHostsForget(c))
}

const hostsListHelp = `List the known hosts, by name and address:

  active  has busy connections
  idle    has connections, none of them busy
  retry   unreachable, or rejected the relay; not tried until its retry time
  closed  had a connection recently
  unused  nothing is known about it except the extensions it once offered` + hostName

func newHostsList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.HostFilter]{
		use: "list [NAME...]", short: "list hosts", long: hostsListHelp,
		example: `  mta hosts list --state retry
  mta hosts list .google.com --json`,
		what: "hosts", cluster: true, names: c.hostNames,
		show: pages[api.HostFilter, api.HostList, api.Host]{
			table: listing.Hosts, row: api.OpHosts,
			unknown: "no known host matches the name or address", hint: "to list the known hosts: mta hosts",
		}.show,
	}))
}

func newHostsSuspend(c *cli) *cobra.Command {
	var s api.SuspendHosts
	cmd := &cobra.Command{
		Use: "suspend NAME... --for TIME", Short: "stop mail to hosts for a time",
		Long: `Stop all mail to hosts for a time, or the mail from one source. It goes to the
other hosts of the site; without any, it waits in the queue and counts no attempt. Jobs
on connections to the hosts finish, and then the connections end.` + hostName,
		Example: `  mta hosts suspend mx1.example.com --for 30m --reason "it loses mail"
  mta hosts suspend 192.0.2.7 --for 2h --source out1`,
	}
	c.addParams(cmd, &s)
	return c.ofHosts(changes(c, cmd, &s.Intent, "host",
		func(ctx context.Context, client *api.Client, names []string) (api.SuspendedHosts, error) {
			if s.Hosts = names; s.For <= 0 {
				return api.SuspendedHosts{}, errNoDuration
			}
			return api.OpSuspendHosts.Call(ctx, client, s)
		}, func(done api.SuspendedHosts) {
			fmt.Fprintf(c.out, "nothing is sent to %s%s until %s\n",
				plural(done.Hosts, "host"), listing.From(s.Source), moment(done.Until, c.now()))
		}))
}

func newHostsResume(c *cli) *cobra.Command {
	var in api.Intent
	return c.ofHosts(changes(c, &cobra.Command{
		Use: "resume NAME...", Short: "end suspensions of hosts",
		Long: `End all suspensions of hosts.` + hostName,
	}, &in, "suspension", func(ctx context.Context, client *api.Client, names []string) (api.ResumedHosts, error) {
		return api.OpResumeHosts.Call(ctx, client, api.ResumeHosts{Intent: in, Hosts: names})
	}, func(done api.ResumedHosts) {
		fmt.Fprintf(c.out, "%s of %s ended\n", plural(done.Ended, "suspension"), plural(done.Hosts, "host"))
	}))
}

// ofHosts makes a command take the names of hosts.
func (c *cli) ofHosts(cmd *cobra.Command) *cobra.Command {
	cmd.Args = some("host")
	cmd.ValidArgsFunction = c.complete(c.hostNames)
	return cmd
}

func newHostsForget(c *cli) *cobra.Command {
	var in api.Intent
	return c.ofHosts(changes(c, &cobra.Command{
		Use: "forget NAME...", Short: "discard the state of hosts",
		Long: `Discard the relay's knowledge about hosts: failures, offered extensions,
capacity. They are tried again immediately. Connections stay open. Mail that was
deferred because of a host keeps its retry time: see 'mta queue retry --site'.` + hostName,
		Example: `  mta hosts forget mx1.example.com
  mta hosts forget 192.0.2.7`,
	}, &in, "host", func(ctx context.Context, client *api.Client, names []string) (api.Forgotten, error) {
		return api.OpForget.Call(ctx, client, api.Forget{Intent: in, Hosts: names})
	}, func(done api.Forgotten) { fmt.Fprintf(c.out, "%s forgotten\n", plural(done.Hosts, "host")) }))
}

const connectionsHelp = `List the open connections, those of clients and those to remote hosts, and close some.
Without a subcommand, 'mta connections' lists them.`

func newConnections(c *cli) *cobra.Command {
	return listGroup("connections", "list open connections, close some", connectionsHelp,
		newConnectionsList(c), newConnectionsClose(c))
}

const connectionsListHelp = `List the open connections: those of clients (in), then those to remote hosts (out), the
oldest first.

  opening  not ready for mail yet
  busy     has a transaction or a request
  idle     waits for one
  closing  takes no more

RUNNING counts the transactions on an outgoing connection, WINDOW those that use the wire
at a time. MESSAGES counts transactions or requests so far.`

func newConnectionsList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.ConnectionFilter]{
		use: "list", short: "list open connections", long: connectionsListHelp,
		example: `  mta connections list --site mx.example.com
  mta connections list --direction in --peer 192.0.2.0/24 --json`,
		what: "connections", cluster: true,
		show: pages[api.ConnectionFilter, api.ConnectionList, api.Connection]{table: listing.Connections,
			row: api.OpConnections}.show,
	}))
}

func newConnectionsClose(c *cli) *cobra.Command {
	var in api.Intent
	cmd := answers(c, &cobra.Command{
		Use: "close ID...", Short: "close connections without loss of mail",
		Long: `Close connections. A client gets 421 before its next command, after a message
that is coming in. An outgoing connection finishes the transactions that have begun, and
the others leave by another connection. No mail is lost or sent twice.

To keep a site's connections from being opened again, see 'mta sites suspend'.`,
		Example: `  mta connections close 6920000a0001
  mta connections close 6920000a0001 6920000a0002 --dry-run`,
		Args: some("connection"),
	}, func(ctx context.Context, client *api.Client, ids []string) (api.ClosedConnections, error) {
		return api.OpCloseConnections.Call(ctx, client, api.CloseConnections{Intent: in, IDs: ids})
	}, func(done api.ClosedConnections) error {
		what := "closed"
		if done.DryRun {
			what = "would be closed"
		}
		if done.Busy > 0 {
			what += fmt.Sprintf(", %d of them when what has begun is finished", done.Busy)
		}
		fmt.Fprintf(c.out, "%s %s\n", plural(done.Connections, "connection"), what)
		return nil
	})
	changeFlags(cmd, &in)
	cmd.ValidArgsFunction = c.complete(c.connectionIDs)
	return cmd
}

const sinceStart = `
DELIVERED, DEFERRALS (temporary failures, each attempt) and BOUNCED (including expired)
count recipients since the start of the relay.`

func newSources(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.BlockFilter]{
		use: "sources [NAME...]", short: "list the sources of the configuration",
		long: `List the sources: their connections, and the transactions that are READY for
one or RUNNING on one. A source is sending; or warming, with the plan's stage; or
paused, by an operator or its warm-up; or missing, if this machine lacks its address.` + sinceStart,
		what: "sources", cluster: true, filter: api.BlockFilter{Order: api.BySize}, names: c.sourceNames,
		show: pages[api.BlockFilter, api.SourceList, api.Source]{table: listing.Sources, row: api.OpSources}.show,
	}))
}

func newPools(c *cli) *cobra.Command {
	cmd := c.watchable(newList(c, list[api.UnpooledFilter]{
		use: "pools [NAME...]", short: "list the pools of sources",
		long: `List the pools: their sources and tenants, the connections of the sources and
the transactions that are READY for one or RUNNING on one, whatever pool they are for.
ACCEPTED counts recipients of the pool's tenants since the start of the relay.` + sinceStart,
		what: "pools", cluster: true, filter: api.UnpooledFilter{BlockFilter: api.BlockFilter{Order: api.BySize}},
		names: c.poolNames,
		show: pages[api.UnpooledFilter, api.PoolList, api.Pool]{
			table: listing.Pools, row: api.OpPools,
		}.show,
	}))
	cmd.AddCommand(newPoolsWeight(c))
	return cmd
}

const poolsWeightHelp = `Give a source of a pool another weight, from 0 to 1000, over restarts too: new mail of
the pool is shared out by the weights of its sources, 1 where nobody set one. At 0 the
source gets no new mail; mail that it has tried stays with it. --own returns to the
weight of the configuration. 'mta pools' and 'mta sources' show all weights other than
1.`

func newPoolsWeight(c *cli) *cobra.Command {
	var w api.SetWeight
	cmd := changes(c, &cobra.Command{
		Use: "weight POOL SOURCE N|--own", Short: "give a source of a pool a part of its new mail",
		Long:              poolsWeightHelp,
		Example:           "  mta pools weight default shared-1 0 --reason \"listed at a block list\"",
		ValidArgsFunction: c.completeWeight,
		Args: func(_ *cobra.Command, args []string) error {
			if own := len(args) == 2; own != w.Own || !own && len(args) != 3 {
				return usagef("name a pool, a source and its weight, or --own")
			}
			return nil
		},
	}, &w.Intent, "weight", func(ctx context.Context, client *api.Client, args []string) (api.WeightChanged, error) {
		if w.Source = args[1]; !w.Own {
			n, err := strconv.Atoi(args[2])
			if err != nil {
				return api.WeightChanged{}, usagef("weight: want a number from 0 to 1000, not %q", args[2])
			}
			w.Weight = n
		}
		return api.OpSetWeight.Call(ctx, client, w, args[0])
	}, func(done api.WeightChanged) {
		fmt.Fprintf(c.out, "source %s of pool %s has the weight %d; it was %d\n", draw.Clean(done.Source),
			draw.Clean(done.Pool), done.Weight.Weight, done.Was)
	})
	cmd.Flags().BoolVar(&w.Own, "own", false, "return to the weight of the configuration")
	return cmd
}

// completeWeight completes the pool, then the source.
func (c *cli) completeWeight(cmd *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return c.complete(c.poolNames)(cmd, args, start)
	case 1:
		return c.complete(c.sourceNames)(cmd, nil, start)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

func newTenants(c *cli) *cobra.Command {
	limits := false
	usual := pages[api.TenantFilter, api.TenantList, api.Tenant]{
		table: listing.Tenants, row: api.OpTenants,
	}
	cmd := newList(c, list[api.TenantFilter]{
		use: "tenants [NAME...]", short: "list the tenants of the configuration",
		long: `List the tenants: pool, tier, and the outcomes of their mail. The name "-"
stands for all mail without a tenant. QUEUED counts the recipients in the queue,
ACCEPTED those since the start of the relay.

--limits shows used/limit of each tenant's connections, messages in the queue and their
size. OVER is the limit that the next message would exceed; REFUSED counts refusals for
a limit since the start of the relay, LOWERED messages that over_quota = "lower" moved
to the last tier. In a cluster the limits of messages and size are those of all nodes
together, the use this node's; OVER is what was exceeded in the last ten seconds.` + sinceStart,
		what: "tenants", cluster: true, filter: api.TenantFilter{BlockFilter: api.BlockFilter{Order: api.BySize}},
		names: c.tenantNames,
		show: func(ctx context.Context, c *cli, client *api.Client, f api.TenantFilter, p *pageFlags) error {
			if !limits || p.asJSON {
				return usual.show(ctx, c, client, f, p)
			}
			used := usual
			used.table = listing.TenantLimits
			used.before = func(_ *cli, l *api.TenantList) {
				l.Tenants = slices.DeleteFunc(l.Tenants, func(t api.Tenant) bool { return t.Use == nil })
			}
			return used.show(ctx, c, client, f, p)
		},
	})
	_ = cmd.Flags().MarkHidden("queued") // the queue of each was once counted only on demand
	cmd.Flags().BoolVar(&limits, "limits", false, "show what each uses of its limits")
	return c.watchable(cmd)
}
