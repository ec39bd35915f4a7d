package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

func newBounceList(c *cli) *cobra.Command {
	var p pageFlags
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list inbound mail that the relay did not understand",
		Long: `List mail to an inbound domain that the relay did not understand and keeps, the newest first:
mail to postmaster@ and abuse@, bounces in a form that it doesn't know, replies by people.
The relay keeps 1000 messages and 64 MiB at most; then the oldest go.`,
		Example: `  mta bounce list
  mta bounce list --json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return err
			}
			return c.bounceList(cmd.Context(), &p)
		},
	}
	p.add(cmd, "messages")
	return cmd
}

func (c *cli) bounceList(ctx context.Context, p *pageFlags) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	l, err := collect(p, func(l *api.InboundList) (*[]api.InboundMail, *string) { return &l.Mail, &l.Next },
		func(after string, limit int) (api.InboundList, error) { return client.Inbound(ctx, after, limit) })
	switch {
	case err != nil:
		return err
	case p.asJSON:
		return writeJSON(c.out, l)
	case len(l.Mail) == 0:
		fmt.Fprintln(c.err, "no inbound mail is kept")
		return nil
	}
	t := &draw.Table{
		Columns:   []draw.Column{{Title: "ID"}, {Title: "AGE", Right: true}, {Title: "KIND"}, {Title: "FROM", Shrink: true}, {Title: "TO", Shrink: true}, {Title: "SIZE", Right: true}},
		NoteTitle: "SUBJECT",
	}
	for _, m := range l.Mail {
		t.Add(m.Subject, m.ID, short.Age(c.now().Sub(m.Time)), m.Kind, sentBy(&m), strings.Join(m.Recipients, ", "), short.Size(m.Size))
	}
	if err := t.Write(c.out, c.screen); err != nil {
		return err
	}
	if l.Next != "" {
		fmt.Fprintf(c.err, "%s shown of %d; for the next ones add: --after %q\n", plural(len(l.Mail), "message"), l.Kept, l.Next)
	}
	if l.Dropped > 0 {
		fmt.Fprintf(c.err, "%s deleted since the start of the relay, for space\n", plural(int(l.Dropped), "message"))
	}
	return nil
}

// sentBy is the author of a mail, or else its sender.
func sentBy(m *api.InboundMail) string {
	if m.From != "" {
		return m.From
	}
	return angled(m.Sender)
}

func newBounceShow(c *cli) *cobra.Command {
	var asJSON, content bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show a message that 'mta bounce list' lists",
		Long: `Show what is known about a message, and its headers and body, with ? for control characters.
--content prints the message alone, and into a pipe or a file unchanged.`,
		Example: `  mta bounce show 0k7w1v0z8g002
  mta bounce show 0k7w1v0z8g002 --content >report.eml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one message, as in the first column of 'mta bounce list', got %d arguments", len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.bounceShow(cmd.Context(), args[0], asJSON, content)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print what is known as JSON, without the content")
	cmd.Flags().BoolVar(&content, "content", false, "print the headers and the body alone")
	cmd.MarkFlagsMutuallyExclusive("json", "content")
	return cmd
}

func (c *cli) bounceShow(ctx context.Context, id string, asJSON, content bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if content && !c.screen.TTY {
		return client.InboundContent(ctx, id, c.out)
	}
	if !content {
		m, err := client.InboundMail(ctx, id)
		if err != nil {
			return err
		}
		if asJSON {
			return writeJSON(c.out, m)
		}
		c.inboundFacts(&m)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(client.InboundContent(ctx, id, w)) }()
	defer r.Close()
	return writeClean(c.out, r)
}

// inboundFacts prints what is known about a message beside its content, and a blank line.
func (c *cli) inboundFacts(m *api.InboundMail) {
	by := m.Peer
	if m.Helo != "" {
		by += " (" + m.Helo + ")"
	}
	for _, f := range []struct{ name, value string }{
		{"id", m.ID}, {"kind", m.Kind}, {"arrived", moment(m.Time, c.now())}, {"from", by}, {"sender", angled(m.Sender)},
		{"to", strings.Join(m.Recipients, ", ")}, {"about", m.Message}, {"size", short.Size(m.Size)},
	} {
		if f.value != "" {
			fmt.Fprintf(c.out, "%-8s %s\n", f.name, draw.Clean(f.value))
		}
	}
	fmt.Fprintln(c.out)
}
