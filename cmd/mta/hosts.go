package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const hostsHelp = `List the hosts that mail goes to, suspend them, and discard their state. Without a
subcommand, 'mta hosts' lists them. To stop all mail for a set of domains, see
'mta sites suspend'.`

func newHosts(c *cli) *cobra.Command {
	list := newHostsList(c)
	g := group("hosts", "list hosts, suspend them, discard their state", list, newHostsSuspend(c), newHostsResume(c), newHostsForget(c))
	g.Long = hostsHelp
	listByDefault(g, list)
	return g
}

const hostsListHelp = `List the known hosts, by name and address:

  active  has busy connections
  idle    has connections, none of them busy
  retry   unreachable, or rejected the relay; not tried until its retry time
  closed  had a connection recently
  unused  nothing is known about it except the extensions it once offered

NAME is a name or an address; .example.com means all names with that ending.`

func newHostsList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.HostFilter]{
		use: "list [NAME...]", short: "list hosts", long: hostsListHelp,
		example: `  mta hosts list --state retry
  mta hosts list .google.com --json`,
		what: "hosts", names: c.hostNames,
		show: pages[api.HostFilter, api.HostList, api.Host]{
			table: listing.Hosts, ask: (*api.Client).Hosts,
			of:      func(l *api.HostList) (*[]api.Host, *string) { return &l.Hosts, &l.Next },
			unknown: "no known host matches the name or address", hint: "to list the known hosts: mta hosts",
		}.show,
	}))
}

func newHostsSuspend(c *cli) *cobra.Command {
	var s api.SuspendHosts
	cmd := &cobra.Command{
		Use:   "suspend NAME... --for TIME",
		Short: "stop mail to hosts for a time",
		Long: `Stop all mail to hosts for a time, or the mail from one source. Mail goes to the other
hosts of its site; if there is none, it waits in the queue without counting an attempt.
Jobs on connections to the hosts finish, and then the connections end.

NAME is a name or an address of a known host; .example.com means all names with that ending.`,
		Example: `  mta hosts suspend mx1.example.com --for 30m --reason "it loses mail"
  mta hosts suspend 192.0.2.7 --for 2h --source out1`,
	}
	suspensionFlags(cmd, &s.For, &s.Source)
	return c.ofHosts(changes(c, cmd, &s.Intent, "host",
		func(ctx context.Context, client *api.Client, names []string) (api.SuspendedHosts, error) {
			if s.Hosts = names; s.For <= 0 {
				return api.SuspendedHosts{}, errNoDuration
			}
			return client.SuspendHosts(ctx, s)
		}, func(done api.SuspendedHosts) {
			fmt.Fprintf(c.out, "nothing is sent to %s%s until %s\n",
				plural(done.Hosts, "host"), fromSource(s.Source), moment(done.Until, c.now()))
		}))
}

func newHostsResume(c *cli) *cobra.Command {
	var in api.Intent
	return c.ofHosts(changes(c, &cobra.Command{
		Use:   "resume NAME...",
		Short: "end suspensions of hosts",
		Long: `End all suspensions of hosts.

NAME is a name or an address; .example.com means all names with that ending.`,
	}, &in, "suspension", func(ctx context.Context, client *api.Client, names []string) (api.ResumedHosts, error) {
		return client.ResumeHosts(ctx, api.ResumeHosts{Intent: in, Hosts: names})
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
		Use:   "forget NAME...",
		Short: "discard the state of hosts",
		Long: `Discard the relay's knowledge about hosts: failures, offered extensions, capacity. They
are tried again immediately. Connections stay open.

NAME is a name or an address; .example.com means all names with that ending. Mail that
was deferred because of a host keeps its retry time: see 'mta queue retry --site'.`,
		Example: `  mta hosts forget mx1.example.com
  mta hosts forget 192.0.2.7`,
	}, &in, "host", func(ctx context.Context, client *api.Client, names []string) (api.Forgotten, error) {
		return client.Forget(ctx, api.Forget{Intent: in, Hosts: names})
	}, func(done api.Forgotten) { fmt.Fprintf(c.out, "%s forgotten\n", plural(done.Hosts, "host")) }))
}
