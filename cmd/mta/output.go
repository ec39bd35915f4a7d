package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/legible"
)

// oneLine joins the lines of a reply.
func oneLine(s string) string { return strings.ReplaceAll(s, "\n", " / ") }

// writeJSON prints what a command lists, for programs.
func writeJSON(w io.Writer, v any) error {
	e := newEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// newEncoder gives the encoder of all JSON that commands print: people look at it, too, and much
// of it was written by strangers.
func newEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(legible.Writer(w))
	e.SetEscapeHTML(false)
	return e
}

// moment is a time for people, with its distance from now.
func moment(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return t.Local().Format(time.DateTime) + " (in " + legible.Left(d) + ")"
	}
	return t.Local().Format(time.DateTime) + " (" + legible.Age(now.Sub(t)) + " ago)"
}

// plural counts in words.
func plural(n int, noun string) string { return legible.Count(n, noun) }

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// nonZero writes a number, "" for 0.
func nonZero[T int | int64](n T) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// facts prints lines of a name and a value.
type facts struct {
	c     *cli
	w     io.Writer
	width int  // of a name and the gap behind it
	wrap  bool // values are wrapped where the screen is narrow
}

// facts prints on standard output.
func (c *cli) facts(width int) facts { return facts{c: c, w: c.out, width: width} }

// wrapped prints on standard output what fits the screen.
func (c *cli) wrapped() facts { return facts{c: c, w: c.out, width: 11, wrap: true} }

// add prints a fact.
func (f facts) add(name, format string, args ...any) {
	text := draw.Clean(fmt.Sprintf("%-*s%s", f.width, name, fmt.Sprintf(format, args...)))
	if f.wrap {
		text = draw.Wrap(text, f.c.screen.Width, f.width)
	}
	fmt.Fprintln(f.w, text)
}

// some prints a fact unless it is "".
func (f facts) some(name, value string) {
	if value != "" {
		f.add(name, "%s", value)
	}
}

// at prints a time unless it is the zero time.
func (f facts) at(name string, t time.Time) {
	if !t.IsZero() {
		f.add(name, "%s", moment(t, f.c.now()))
	}
}

// list prints the values of one fact, its name with the first.
func (f facts) list(name string, values []string) {
	for _, v := range values {
		f.add(name, "%s", v)
		name = ""
	}
}

// angled writes an address as on the wire; the null sender is <>.
func angled(address string) string { return "<" + address + ">" }

const (
	watchEvery  = "2s" // --watch without a time
	leastWatch  = 100 * time.Millisecond
	clearScreen = "\x1b[H\x1b[2J\x1b[3J"
)

// watchable gives a command that prints a picture the flag --watch, by which it prints it again and
// again until interrupted. A terminal is redrawn; into a pipe the pictures go one after the other.
func (c *cli) watchable(cmd *cobra.Command) *cobra.Command {
	var every time.Duration
	cmd.Flags().DurationVar(&every, "watch", 0,
		"print it anew every so often (2s unless a `time` is given, as in --watch=10s), until interrupted")
	cmd.Flags().Lookup("watch").NoOptDefVal = watchEvery
	once := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case !cmd.Flags().Changed("watch"):
			return once(cmd, args)
		case every < leastWatch:
			return usagef("--watch: want %v at least", leastWatch)
		}
		return c.watch(every, func() error { return once(cmd, args) })
	}
	return cmd
}

// watch calls draw until interrupted. An error ends it: what was understood once is understood again,
// so it is the relay's.
func (c *cli) watch(every time.Duration, draw func() error) error {
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt)
	defer signal.Stop(interrupted)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := c.frame(draw); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-interrupted:
			return nil
		}
	}
}

// frame prints one picture. On a terminal it comes at once, remarks included, and as much of it as there
// are lines.
func (c *cli) frame(draw func() error) error {
	if !c.screen.TTY {
		return draw()
	}
	out, errs := c.out, c.err
	var b bytes.Buffer
	c.out, c.err = &b, &b
	err := draw()
	c.out, c.err = out, errs
	if err != nil {
		return err
	}
	text := b.String()
	if lines := strings.SplitAfter(text, "\n"); c.screen.Height > 1 && len(lines) > c.screen.Height {
		text = strings.Join(lines[:c.screen.Height-2], "") +
			fmt.Sprintf("... %d lines more\n", len(lines)-c.screen.Height+1)
	}
	_, err = io.WriteString(c.out, clearScreen+c.now().Local().Format(time.DateTime)+"\n"+text)
	return err
}
