package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

func newConfig(c *cli) *cobra.Command {
	return group("config", "the configuration of the running relay", newConfigReload(c), newConfigShow(c))
}

func newConfigReload(c *cli) *cobra.Command {
	var in api.Intent
	cmd := answers(c, &cobra.Command{
		Use:   "reload",
		Short: "reload the configuration file",
		Long: `Make the running relay reload its configuration file. The whole new file takes effect,
or, if it has an error, none of it. SIGHUP does the same. With --dry-run the relay tries
all of that, new ports and certificates included, and undoes it.`,
		Args: noArgs,
	}, func(ctx context.Context, client *api.Client, _ []string) (api.Reload, error) {
		return client.Reload(ctx, in)
	}, func(done api.Reload) error {
		c.printReload(&done)
		return nil
	})
	cmd.Flags().BoolVarP(&in.DryRun, "dry-run", "n", false, "only print what would change")
	reasonFlag(cmd)
	return cmd
}

func (c *cli) printReload(r *api.Reload) {
	all := slices.Concat(r.Changes, r.Restart)
	indent, none := "", "nothing has changed"
	if r.DryRun {
		indent, none = "  ", "a reload would change nothing"
		if len(all) > 0 {
			fmt.Fprintln(c.out, "nothing has changed; a reload would change:")
		}
	}
	for _, change := range all {
		fmt.Fprintf(c.out, "%s%s\n", indent, draw.Clean(change))
	}
	if len(all) == 0 {
		fmt.Fprintln(c.out, none)
	}
}

func newConfigShow(c *cli) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show",
		Short: "print the effective configuration of the running relay",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			if asJSON {
				o, err := client.ConfigObject(cmd.Context())
				if err != nil {
					return err
				}
				return writeJSON(c.out, o)
			}
			text, err := client.EffectiveConfig(cmd.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(c.out, text)
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON: blocks are lists of objects, with their labels as names")
	return cmd
}
