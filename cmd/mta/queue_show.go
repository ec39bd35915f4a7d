package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/operator/api"
)

const queueShowHelp = `Show a message and each of its recipients in the queue: who submitted it, where it
goes, the last reply, the time of the next attempt, and when it expires.

Only --content shows the content of the message: headers and body as stored, octet for
octet unless standard output is a terminal.`

func newQueueShow(c *cli) *cobra.Command {
	var asJSON, content bool
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show a message",
		Long:  queueShowHelp,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("want the id of one message, got %d", len(args))
			}
			return nil
		},
		ValidArgsFunction: c.completeIDs,
		RunE: func(cmd *cobra.Command, args []string) error {
			f := api.Filter{IDs: args}
			if err := f.Check(); err != nil {
				return usageError{err}
			}
			if content {
				return c.queueContent(cmd.Context(), args[0])
			}
			return c.queueShow(cmd.Context(), args[0], asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&content, "content", false, "print the content of the message, headers and body")
	cmd.MarkFlagsMutuallyExclusive("json", "content")
	return cmd
}

func (c *cli) queueShow(ctx context.Context, id string, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	m, err := client.Get(ctx, id)
	if err != nil {
		return err
	}
	if asJSON {
		return writeJSON(c.out, m)
	}
	c.facts(m)
	t := &draw.Table{
		Columns: []draw.Column{
			{Title: "RECIPIENT", Shrink: true}, {Title: "STATE"}, {Title: "SITE", Shrink: true},
			{Title: "TRIES", Right: true}, {Title: "NEXT", Right: true}, {Title: "GIVEN UP IN", Right: true},
		},
		NoteTitle: "REASON",
	}
	for _, r := range m.Recipients {
		end := "-"
		if !r.Expires.IsZero() {
			end = short.Left(r.Expires.Sub(c.now()))
		}
		t.Add(r.Why(time.Local), angled(r.Address), string(r.State), orDash(r.Site), fmt.Sprint(r.Attempts), c.look().Next(&r).Text, end)
	}
	fmt.Fprintln(c.out)
	return t.Write(c.out, c.screen)
}

// facts prints what is true of the message as a whole.
func (c *cli) facts(m api.Item) {
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(c.out, "%-10s  %s\n", name, draw.Clean(fmt.Sprintf(format, args...)))
	}
	fact("message", "%s", m.ID)
	if m.Unreadable {
		fact("damaged", "its record can't be read: 'mta queue fsck' says where, 'mta queue retry' tries again")
	} else {
		fact("received", "%s", moment(m.Received, c.now()))
		fact("sender", "%s", angled(m.Sender))
		fact("size", "%s", plural(int(m.Size), "octet"))
	}
	if m.Peer != "" {
		by := ""
		for _, w := range []struct{ word, value string }{{"user", m.User}, {"as", m.HeloName}, {"by", m.Protocol}, {"session", m.Session}} {
			if w.value != "" {
				by += " " + w.word + " " + w.value
			}
		}
		fact("from", "%s%s", m.Peer, by)
	}
	if m.Tenant != "" {
		fact("tenant", "%s", m.Tenant)
	}
	if m.Campaign != "" {
		fact("campaign", "%s", m.Campaign)
	}
	for _, f := range []struct{ name, value string }{
		{"tags", strings.Join(m.Tags, ", ")}, {"meta", string(m.Meta)}, {"pool", m.Pool}, {"key", m.Key},
	} {
		if f.value != "" {
			fact(f.name, "%s", f.value)
		}
	}
	fact("tier", "%d", m.Tier)
	if !m.Expires.IsZero() {
		fact("expires", "%s", moment(m.Expires, c.now()))
	}
	if m.EnvID != "" {
		fact("envid", "%s", m.EnvID)
	}
	fact("recipients", "%d in the queue of %d", m.Matching, m.Total)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func (c *cli) queueContent(ctx context.Context, id string) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if !c.screen.TTY {
		return client.Content(ctx, id, c.out)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(client.Content(ctx, id, w)) }()
	defer r.Close()
	return writeClean(c.out, r)
}

// writeClean shows content on a terminal, see clean.
func writeClean(w io.Writer, r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if line != "" || err == nil {
			fmt.Fprintln(w, draw.Clean(line))
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
