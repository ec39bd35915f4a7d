// Package listing has the columns of each listing that operators see. The command line, mta top and the console draw
// from it, so a figure has one name and one form on all three. A new column is a line in the file of its listing.
package listing

import (
	"cmp"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// Face is where operators see a listing.
type Face uint8

// The faces.
const (
	CLI Face = 1 << iota
	Top
	Console
)

// Look is what cells are made with, besides their row.
type Look struct {
	Now  time.Time
	Zone *time.Location
	// Latest is what the history has of the row's subject; nil: nothing.
	Latest map[string]api.Figure
}

// Reason is the title of notes that say why a row is as it is.
const Reason = "REASON"

// Listing is how rows of type T are listed.
type Listing[T any] struct {
	Name      string // in the plural
	Noun      string
	Empty     string // what would stand here, where there are no rows
	Columns   []Column[T]
	NoteTitle string // "": Reason
	// Note is why a row is as it is.
	Note func(*T, Look) string
	// Key identifies a row.
	Key func(*T) string
	// Compare is how rows compare in an order of the listing; nil: as their keys.
	Compare func(order string, a, b *T) int
	// Rest is by which name the history has the row without a key; "": by none.
	Rest string
}

// Subject is by which name the history has a row.
func (l *Listing[T]) Subject(row *T) string { return cmp.Or(l.Key(row), l.Rest) }

// In returns how rows compare in an order of the listing.
func (l *Listing[T]) In(order string) func(a, b *T) int {
	if l.Compare == nil {
		return func(a, b *T) int { return cmp.Compare(l.Key(a), l.Key(b)) }
	}
	return func(a, b *T) int { return l.Compare(order, a, b) }
}

// byMail compares rows in the orders of api.SiteOrder: by their mail, or what of it waits, and by their names.
func byMail[T any](mail func(*T) int, waits func(*T) []api.WaitsFor, name func(*T) string) func(string, *T, *T) int {
	return func(order string, a, b *T) int {
		size := 0
		switch api.SiteOrder(order) {
		case api.BySize:
			size = cmp.Compare(mail(b), mail(a))
		case api.ByWorst:
			size = cmp.Compare(api.Worst(waits(b)), api.Worst(waits(a)))
		}
		return cmp.Or(size, cmp.Compare(name(a), name(b)))
	}
}

// Column is one of a listing. The first names the row.
type Column[T any] struct {
	Title  string
	Right  bool // figures, of which the largest come first
	Shrink bool // can be cut when the screen is narrow
	Spare  int  // left out when the screen is narrow, the largest first; 0: never
	In     Face // where it is shown; 0: on all faces
	// Cell makes a cell by the row alone, At by the time too.
	Cell func(*T) Cell
	At   func(*T, Look) Cell
}

// For gives the listing with the columns of a face, and a title of the notes.
func (l Listing[T]) For(f Face) Listing[T] {
	var some []Column[T]
	for _, c := range l.Columns {
		if c.In == 0 || c.In&f != 0 {
			some = append(some, c)
		}
	}
	l.Columns, l.NoteTitle = some, cmp.Or(l.NoteTitle, Reason)
	return l
}

// Cells gives the cells of a row.
func (l *Listing[T]) Cells(row *T, look Look) []Cell {
	cells := make([]Cell, len(l.Columns))
	for i, c := range l.Columns {
		if c.At != nil {
			cells[i] = c.At(row, look)
		} else {
			cells[i] = c.Cell(row)
		}
	}
	return cells
}

// long has the titles that are abbreviated in terminals.
var long = map[string]string{
	"CONNS": "Connections", "ACC/s": "Accepted/s", "DELIV/s": "Delivered/s", "FAIL/s": "Failed/s",
	"ID": "ID", "IP": "Address", "TLS": "TLS", "EHLO": "EHLO",
	"HOUR": "This hour", "DAY": "Today", "LAST": "Last good", "DIVERTED": "Diverted today", "DIR": "Direction",
	"SHARED": "Shared sources", "DEDICATED": "Dedicated sources",
}

// Long is a title where there is space for all of its words.
func Long(title string) string {
	if text := long[title]; text != "" {
		return text
	}
	return strings.ToUpper(title[:1]) + strings.ToLower(title[1:])
}

// Join joins the notes that are not empty.
func Join(notes ...string) string {
	var some []string
	for _, n := range notes {
		if n != "" {
			some = append(some, n)
		}
	}
	return strings.Join(some, "; ")
}
