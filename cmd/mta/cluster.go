package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/cluster/postgres"
	"example.org/mta/cmd/mta/draw"
)

const clusterHelp = `Prepare a PostgreSQL database for a cluster of relays. 'mta serve' does not use it yet.

The database is the one of $MTA_CLUSTER_DATABASE, never an argument, which other users can
see: a URL or keywords as psql takes them. It may name several hosts, of which the primary
is used. These commands need no configuration and no running relay.`

func newCluster(c *cli) *cobra.Command {
	g := group("cluster", "the database of a cluster of relays", newClusterInit(c), newClusterCheck(c))
	g.Long = clusterHelp
	return g
}

// engine is the database of the environment. The command gets the flag that goes with it.
func (c *cli) engine(cmd *cobra.Command) func() (*postgres.Engine, error) {
	replicated := cmd.Flags().Bool("replicated", false, "a managed service replicates, so that no standby shows")
	cmd.Args = noArgs
	return func() (*postgres.Engine, error) {
		const name = "MTA_CLUSTER_DATABASE"
		address := c.env(name)
		if address == "" {
			return nil, usagef("no database: set %s, as in 'host=db1,db2 user=mta sslmode=verify-full'", name)
		}
		e, err := postgres.Open(postgres.Config{Database: address, Replicated: *replicated})
		if err != nil {
			return nil, usagef("%s: %v", name, err)
		}
		return e, nil
	}
}

func newClusterInit(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "init", Short: "create the schema in the database",
		Long: `Create the schema mta_cluster, unless the database has it. The role needs the right to
create schemas and, to see standbys, pg_monitor. Without a synchronous standby nothing is
created, since a failover would lose what the database has acknowledged; --replicated is
for a service that replicates below the database. docs/cluster-protocol.md has the rights
that a relay's role needs on the schema.`,
	}
	open := c.engine(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := open()
		if err != nil {
			return err
		}
		defer e.Close()
		created, err := e.Init(cmd.Context())
		if err == nil && created {
			fmt.Fprintln(c.out, "created the schema mta_cluster")
		} else if err == nil {
			fmt.Fprintln(c.out, "nothing to do: the schema mta_cluster is there")
		}
		return err
	}
	return cmd
}

func newClusterCheck(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check", Short: "check whether the database is fit for a cluster",
		Long: `Check the database with the role of a relay: the version of PostgreSQL, its clock, the
encryption, the role's rights, the schema, the synchronous standby, and how long a commit
takes. The exit status is 1 when a check fails.`,
	}
	open := c.engine(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		e, err := open()
		if err != nil {
			return err
		}
		defer e.Close()
		found, err := e.Check(cmd.Context(), c.now)
		if err != nil {
			return err
		}
		return c.printFindings(found, *asJSON)
	}
	return cmd
}

func (c *cli) printFindings(found []postgres.Finding, asJSON bool) error {
	var err error
	if asJSON {
		err = writeJSON(c.out, map[string]any{"checks": found})
	} else {
		t := draw.New("", "CHECK", "OK", "~FOUND")
		for _, f := range found {
			t.Add("", f.Check, yesNo(f.OK), f.Text)
		}
		err = t.Write(c.out, c.screen)
	}
	if err == nil && slices.ContainsFunc(found, func(f postgres.Finding) bool { return !f.OK }) {
		return exitError(exitFailed)
	}
	return err
}
