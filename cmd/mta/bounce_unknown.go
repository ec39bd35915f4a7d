package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const bounceUnknownHelp = `Show the replies of hosts that no rule for classes knows (Uncategorized), by provider: how many
there were since the relay was started, and samples of them. Replies that differ in numbers and
addresses only count as one.

Give them a class with classify blocks in the configuration.`

func newBounceUnknown(c *cli) *cobra.Command {
	var provider string
	cmd := &cobra.Command{
		Use:   "unknown",
		Short: "show the replies that no rule for classes knows",
		Long:  bounceUnknownHelp,
		Args:  noArgs,
	}
	cmd.Flags().StringVar(&provider, "provider", "", "of this `provider` only; \"\": of sites without one")
	return answers(c, cmd, func(ctx context.Context, client *api.Client, _ []string) (api.UnknownList, error) {
		if !cmd.Flags().Changed("provider") {
			return client.UnknownReplies(ctx, nil)
		}
		return client.UnknownReplies(ctx, &provider)
	}, c.bounceUnknown)
}

func (c *cli) bounceUnknown(l api.UnknownList) error {
	if len(l.Unknown) == 0 {
		fmt.Fprintln(c.err, "no unknown replies since the relay was started")
		return nil
	}
	t := &draw.Table{Columns: []draw.Column{{Title: "PROVIDER"}, {Title: "COUNT", Right: true}, {Title: "AGE", Right: true}, {Title: "MESSAGE"}}, NoteTitle: "REPLY"}
	for _, of := range l.Unknown {
		left := of.Count
		for _, s := range of.Samples {
			left -= s.Count
			t.Add(strings.Join(strings.Fields(s.Reply.String()), " "), orDash(of.Provider), fmt.Sprint(s.Count), short.Age(c.now().Sub(s.Last)), orDash(s.Message))
		}
		if left > 0 {
			t.Add("others, of which no sample is kept", orDash(of.Provider), fmt.Sprint(left), "-", "-")
		}
	}
	return t.Write(c.out, c.screen)
}
