package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/internal/visible"
	"example.org/mta/mta/control"
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

// shortAge is a duration for people, in at most two units: 4s, 7m, 2h5m, 3d4h.
func shortAge(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Minute:
		return control.Age(d.Truncate(time.Second)).String()
	case d < time.Hour:
		return control.Age(d.Truncate(time.Minute)).String()
	case d < 24*time.Hour:
		return control.Age(d.Truncate(time.Minute)).String()
	}
	return fmt.Sprintf("%dd%dh", d/(24*time.Hour), d%(24*time.Hour)/time.Hour)
}

// shortLeft is shortAge for a time that is yet to pass. A begun second counts as a whole one, or what
// has just been set to 30m would be shown as 29m.
func shortLeft(d time.Duration) string { return shortAge((d + time.Second - 1).Truncate(time.Second)) }

// shortSize is a number of octets for people: 611, 2.3K, 47K, 1.1M.
func shortSize(n int64) string {
	if n < 1024 {
		return fmt.Sprint(n)
	}
	v := float64(n)
	for _, unit := range []string{"K", "M", "G"} {
		v /= 1024
		if v < 9.95 {
			return fmt.Sprintf("%.1f%s", v, unit)
		}
		if v < 1023.5 {
			return fmt.Sprintf("%.0f%s", v, unit)
		}
	}
	return fmt.Sprintf("%.0fT", v/1024)
}

// moment is a time for people, with its distance from now.
func moment(t, now time.Time) string {
	if d := t.Sub(now); d > 0 {
		return t.Local().Format(time.DateTime) + " (in " + shortLeft(d) + ")"
	}
	return t.Local().Format(time.DateTime) + " (" + shortAge(now.Sub(t)) + " ago)"
}

// plural counts in words: "1 message", "2 messages".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// angled writes an address as on the wire; the null sender is <>.
func angled(address string) string { return "<" + address + ">" }
