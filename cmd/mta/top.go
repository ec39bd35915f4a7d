package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gdamore/tcell/v3"
	"github.com/spf13/cobra"
	"golang.org/x/text/encoding"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
	"example.org/mta/operator/top"
)

const topHelp = `Watch the relay on a terminal: rates with their last 15 minutes, the
queue by state, alarms, and a table of sites, providers, sources, tenants, warm-ups or
connections. Keys sort and filter it, explain, trace, suspend and resume; those that
change something show the effect and ask first. Press ? for the keys.

The screen is refreshed every two seconds, or less often if the relay takes long: it
spends at most 2 % of the time on it.

--cluster shows the rows of all nodes of the cluster, with the sums above them. Actions
are carried out at the node of the row; suspensions and pauses then hold at all. Traces
are for one node.

--once prints one screen as text, and --json its data; neither needs a terminal.`

func newTop(c *cli) *cobra.Command {
	var (
		config       = top.Config{Now: c.now}
		once, asJSON bool
	)
	cmd := &cobra.Command{
		Use: "top", Short: "watch the relay on a terminal, and steer it", Long: topHelp,
		Example: `  mta top
  mta top --table tenants
  mta top --once --table warm-ups`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case config.Every < leastWatch:
				return usagef("--every: want %v at least", leastWatch)
			case !slices.Contains(top.Tables(), config.Table):
				return usagef("--table: want %s, not %q", strings.Join(top.Tables(), ", "), config.Table)
			case !once && !asJSON && !c.screen.TTY:
				return hinted{usagef("standard output is not a terminal"),
					"for one screen as text: mta top --once; for programs: mta top --json"}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			config.Relay, config.Printer, config.Caller = client, topPrinter{c, client}, c.caller()
			switch {
			case asJSON:
				return c.topJSON(cmd.Context(), config)
			case once:
				return c.topOnce(cmd.Context(), config)
			}
			return runTop(cmd.Context(), config)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&config.Table, "table", top.Tables()[0],
		"the `table` to begin with: "+strings.Join(top.Tables(), ", "))
	flags.DurationVar(&config.Every, "every", 2*time.Second, "refresh the screen every so often (a `time` such as 5s)")
	flags.BoolVar(&config.Cluster, "cluster", false, "show the rows of all nodes of the cluster, and act at them")
	flags.BoolVar(&once, "once", false, "print one screen as text")
	flags.BoolVar(&asJSON, "json", false, "print the data of one screen as JSON")
	oneOf(cmd, "table", top.Tables())
	return cmd
}

func (c *cli) topJSON(ctx context.Context, config top.Config) error {
	d, err := top.Ask(ctx, config)
	switch {
	case err != nil:
		return err
	case config.Cluster:
		all := withFailures(map[string]any{"time": d.Time, "nodes": d.Nodes}, d.Failed)
		if err := writeJSON(c.out, all); err != nil || len(d.Failed) == 0 {
			return err
		}
		return d.Failed
	}
	return writeJSON(c.out, d)
}

// topOnce prints a screen of the terminal's size, else of $COLUMNS and $LINES, else of 80 by 24.
func (c *cli) topOnce(ctx context.Context, config top.Config) error {
	size := func(of int, name string, usual int) int {
		if n, err := strconv.Atoi(c.env(name)); of <= 0 && err == nil && n > 0 && n <= 1000 {
			return n
		}
		if of <= 0 {
			return usual
		}
		return of
	}
	text, err := top.Once(ctx, config, size(c.screen.Width, "COLUMNS", 80), size(c.screen.Height, "LINES", 24))
	_, wrote := io.WriteString(c.out, text)
	return cmp.Or(err, wrote)
}

// runTop takes the terminal until the operator quits. A signal gives it back in order, too.
func runTop(ctx context.Context, config top.Config) error {
	// The locales C and POSIX name no character set. What the other commands print is UTF-8 there, too.
	tcell.RegisterEncoding("US-ASCII", encoding.Nop)
	screen, err := tcell.NewScreen(tcell.OptSanitizeContent(true))
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return hinted{usagef("the terminal can't be used: %v", err), "for one screen as text: mta top --once"}
	}
	defer screen.Fini()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer stop()
	return top.Run(ctx, config, screen)
}

// topPrinter prints pages as the commands print them.
type topPrinter struct {
	c      *cli
	client *api.Client
}

// to is a cli like c that prints plain text of a width.
func (p topPrinter) to(w io.Writer, width int) *cli {
	c := *p.c
	c.out, c.err, c.screen = w, w, draw.Screen{TTY: true, Width: width}
	return &c
}

func (p topPrinter) Explain(ctx context.Context, q api.ExplainQuery, w io.Writer, width int) error {
	e, err := api.OpExplain.Call(ctx, p.client, q)
	if err != nil {
		return err
	}
	return p.to(w, width).explain(e)
}

func (p topPrinter) Warmup(ctx context.Context, source string, w io.Writer, width int) error {
	warm, plan, err := p.client.WarmupAndPlan(ctx, source)
	if err != nil {
		return err
	}
	return p.to(w, width).warmupShow(&warm, &plan)
}

func (p topPrinter) Trace(ctx context.Context, q api.TraceQuery, w io.Writer, width int) error {
	return p.client.Trace(ctx, q, nil, (&tracePrinter{c: p.to(w, width)}).print)
}

const traceHelp = `Watch the SMTP conversations of the running relay live, until
interrupted. A line has the time, the last digits of the session id, and > for the
relay's lines or < for the host's; a heading names the host when the conversation
changes.

--site and --source select connections; --tenant and --recipient select transactions,
without lines outside of them. All given filters must match.

--clients shows sessions of clients instead, --listener and --client those of one
listener, address or network, without the content of messages.

Credentials are never shown, and content only with --content, which the relay's log
records. A viewer that can't keep up loses lines and gets their number: mail never
waits.`

func newTrace(c *cli) *cobra.Command {
	var (
		q      api.TraceQuery
		asJSON bool
	)
	cmd := &cobra.Command{
		Use: "trace", Short: "watch SMTP conversations live", Long: traceHelp,
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
			return usagef("--%s is for connections to hosts, and can't be combined with --clients, --listener and "+
				"--client", name)
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
		each = func(l api.TraceLine) error { return newEncoder(c.out).Encode(l) }
	}
	begun := func() { fmt.Fprintln(c.err, "watching; interrupt to end") }
	if q.Site != "" {
		known, err := api.OpSites.Call(ctx, client, api.SiteFilter{Names: []string{q.Site}})
		if err == nil && len(known.Sites) == 0 {
			fmt.Fprintf(c.err, "no mail has gone to a site %s yet: 'mta sites' lists the sites, which are named after "+
				"their hosts\n", draw.Clean(q.Site))
		}
	}
	switch err := client.Trace(ctx, q, begun, each); {
	case errors.Is(err, context.Canceled):
		return nil
	case err != nil:
		return err
	}
	fmt.Fprintln(c.err, "the relay has stopped")
	return nil
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
		if _, err := fmt.Fprintln(p.c.out,
			draw.Cut(draw.Clean(strings.TrimSuffix(line, "\n")), p.c.screen.Width)); err != nil {
			return err
		}
	}
	return nil
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
