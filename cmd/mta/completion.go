package main

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

// mostCompleted bounds what a shell is offered: nobody reads more.
const mostCompleted = 100

// namer asks the relay for names that begin so.
type namer func(ctx context.Context, client *api.Client, prefix string) ([]string, error)

// complete offers names for arguments.
func (c *cli) complete(names namer) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		client, err := c.client()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		all, err := names(cmp.Or(cmd.Context(), context.Background()), client, prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var some []string
		for _, n := range all {
			if n = draw.Clean(n); n != "" && strings.HasPrefix(n, strings.ToLower(prefix)) &&
				len(some) < mostCompleted {
				some = append(some, n)
			}
		}
		return some, cobra.ShellCompDirectiveNoFileComp
	}
}

// completeBy offers names for a flag.
func (c *cli) completeBy(cmd *cobra.Command, flag string, names namer) {
	// The flag was made by the caller: there is no other error.
	_ = cmd.RegisterFlagCompletionFunc(flag, c.complete(names))
}

// siteNames asks for the sites from the prefix on, in the order of names: however many there are, a page
// has those that begin so.
func (c *cli) siteNames(ctx context.Context, client *api.Client, prefix string) ([]string, error) {
	l, err := api.OpSites.Call(ctx, client,
		api.SiteFilter{Order: api.ByName, Paging: api.Paging{After: justBefore(prefix), Limit: mostCompleted}})
	return namesOf(l.Sites, func(s *api.Site) string { return s.Name }), err
}

// hostNames is siteNames for hosts. One with several addresses is offered once.
func (c *cli) hostNames(ctx context.Context, client *api.Client, prefix string) ([]string, error) {
	l, err := api.OpHosts.Call(ctx, client,
		api.HostFilter{Paging: api.Paging{After: justBefore(prefix), Limit: mostCompleted}})
	return slices.Compact(namesOf(l.Hosts, func(h *api.Host) string { return h.Name })), err
}

func (c *cli) sourceNames(ctx context.Context, client *api.Client, _ string) ([]string, error) {
	l, err := api.OpSources.Call(ctx, client, api.BlockFilter{Paging: api.Paging{Limit: api.MaxLimit}})
	return namesOf(l.Sources, func(s *api.Source) string { return s.Name }), err
}

func (c *cli) poolNames(ctx context.Context, client *api.Client, _ string) ([]string, error) {
	l, err := api.OpPools.Call(ctx, client,
		api.UnpooledFilter{BlockFilter: api.BlockFilter{Paging: api.Paging{Limit: api.MaxLimit}}})
	return namesOf(l.Pools, func(p *api.Pool) string { return p.Name }), err
}

func (c *cli) tenantNames(ctx context.Context, client *api.Client, _ string) ([]string, error) {
	l, err := api.OpTenants.Call(ctx, client,
		api.TenantFilter{BlockFilter: api.BlockFilter{Paging: api.Paging{Limit: api.MaxLimit}}})
	return namesOf(l.Tenants, func(t *api.Tenant) string { return t.Name }), err
}

func (c *cli) connectionIDs(ctx context.Context, client *api.Client, _ string) ([]string, error) {
	l, err := api.OpConnections.Call(ctx, client, api.ConnectionFilter{Paging: api.Paging{Limit: api.MaxLimit}})
	return namesOf(l.Connections, func(c *api.Connection) string { return c.ID }), err
}

func streamNames(ctx context.Context, client *api.Client, _ string) ([]string, error) {
	l, err := api.OpStreams.Call(ctx, client, api.None{})
	return namesOf(l.Streams, func(s *api.Stream) string { return s.Name }), err
}

func namesOf[T any](rows []T, name func(*T) string) (names []string) {
	for i := range rows {
		names = append(names, name(&rows[i]))
	}
	return names
}

// justBefore is a cursor behind which the names come that begin so.
func justBefore(prefix string) string {
	before := strings.ToLower(prefix)
	if n := len(before); n > 0 {
		before = before[:n-1] + string(rune(before[n-1]-1)) + "~"
	}
	return before
}

// completeNames gives each flag that names something of the running relay its completion, whatever
// command it is of.
func (c *cli) completeNames(cmd *cobra.Command) {
	for flag, names := range map[string]namer{"site": c.siteNames, "source": c.sourceNames, "tenant": c.tenantNames,
		"pool": c.poolNames} {
		if f := cmd.Flags().Lookup(flag); f != nil {
			c.completeBy(cmd, flag, names) // an error means that it has one
		}
	}
	for _, sub := range cmd.Commands() {
		c.completeNames(sub)
	}
}

var shells = []string{"bash", "zsh", "fish", "powershell"}

const completionHelp = `Print a script for shell completion of mta's commands, flags, the ids of queued
messages, and the names of sites, sources, pools and tenants. For the current shell:

  bash        source <(mta completion bash)
  zsh         source <(mta completion zsh)
  fish        mta completion fish | source
  powershell  mta completion powershell | Out-String | Invoke-Expression`

func newCompletion(c *cli) *cobra.Command {
	return &cobra.Command{
		Use: "completion SHELL", Short: "print a shell completion script", Long: completionHelp, ValidArgs: shells,
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
