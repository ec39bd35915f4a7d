package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

const queueListHelp = `List messages in the queue, a line for each recipient: the message's id, age, size
and sender, the recipient and its state, the number of attempts, the time of the
next one, and the last reply.

A page has --limit messages; the hint below it shows how to get the next one. For a
message with many recipients, the first --recipients are shown.`

func newQueueList(c *cli) *cobra.Command {
	var (
		filters filterFlags
		page    api.Page
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "list [ID...]",
		Short: "list messages",
		Long:  queueListHelp,
		Example: `  mta queue list --state deferred --older 2h
  mta queue list --domain example.org --order newest --limit 10
  mta queue list --tenant acme --limit 0 --json`,
		ValidArgsFunction: c.completeIDs,
		RunE: func(cmd *cobra.Command, ids []string) error {
			f, err := filters.with(ids)
			if err != nil {
				return err
			}
			if page.Limit < 0 || page.Recipients < 0 {
				return usagef("--limit and --recipients can't be negative")
			}
			return c.queueList(cmd.Context(), f, page, asJSON)
		},
	}
	c.addParams(cmd, &filters.filter)
	c.addParams(cmd, &page)
	flags := cmd.Flags()
	flags.IntVar(&page.Limit, "limit", api.DefaultLimit, "messages on the page; 0: all")
	flags.StringVar(&page.After, "after", "", "continue after the previous page (`cursor`)")
	flags.BoolVar(&asJSON, "json", false, "print a line of JSON for each message")
	return c.watchable(cmd)
}

func (c *cli) queueList(ctx context.Context, f api.Filter, p api.Page, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if asJSON {
		return c.listJSON(ctx, client, f, p)
	}
	shown := 0
	next, err := eachPage(ctx, client, f, p, func(l api.List) error {
		if len(l.Messages) == 0 {
			return nil
		}
		t := tableOf(c, listing.Queue, listing.QueueRows(l.Messages))
		t.Untitled = shown > 0
		shown += len(l.Messages)
		return t.Write(c.out, c.screen)
	})
	if err != nil {
		return err
	}
	c.listFooter(f, shown, next)
	return nil
}

// eachPage asks for pages until there are p.Limit messages, or with 0 to the end, and gives the
// cursor of what follows.
func eachPage(ctx context.Context, client *api.Client, f api.Filter, p api.Page, each func(api.List) error) (next string, err error) {
	left := p.Limit
	for {
		p.Limit = api.MaxLimit
		if left > 0 {
			p.Limit = min(left, api.MaxLimit)
		}
		l, err := client.List(ctx, f, p)
		if err != nil {
			return "", err
		}
		if err := each(l); err != nil {
			return "", err
		}
		if l.Next == "" {
			return "", nil
		}
		p.After = l.Next
		// A page may have fewer messages than it could: the relay had much to look through.
		if left > 0 {
			if left -= len(l.Messages); left <= 0 {
				return l.Next, nil
			}
		}
	}
}

// listFooter prints on standard error, where it is in the way of no program, what is not shown.
func (c *cli) listFooter(f api.Filter, shown int, next string) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %s\n", plural(shown, "message"), next)
	case shown == 0 && f.Empty():
		fmt.Fprintln(c.err, "the queue is empty")
	case shown == 0:
		fmt.Fprintln(c.err, "nothing in the queue matches")
	}
}

// listJSON prints an object on a line of its own for each message.
func (c *cli) listJSON(ctx context.Context, client *api.Client, f api.Filter, p api.Page) error {
	e := newEncoder(c.out)
	shown := 0
	next, err := eachPage(ctx, client, f, p, func(l api.List) error {
		for i := range l.Messages {
			if err := e.Encode(&l.Messages[i]); err != nil {
				return err
			}
		}
		shown += len(l.Messages)
		return nil
	})
	if err != nil {
		return err
	}
	c.listFooter(f, shown, next)
	return nil
}
