package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/text/width"

	"example.org/mta/internal/visible"
	"example.org/mta/mta/control"
)

// screen is what standard output can show. The zero screen is a pipe or a file: lines of any
// length, no colour.
type screen struct {
	tty    bool
	width  int // columns; 0: no limit
	height int // lines; 0: no limit
	colour bool
}

// column is one of a table.
type column struct {
	title  string
	right  bool // numbers
	shrink bool // can be cut when the screen is narrow
	state  bool // words that have a colour
	spare  bool // left out when the screen is narrow
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
	leastCell       = 16 // to which a column is cut at first
	tightCell       = 8  // and if the line is still too long
	leastNote       = 30 // below which notes get lines of their own
	leastWrap       = 20 // columns below which nothing can be wrapped
	noteIndent      = "    "
	boldOn, boldOff = "\x1b[1m", "\x1b[0m"
)

// What states look like where there is colour: green goes on, yellow waits, red needs a look.
var stateColours = map[string]string{
	"running": green, "active": green, "idle": green, "ok": green, "Delivery": green, "sending": green,
	"waiting": yellow, "deferred": yellow, "retry": yellow, "TransientFailure": yellow, "draining": yellow, "warning": yellow, "unknown": yellow, "warming": yellow,
	"failed": red, "held": red, "unreadable": red, "suspended": red, "missing": red, "paused": red, "refusing": red, "alarm": red,
	"Bounce": red, "Expiration": red, "AdminBounce": red, "Rejection": red, "Damage": red, "Lost": red,
}

const (
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	red    = "\x1b[31m"
)

// coloured gives a word in the colour of the state that it names, where there is colour.
func (s screen) coloured(word string) string {
	if colour := stateColours[word]; s.colour && colour != "" {
		return colour + word + boldOff
	}
	return word
}

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
	for t.dropSpare(widths, s) {
		widths = t.widths()
	}
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
		b.WriteString(wrap(noteIndent+note, s.width, len(noteIndent)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// dropSpare takes out the last spare column, if the line is too long even when the others are cut.
func (t *table) dropSpare(widths []int, s screen) bool {
	least := len(gap) * (len(widths) - 1)
	last := -1
	for i, n := range widths {
		if c := t.columns[i]; c.shrink {
			n = min(n, leastCell)
		} else if c.spare {
			last = i
		}
		least += n
	}
	if s.width == 0 || least <= s.width || last < 0 {
		return false
	}
	t.columns = slices.Delete(slices.Clone(t.columns), last, last+1)
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, last, last+1)
	}
	return true
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
	for _, least := range []int{leastCell, tightCell} {
		for s.width > 0 && used > s.width {
			widest := -1
			for i, c := range t.columns {
				if c.shrink && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				break
			}
			widths[widest]--
			used--
		}
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
	var lines []string
	l, used := "", 0
	for i, cell := range cells {
		if s.width > 0 && used > 0 && used+len(gap)+widths[i] > s.width { // what has no room goes below
			lines = append(lines, l)
			l, used = noteIndent, len(noteIndent)
		} else if i > 0 {
			l, used = l+gap, used+len(gap)
		}
		l += t.cell(i, cell, widths[i], s, emphatic)
		used += widths[i]
	}
	if note != "" {
		l += gap + indentBelow(wrap(note, s.width-used-len(gap), 0), used+len(gap))
	}
	for _, text := range append(lines, strings.Split(l, "\n")...) {
		text = strings.TrimRight(text, " ")
		if s.width > 0 && !s.colour {
			text = cut(text, s.width)
		}
		if emphatic {
			text = boldOn + text + boldOff
		}
		b.WriteString(text + "\n")
	}
}

// cell is one cell as wide as its column.
func (t *table) cell(i int, text string, width int, s screen, title bool) string {
	text = cut(text, width)
	pad := strings.Repeat(" ", max(0, width-columns(text)))
	if t.columns[i].state && !title {
		text = s.coloured(text)
	}
	if t.columns[i].right {
		return pad + text
	}
	return text + pad
}

// wrap breaks s into lines of at most n columns, between words where it can; those after the first
// begin with some blanks. With n below 1 there is no limit, and a very small one cuts.
func wrap(s string, n, indent int) string {
	switch {
	case n < 1 || columns(s) <= n:
		return s
	case n < leastWrap:
		return cut(s, n)
	}
	var b strings.Builder
	for begin := 0; columns(s) > n-begin; begin = indent {
		at := breakAt(s, n-begin)
		b.WriteString(strings.TrimRight(s[:at], " ") + "\n" + strings.Repeat(" ", indent))
		s = strings.TrimLeft(s[at:], " ")
	}
	return b.String() + s
}

// breakAt is where a line of n columns ends: behind the last word that fits, or within a word that is
// longer than half a line.
func breakAt(s string, n int) int {
	used, space := 0, 0
	for i, r := range s {
		if used += runeColumns(r); used > n {
			if r == ' ' {
				return i
			}
			if columns(s[:space]) > n/2 {
				return space
			}
			return i
		}
		if r == ' ' {
			space = i + 1
		}
	}
	return len(s)
}

// indentBelow puts blanks before all lines but the first.
func indentBelow(s string, n int) string {
	return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
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
