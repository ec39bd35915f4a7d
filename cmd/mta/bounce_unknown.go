package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
)

const bounceUnknownHelp = `Show the replies of hosts that no rule for classes knows (Uncategorized), by provider: how many
there were since the relay was started, and samples of them. Replies that differ in numbers and
addresses only count as one.

Give them a class with classify blocks in the configuration.`

func newBounceUnknown(c *cli) *cobra.Command {
	var (
		provider string
		asJSON   bool
	)
	cmd := &cobra.Command{
		Use:   "unknown",
		Short: "show the replies that no rule for classes knows",
		Long:  bounceUnknownHelp,
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var of *string
			if cmd.Flags().Changed("provider") {
				of = &provider
			}
			return c.bounceUnknown(cmd.Context(), of, asJSON)
		},
	}
	cmd.Flags().StringVar(&provider, "provider", "", "of this `provider` only; \"\": of sites without one")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (c *cli) bounceUnknown(ctx context.Context, provider *string, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := client.UnknownReplies(ctx, provider)
	switch {
	case err != nil:
		return err
	case asJSON:
		return writeJSON(c.out, l)
	case len(l.Unknown) == 0:
		fmt.Fprintln(c.err, "no unknown replies since the relay was started")
		return nil
	}
	t := &draw.Table{Columns: []draw.Column{{Title: "PROVIDER"}, {Title: "COUNT", Right: true}, {Title: "AGE", Right: true}, {Title: "MESSAGE"}}, NoteTitle: "REPLY"}
	for _, of := range l.Unknown {
		left := of.Count
		for _, s := range of.Samples {
			left -= s.Count
			t.Add(strings.Join(strings.Fields(s.Reply.String()), " "), orDash(of.Provider), fmt.Sprint(s.Count), shortAge(c.now().Sub(s.Last)), orDash(s.Message))
		}
		if left > 0 {
			t.Add("others, of which no sample is kept", orDash(of.Provider), fmt.Sprint(left), "-", "-")
		}
	}
	return t.Write(c.out, c.screen)
}
