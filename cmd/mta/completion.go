package main

import (
	"bytes"
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
			script, err := completionScript(cmd.Root(), args[0])
			if err == nil {
				_, err = c.out.Write(script)
			}
			return err
		},
	}
}

// completionScript makes the script for one of the shells.
func completionScript(root *cobra.Command, shell string) ([]byte, error) {
	var script bytes.Buffer
	var err error
	switch shell {
	case "bash":
		err = root.GenBashCompletionV2(&script, true)
	case "zsh":
		err = root.GenZshCompletion(&script)
	case "fish":
		err = root.GenFishCompletion(&script, true)
	case "powershell":
		err = root.GenPowerShellCompletionWithDesc(&script)
	}
	return script.Bytes(), err
}
