package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const connectionsHelp = `List the open connections, those of clients and those to remote hosts, and close some.
Without a subcommand, 'mta connections' lists them.`

func newConnections(c *cli) *cobra.Command {
	list := newConnectionsList(c)
	g := group("connections", "list open connections, close some", list, newConnectionsClose(c))
	g.Long = connectionsHelp
	listByDefault(g, list)
	return g
}

const connectionsListHelp = `List the open connections: those of clients (in), then those to remote hosts (out), the
oldest first.

  opening  not ready for mail yet
  busy     has a transaction or a request
  idle     waits for one
  closing  takes no more

BACKLOG counts the transactions on an outgoing connection, WINDOW those that use the wire
at a time. MESSAGES counts transactions or requests so far.`

func newConnectionsList(c *cli) *cobra.Command {
	return c.watchable(newList(c, list[api.ConnectionFilter]{
		use: "list", short: "list open connections", long: connectionsListHelp,
		example: `  mta connections list --site mx.example.com
  mta connections list --direction in --peer 192.0.2.0/24 --json`,
		what: "connections",
		show: pages[api.ConnectionFilter, api.ConnectionList, api.Connection]{
			table: listing.Connections, ask: (*api.Client).Connections,
			of: func(l *api.ConnectionList) (*[]api.Connection, *string) { return &l.Connections, &l.Next },
		}.show,
	}))
}

func newConnectionsClose(c *cli) *cobra.Command {
	var in api.Intent
	cmd := answers(c, &cobra.Command{
		Use:   "close ID...",
		Short: "close connections without loss of mail",
		Long: `Close connections. A client hears 421 before its next command; a message that is coming in
is taken first. An outgoing connection finishes the transactions that have begun, and the
others leave by another connection; one that is being opened is given up. No mail is lost
or sent twice.

To keep a site's connections from being opened again, see 'mta sites suspend'.`,
		Example: `  mta connections close 6920000a0001
  mta connections close 6920000a0001 6920000a0002 --dry-run`,
		Args: some("connection"),
	}, func(ctx context.Context, client *api.Client, ids []string) (api.ClosedConnections, error) {
		return client.CloseConnections(ctx, api.CloseConnections{Intent: in, IDs: ids})
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
