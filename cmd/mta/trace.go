package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
)

const traceHelp = `Watch the SMTP conversations of the running relay live, until interrupted, on open
connections and on new ones. A line begins with the time, the last digits of the session
id, and > for the relay's lines or < for the host's; a heading names the host when the
conversation changes.

--site and --source select connections. --tenant and --recipient select transactions;
lines outside transactions are not shown then. All given filters must match. Commands
are shown when they are put into the flight, a moment before they are sent.

--clients shows sessions of clients instead, --listener and --client those of one
listener, or from one address or network; the content of messages is left out there.

Credentials are never shown, and the content of messages only with --content; the
relay's log records who asked for it. A viewer that can't keep up loses lines and gets
their number: mail never waits.`

func newTrace(c *cli) *cobra.Command {
	var (
		q      api.TraceQuery
		asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "trace",
		Short: "watch SMTP conversations live",
		Long:  traceHelp,
		Example: `  mta trace --site mx.example.com
  mta trace --recipient @example.com --content
  mta trace --tenant acme --json
  mta trace --client 192.0.2.0/24`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := clientTrace(cmd, &q); err != nil {
				return err
			}
			return c.trace(cmd.Context(), q, asJSON)
		},
	}
	c.addParams(cmd, &q)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a line of JSON for each line")
	return cmd
}

// clientTrace checks the flags that ask for sessions of clients.
func clientTrace(cmd *cobra.Command, q *api.TraceQuery) error {
	q.Clients = q.Clients || q.Listener != "" || q.Client.IsValid()
	if !q.Clients {
		return nil
	}
	for _, name := range []string{"site", "source", "recipient", "content"} {
		if cmd.Flags().Changed(name) {
			return usagef("--%s is for connections to hosts, and can't be combined with --clients, --listener and --client", name)
		}
	}
	return nil
}

func (c *cli) trace(ctx context.Context, q api.TraceQuery, asJSON bool) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	p := &tracePrinter{c: c}
	each := p.print
	if asJSON {
		each = func(l api.TraceLine) error { return writeLine(c, l) }
	}
	begun := func() { fmt.Fprintln(c.err, "watching; interrupt to end") }
	switch err := client.Trace(ctx, q, begun, each); {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintln(c.err, "the relay has stopped")
	return nil
}

func writeLine(c *cli, l api.TraceLine) error {
	return newEncoder(c.out).Encode(l)
}

// tracePrinter prints conversations that are mixed on the way here.
type tracePrinter struct {
	c    *cli
	last string // the session of the line before
}

func (p *tracePrinter) print(l api.TraceLine) error {
	var b strings.Builder
	if l.Lost > 0 {
		fmt.Fprintf(&b, "... %s lost: too fast to show\n", plural(l.Lost, "line"))
	}
	if l.Session == "" {
		return p.write(&b)
	}
	if l.Session != p.last {
		p.last = l.Session
		if l.Client != "" {
			fmt.Fprintf(&b, "--- session %s: client %s at listener %s\n", l.Session, l.Client, l.Listener)
		} else {
			fmt.Fprintf(&b, "--- session %s: %s from source %s, site %s\n", l.Session, l.Host, l.Source, l.Site)
		}
	}
	begin := fmt.Sprintf("%s %s %s ", l.Time.Local().Format("15:04:05.000"), tail(l.Session, 4), l.Direction)
	if !l.Content {
		fmt.Fprintf(&b, "%s%s\n", begin, l.Text)
		return p.write(&b)
	}
	for line := range strings.Lines(l.Text) {
		fmt.Fprintf(&b, "%s| %s\n", begin, strings.TrimRight(line, "\r\n"))
	}
	return p.write(&b)
}

func (p *tracePrinter) write(b *strings.Builder) error {
	for line := range strings.Lines(b.String()) {
		if _, err := fmt.Fprintln(p.c.out, draw.Cut(draw.Clean(strings.TrimSuffix(line, "\n")), p.c.screen.Width)); err != nil {
			return err
		}
	}
	return nil
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
