package main

import (
	"context"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
)

// asker asks the relay what a command wants to know or done, by its arguments.
type asker[A any] func(ctx context.Context, client *api.Client, args []string) (A, error)

// answers makes a command print what the relay answers: with --json as it is, else by show.
func answers[A any](c *cli, cmd *cobra.Command, ask asker[A], show func(A) error) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := c.client()
		if err != nil {
			return err
		}
		a, err := ask(cmd.Context(), client, args)
		switch {
		case err != nil:
			return err
		case *asJSON:
			return writeJSON(c.out, a)
		}
		return show(a)
	}
	return cmd
}

// changes makes a command that changes something print how much that was: nouns with --dry-run, else by show.
func changes[A effected](
	c *cli, cmd *cobra.Command, in *api.Intent, noun string, ask asker[A], show func(A),
) *cobra.Command {
	changeFlags(cmd, in)
	return answers(c, cmd, ask, func(a A) error {
		if !c.wouldChange(a.Done(), noun) {
			show(a)
		}
		return nil
	})
}

// effected is an answer to a change.
type effected interface{ Done() api.Effect }
