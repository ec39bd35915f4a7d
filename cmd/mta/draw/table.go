// Package draw draws tables, curves and text on a terminal, or for a pipe.
package draw

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"example.org/mta/internal/legible"
)

// Screen is what standard output can show. The zero Screen is a pipe or a file: lines of any
// length, no colour.
type Screen struct {
	TTY    bool
	Width  int // columns; 0: no limit
	Height int // lines; 0: no limit
	Colour bool
}

// Column is one of a table.
type Column struct {
	Title  string
	Right  bool // numbers
	Shrink bool // can be cut when the screen is narrow
	Spare  int  // left out when the screen is narrow, the largest first; 0: never

	Colour func(word string) Colour // nil: its words have none
}

// Table is rows under titles. Every row has a cell for each column; its note comes last, on the
// same line if there is space and else below.
type Table struct {
	Columns   []Column
	NoteTitle string
	Untitled  bool // goes on where another has ended

	rows  [][]string
	notes []string
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

// Colour is that of a word.
type Colour string

// The colours, by what a terminal is sent.
const (
	Green  Colour = "\x1b[32m"
	Yellow Colour = "\x1b[33m"
	Red    Colour = "\x1b[31m"
)

// Coloured gives a word in a colour, where there is any.
func (s Screen) Coloured(word string, c Colour) string {
	if s.Colour && c != "" {
		return string(c) + word + boldOff
	}
	return word
}

// New makes a table by the titles of its notes and columns. Signs before the title of a column: > for numbers, which
// align on the right, ~ for text that can be cut when the screen is narrow, and - for what is left out then.
func New(noteTitle string, titles ...string) *Table {
	t := &Table{NoteTitle: noteTitle}
	for _, title := range titles {
		title, right := strings.CutPrefix(title, ">")
		title, shrink := strings.CutPrefix(title, "~")
		title, spare := strings.CutPrefix(title, "-")
		c := Column{Title: title, Right: right, Shrink: shrink}
		if spare {
			c.Spare = 1
		}
		t.Columns = append(t.Columns, c)
	}
	return t
}

// Add adds a row; strangers may have written its text.
func (t *Table) Add(note string, cells ...any) {
	row := make([]string, len(cells))
	for i := range cells {
		row[i] = Clean(fmt.Sprint(cells[i]))
	}
	t.rows = append(t.rows, row)
	t.notes = append(t.notes, Clean(note))
}

// Write prints the table in columns that align on s.
func (t *Table) Write(w io.Writer, s Screen) error {
	widths := t.widths()
	for t.dropSpare(widths, s) {
		widths = t.widths()
	}
	used := t.fit(widths, s)
	inline := t.hasNotes() && (s.Width == 0 || s.Width-used-len(gap) >= leastNote)
	var b strings.Builder
	if !t.Untitled {
		t.titles(&b, widths, inline, s)
	}
	for i, row := range t.rows {
		note := t.notes[i]
		if inline || note == "" {
			t.line(&b, widths, row, note, s, false)
			continue
		}
		t.line(&b, widths, row, "", s, false)
		b.WriteString(Wrap(noteIndent+note, s.Width, len(noteIndent)) + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// dropSpare takes out the most spare column, if the line is too long even when the others are cut.
func (t *Table) dropSpare(widths []int, s Screen) bool {
	least := len(gap) * (len(widths) - 1)
	last := -1
	for i, n := range widths {
		c := t.Columns[i]
		if c.Shrink {
			n = min(n, leastCell)
		}
		if c.Spare > 0 && (last < 0 || c.Spare >= t.Columns[last].Spare) {
			last = i
		}
		least += n
	}
	if s.Width == 0 || least <= s.Width || last < 0 {
		return false
	}
	t.Columns = slices.Delete(slices.Clone(t.Columns), last, last+1)
	for i, row := range t.rows {
		t.rows[i] = slices.Delete(row, last, last+1)
	}
	return true
}

func (t *Table) titles(b *strings.Builder, widths []int, notes bool, s Screen) {
	titles := make([]string, len(t.Columns))
	for i, c := range t.Columns {
		titles[i] = c.Title
	}
	note := ""
	if notes {
		note = t.NoteTitle
	}
	t.line(b, widths, titles, note, s, s.Colour)
}

func (t *Table) widths() []int {
	widths := make([]int, len(t.Columns))
	for i, c := range t.Columns {
		widths[i] = legible.Columns(c.Title)
		for _, row := range t.rows {
			widths[i] = max(widths[i], legible.Columns(row[i]))
		}
	}
	return widths
}

// fit cuts the widest of the columns that can be cut until the line fits, and gives its length.
func (t *Table) fit(widths []int, s Screen) int {
	used := len(gap) * (len(widths) - 1)
	for _, n := range widths {
		used += n
	}
	for _, least := range []int{leastCell, tightCell} {
		for s.Width > 0 && used > s.Width {
			widest := -1
			for i, c := range t.Columns {
				if c.Shrink && widths[i] > least && (widest < 0 || widths[i] > widths[widest]) {
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

func (t *Table) hasNotes() bool {
	return slices.ContainsFunc(t.notes, func(n string) bool { return n != "" })
}

func (t *Table) line(b *strings.Builder, widths []int, cells []string, note string, s Screen, emphatic bool) {
	var lines []string
	l, used := "", 0
	for i, cell := range cells {
		if s.Width > 0 && used > 0 && used+len(gap)+widths[i] > s.Width { // what has no space goes below
			lines = append(lines, l)
			l, used = noteIndent, len(noteIndent)
		} else if i > 0 {
			l, used = l+gap, used+len(gap)
		}
		l += t.cell(i, cell, widths[i], s, emphatic)
		used += widths[i]
	}
	if note != "" {
		l += gap + indentBelow(Wrap(note, s.Width-used-len(gap), 0), used+len(gap))
	}
	for _, text := range append(lines, strings.Split(l, "\n")...) {
		text = strings.TrimRight(text, " ")
		if s.Width > 0 && !s.Colour {
			text = Cut(text, s.Width)
		}
		if emphatic {
			text = boldOn + text + boldOff
		}
		b.WriteString(text + "\n")
	}
}

// cell is one cell as wide as its column.
func (t *Table) cell(i int, text string, width int, s Screen, title bool) string {
	text = Cut(text, width)
	pad := strings.Repeat(" ", max(0, width-legible.Columns(text)))
	if colour := t.Columns[i].Colour; colour != nil && !title {
		text = s.Coloured(text, colour(text))
	}
	if t.Columns[i].Right {
		return pad + text
	}
	return text + pad
}

// Empty reports whether there are no rows.
func (t *Table) Empty() bool { return len(t.rows) == 0 }
