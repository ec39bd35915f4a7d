package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

var shells = []string{"bash", "zsh", "fish", "powershell"}

const completionHelp = `Print a script for shell completion of mta's commands, flags, the ids of queued
messages, and the names of sites, sources, pools and tenants. For the current shell:

  bash        source <(mta completion bash)
  zsh         source <(mta completion zsh)
  fish        mta completion fish | source
  powershell  mta completion powershell | Out-String | Invoke-Expression`

func newCompletion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use:       "completion SHELL",
		Short:     "print a shell completion script",
		Long:      completionHelp,
		ValidArgs: shells,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return usagef("want the name of a shell: %s", strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(c.out, true)
			case "zsh":
				return root.GenZshCompletion(c.out)
			case "fish":
				return root.GenFishCompletion(c.out, true)
			}
			return root.GenPowerShellCompletionWithDesc(c.out)
		},
	}
}
