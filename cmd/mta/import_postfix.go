package main

import (
	"github.com/spf13/cobra"

	"example.org/mta/importer"
	"example.org/mta/importer/postfix"
)

const importPostfixHelp = `Write mta.conf from the configuration of a Postfix: main.cf and master.cf in DIR, /etc/postfix by
default, and the tables that they name. Tables in files below /etc/postfix are read in DIR, from
their text source; tables on servers are not read. Postfix's programs are not called.

` + importHelp

func newImportPostfix(c *cli) *cobra.Command {
	cmd := &cobra.Command{
		Use: "postfix [DIR]", Short: "write mta.conf from the configuration of a Postfix", Long: importPostfixHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("unexpected argument %q", args[1])
			}
			return nil
		},
	}
	return c.importCommand(cmd, func(args []string) (*importer.Draft, error) {
		dir := "/etc/postfix"
		if len(args) > 0 {
			dir = args[0]
		}
		return postfix.Import(dir)
	})
}
