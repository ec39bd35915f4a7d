package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/internal/short"
	"example.org/mta/internal/visible"
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
	e := json.NewEncoder(visible.Writer(w))
	e.SetEscapeHTML(false)
	return e
}

// moment is a time for people, with its distance from now.
func moment(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return t.Local().Format(time.DateTime) + " (in " + short.Left(d) + ")"
	}
	return t.Local().Format(time.DateTime) + " (" + short.Age(now.Sub(t)) + " ago)"
}

// plural counts in words.
func plural(n int, noun string) string { return short.Count(n, noun) }

// fact prints a line of what is known, wrapped where the screen is narrow.
func (c *cli) fact(name, format string, args ...any) {
	text := draw.Clean(fmt.Sprintf("%-9s  %s", name, fmt.Sprintf(format, args...)))
	fmt.Fprintln(c.out, draw.Wrap(text, c.screen.Width, 11))
}

// angled writes an address as on the wire; the null sender is <>.
func angled(address string) string { return "<" + address + ">" }
