package main

import (
	"context"
	"io"
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

const topHelp = `Watch the relay on a terminal: rates with their last 15 minutes, the queue by state, alarms,
and a table of sites, providers, sources, tenants, warm-ups or connections. Keys sort and
filter it, explain why mail waits, trace conversations, and suspend and resume; those
that change something show what they would affect and ask first. Press ? for the keys.

The screen is refreshed every two seconds, or less often if the relay takes long to answer:
it spends at most 2 % of the time on it. When the relay is gone, the screen shows the age
of its figures and connects again as soon as it can. Colours are left out if $NO_COLOR is set.

--once prints one screen as text, and --json its data; neither needs a terminal.`

func newTop(c *cli) *cobra.Command {
	var (
		config       = top.Config{Now: c.now}
		once, asJSON bool
	)
	cmd := &cobra.Command{
		Use:   "top",
		Short: "watch the relay on a terminal, and steer it",
		Long:  topHelp,
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
				return hinted{usagef("standard output is not a terminal"), "for one screen as text: mta top --once; for programs: mta top --json"}
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			config.Relay, config.Printer, config.Caller = client, topPrinter{c}, c.caller()
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
	flags.StringVar(&config.Table, "table", top.Tables()[0], "the `table` to begin with: "+strings.Join(top.Tables(), ", "))
	flags.DurationVar(&config.Every, "every", 2*time.Second, "refresh the screen every so often (a `time` such as 5s)")
	flags.BoolVar(&once, "once", false, "print one screen as text")
	flags.BoolVar(&asJSON, "json", false, "print the data of one screen as JSON")
	oneOf(cmd, "table", top.Tables())
	return cmd
}

func (c *cli) topJSON(ctx context.Context, config top.Config) error {
	d, err := top.Ask(ctx, config)
	if err != nil {
		return err
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
	if err != nil {
		return err
	}
	_, err = io.WriteString(c.out, text)
	return err
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
type topPrinter struct{ c *cli }

// to is a cli like c that prints plain text of a width.
func (p topPrinter) to(w io.Writer, width int) *cli {
	c := *p.c
	c.out, c.err, c.screen = w, w, draw.Screen{TTY: true, Width: width}
	return &c
}

func (p topPrinter) Explain(ctx context.Context, q api.ExplainQuery, w io.Writer, width int) error {
	return p.to(w, width).explain(ctx, q, false)
}

func (p topPrinter) Warmup(ctx context.Context, source string, w io.Writer, width int) error {
	return p.to(w, width).warmupShow(ctx, source, false)
}

func (p topPrinter) Trace(ctx context.Context, q api.TraceQuery, w io.Writer, width int) error {
	c := p.to(w, width)
	client, err := c.client()
	if err != nil {
		return err
	}
	return client.Trace(ctx, q, nil, (&tracePrinter{c: c}).print)
}

var _ top.Relay = (*api.Client)(nil)
