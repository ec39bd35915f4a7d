package main

import (
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
	var (
		request api.CloseConnections
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "close ID...",
		Short: "close connections without loss of mail",
		Long: `Close connections. A client hears 421 before its next command; a message that is coming in
is taken first. An outgoing connection finishes the transactions that have begun, and the
others leave by another connection; one that is being opened is given up. No mail is lost
or sent twice.

To keep a site's connections from being opened again, see 'mta sites suspend'.`,
		Example: `  mta connections close 6920000a0001
  mta connections close 6920000a0001 6920000a0002 --dry-run`,
		Args: func(_ *cobra.Command, ids []string) error {
			if len(ids) == 0 {
				return usagef("no connection is named")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, ids []string) error {
			request.IDs = ids
			client, err := c.client()
			if err != nil {
				return err
			}
			done, err := client.CloseConnections(cmd.Context(), request)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			what := "closed"
			if done.DryRun {
				what = "would be closed"
			}
			fmt.Fprintf(c.out, "%s %s", plural(done.Connections, "connection"), what)
			if done.Busy > 0 {
				fmt.Fprintf(c.out, ", %d of them when what has begun is finished", done.Busy)
			}
			fmt.Fprintln(c.out)
			return nil
		},
	}
	changeFlags(cmd, &request.Intent)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.ValidArgsFunction = c.complete(c.connectionIDs)
	return cmd
}
