package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"mta/mta/control"
)

const queueListHelp = `List messages in the queue, a line for each recipient: the message's id, age, size
and sender, the recipient and its state, how often it was tried, when it is tried
next, and what was answered last.

A page has --limit messages; the hint below it says how to get the next one. Of a
message with many recipients the first --recipients are shown.`

func newQueueList(c *cli) *cobra.Command {
	var (
		filters filterFlags
		page    control.Page
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
	filters.add(cmd)
	flags := cmd.Flags()
	flags.StringVar((*string)(&page.Order), "order", string(control.OldestFirst), "what comes first: `oldest, newest`, or next (what is tried first)")
	flags.IntVar(&page.Limit, "limit", control.DefaultLimit, "messages on the page; 0: all that there are")
	flags.StringVar(&page.After, "after", "", "go on where the page before has ended (`cursor`)")
	flags.IntVar(&page.Recipients, "recipients", control.DefaultRecipients, "recipients shown of each message at most; 0: all")
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	oneOf(cmd, "order", control.Orders)
	return cmd
}

func (c *cli) queueList(ctx context.Context, f control.Filter, p control.Page, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	if asJSON {
		return c.listJSON(ctx, client, f, p)
	}
	shown := 0
	next, err := eachPage(ctx, client, f, p, func(l control.List) error {
		if len(l.Messages) == 0 {
			return nil
		}
		t := c.messageTable(l.Messages)
		t.untitled = shown > 0
		shown += len(l.Messages)
		return t.write(c.out, c.screen)
	})
	if err != nil {
		return err
	}
	c.listFooter(f, shown, next)
	return nil
}

// eachPage asks for pages until there are p.Limit messages, or with 0 to the end, and gives the
// cursor of what follows.
func eachPage(ctx context.Context, client *control.Client, f control.Filter, p control.Page, each func(control.List) error) (next string, err error) {
	left := p.Limit
	for {
		p.Limit = control.MaxLimit
		if left > 0 {
			p.Limit = min(left, control.MaxLimit)
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

func (c *cli) messageTable(messages []control.Item) *table {
	t := &table{
		columns: []column{
			{title: "ID"}, {title: "AGE", right: true}, {title: "SIZE", right: true}, {title: "SENDER", shrink: true},
			{title: "RECIPIENT", shrink: true}, {title: "STATE"}, {title: "TRIES", right: true}, {title: "NEXT", right: true},
		},
		noteTitle: "REASON",
	}
	for _, m := range messages {
		first := []string{m.ID, shortAge(c.now().Sub(m.Received)), shortSize(m.Size), angled(m.Sender)}
		if m.Unreadable {
			first = []string{m.ID, shortAge(c.now().Sub(m.Received)), "?", "?"}
		}
		for _, r := range m.Recipients {
			t.add(reason(r), append(first, angled(r.Address), string(r.State), fmt.Sprint(r.Attempts), nextTry(r, c.now()))...)
			first = []string{"", "", "", ""}
		}
		if left := m.Matching - len(m.Recipients); left > 0 {
			t.add("", "", "", "", "", "... and "+plural(left, "more recipient"), "", "", "")
		}
	}
	return t
}

// listFooter says on standard error, where it is in the way of no program, what is not shown.
func (c *cli) listFooter(f control.Filter, shown int, next string) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %s\n", plural(shown, "message"), next)
	case shown == 0 && f.Empty():
		fmt.Fprintln(c.err, "the queue is empty")
	case shown == 0:
		fmt.Fprintln(c.err, "nothing in the queue fits")
	}
}

// listJSON prints one object as the API does, however many pages it takes.
func (c *cli) listJSON(ctx context.Context, client *control.Client, f control.Filter, p control.Page) error {
	// Nothing is written before the first answer, so that an error leaves no half of an object.
	begin, between := "{\n  \"messages\": [", "\n    "
	next, err := eachPage(ctx, client, f, p, func(l control.List) error {
		var b strings.Builder
		b.WriteString(begin)
		begin = ""
		for _, m := range l.Messages {
			b.WriteString(between)
			if err := indented(&b, m); err != nil {
				return err
			}
			between = ",\n    "
		}
		_, err := io.WriteString(c.out, b.String())
		return err
	})
	if err != nil {
		return err
	}
	end := "\n  ]"
	if between == "\n    " {
		end = "]"
	}
	if next != "" {
		text, err := json.Marshal(next)
		if err != nil {
			return err
		}
		end += ",\n  \"next\": " + string(text)
	}
	_, err = io.WriteString(c.out, end+"\n}\n")
	return err
}

// indented writes a message as an element of the list.
func indented(b *strings.Builder, m control.Item) error {
	var text bytes.Buffer
	e := newEncoder(&text)
	e.SetIndent("    ", "  ")
	err := e.Encode(m)
	b.Write(bytes.TrimSpace(text.Bytes()))
	return err
}
