package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/mta/control"
)

func newConfig(c *cli) *cobra.Command {
	return group("config", "the configuration of the running relay", newConfigReload(c), newConfigShow(c))
}

func newConfigReload(c *cli) *cobra.Command {
	var (
		in     control.Intent
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "reload the configuration file",
		Long: `Make the running relay reload its configuration file. The whole new file takes effect,
or, if it has an error, none of it. SIGHUP does the same. With --dry-run the command prints
what would change.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			done, err := client.Reload(cmd.Context(), in)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.out, done)
			}
			for _, change := range done.Changes {
				fmt.Fprintf(c.out, "%s\n", draw.Clean(change))
			}
			for _, change := range done.Restart {
				fmt.Fprintf(c.out, "%s\n", draw.Clean(change))
			}
			if len(done.Changes)+len(done.Restart) == 0 {
				fmt.Fprintln(c.out, "nothing has changed")
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&in.DryRun, "dry-run", "n", false, "only print what would change")
	reasonFlag(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
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
