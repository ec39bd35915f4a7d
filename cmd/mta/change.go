package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

// changeFlags adds the flags of all commands that change something: --dry-run and --reason.
func changeFlags(cmd *cobra.Command, in *api.Intent) {
	cmd.Flags().BoolVarP(&in.DryRun, "dry-run", "n", false, "only count")
	reasonFlag(cmd)
}

// reasonFlag adds --reason, which goes with the request: into the audit log, and where people ask why something is
// suspended or paused.
func reasonFlag(cmd *cobra.Command) {
	reason := cmd.Flags().String("reason", "", "the `text` shown to anyone who asks why, and in 'mta actions'")
	cmd.PreRun = func(cmd *cobra.Command, _ []string) {
		cmd.SetContext(api.WithReason(cmd.Context(), *reason))
	}
}

// wouldChange reports whether a change was only counted, and prints how many of what that were.
func (c *cli) wouldChange(e api.Effect, what string) bool {
	if e.DryRun {
		fmt.Fprintf(c.out, "%s would be changed\n", plural(e.Count, what))
	}
	return e.DryRun
}
