package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"mta/internal/visible"
	"mta/mta/control"
)

// screen is what standard output can show. The zero screen is a pipe or a file: lines of any
// length, no colour.
type screen struct {
	tty    bool
	width  int // columns; 0: no limit
	colour bool
}

// column is one of a table.
type column struct {
	title  string
	right  bool // numbers
	shrink bool // can be cut when the screen is narrow
}

// table is rows under titles. Every row has a cell for each column; its note comes last, on the
// same line if there is room and else below.
type table struct {
	columns   []column
	noteTitle string
	rows      [][]string
	notes     []string
	untitled  bool // goes on where another has ended
}

const (
	gap             = "  "
	leastCell       = 16 // to which a column is cut
	leastNote       = 30 // below which notes get lines of their own
	noteIndent      = "    "
	boldOn, boldOff = "\x1b[1m", "\x1b[0m"
)

func (t *table) add(note string, cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
	t.notes = append(t.notes, clean(note))
}

// write prints the table in columns that align on s.
func (t *table) write(w io.Writer, s screen) error {
	widths := t.widths()
	used := t.fit(widths, s)
	inline := t.hasNotes() && (s.width == 0 || s.width-used-len(gap) >= leastNote)
	var b strings.Builder
	if !t.untitled {
		t.titles(&b, widths, inline, s)
	}
	for i, row := range t.rows {
		note := t.notes[i]
		if inline || note == "" {
			t.line(&b, widths, row, note, s, false)
			continue
		}
		t.line(&b, widths, row, "", s, false)
		b.WriteString(cut(noteIndent+note, s.width) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t *table) titles(b *strings.Builder, widths []int, notes bool, s screen) {
	titles := make([]string, len(t.columns))
	for i, c := range t.columns {
		titles[i] = c.title
	}
	note := ""
	if notes {
		note = t.noteTitle
	}
	t.line(b, widths, titles, note, s, s.colour)
}

func (t *table) widths() []int {
	widths := make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = columns(c.title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], columns(row[i]))
		}
	}
	return widths
}

// fit cuts the widest of the columns that can be cut until the line fits, and gives its length.
func (t *table) fit(widths []int, s screen) int {
	used := len(gap) * (len(widths) - 1)
	for _, n := range widths {
		used += n
	}
	for s.width > 0 && used > s.width {
		widest := -1
		for i, c := range t.columns {
			if c.shrink && widths[i] > leastCell && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		used--
	}
	return used
}

func (t *table) hasNotes() bool {
	for _, n := range t.notes {
		if n != "" {
			return true
		}
	}
	return false
}

func (t *table) line(b *strings.Builder, widths []int, cells []string, note string, s screen, emphatic bool) {
	var l strings.Builder
	for i, cell := range cells {
		if i > 0 {
			l.WriteString(gap)
		}
		cell = cut(cell, widths[i])
		pad := strings.Repeat(" ", max(0, widths[i]-columns(cell)))
		if t.columns[i].right {
			l.WriteString(pad + cell)
		} else {
			l.WriteString(cell + pad)
		}
	}
	if note != "" {
		l.WriteString(gap + note)
	}
	text := strings.TrimRight(l.String(), " ")
	if s.width > 0 {
		text = cut(text, s.width)
	}
	if emphatic {
		text = boldOn + text + boldOff
	}
	b.WriteString(text + "\n")
}

// columns is how many columns of a terminal s takes.
func columns(s string) int {
	n := 0
	for _, r := range s {
		n += runeColumns(r)
	}
	return n
}

func runeColumns(r rune) int {
	if unicode.In(r, unicode.Mn, unicode.Me, unicode.Cf) {
		return 0
	}
	switch width.LookupRune(r).Kind() {
	case width.EastAsianWide, width.EastAsianFullwidth:
		return 2
	}
	return 1
}

// cut shortens s to n columns, with a sign that something is missing. n below 1 cuts nothing.
func cut(s string, n int) string {
	if n < 1 || columns(s) <= n {
		return s
	}
	used := 0
	for i, r := range s {
		if used += runeColumns(r); used > n-1 {
			return s[:i] + "…"
		}
	}
	return s
}

// clean takes from s what would make a terminal do something else than show it: much of what we
// print was written by strangers. Line ends stay.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n', unicode.IsPrint(r): // not Cf: what turns the direction of text can make it say something else
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, s)
}

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
