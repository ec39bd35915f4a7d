package main

import (
	"github.com/spf13/cobra"

	"example.org/mta/importer"
	"example.org/mta/importer/powermta"
)

func newImportPowerMTA(c *cli) *cobra.Command {
	return c.importCommand(&cobra.Command{
		Use:   "powermta FILE",
		Short: "write mta.conf from a PowerMTA configuration",
		Long: importHelp + `

FILE is PowerMTA's configuration, often /etc/pmta/config. The files that it includes are
read, too. docs/moving-from-powermta.md has a table of all directives.`,
		Example: `  mta import powermta /etc/pmta/config --out mta.conf
  mta import powermta /etc/pmta/config --out mta.conf --accept
  mta import powermta /etc/pmta/config --json`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want one file, got %d", len(args))
			}
			return nil
		},
	}, func(args []string) (*importer.Draft, error) { return powermta.Read(args[0]) })
}
