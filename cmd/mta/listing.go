package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"example.org/mta/cmd/mta/draw"
	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// pageFlags are the flags of a listing in pages.
type pageFlags struct {
	limit  int
	after  string
	asJSON bool
}

func (p *pageFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&p.limit, "limit", api.DefaultLimit, what+" on the page; 0: all")
	cmd.Flags().StringVar(&p.after, "after", "", "continue after the previous page (`cursor`)")
	cmd.Flags().BoolVar(&p.asJSON, "json", false, "print JSON")
}

func (p *pageFlags) check() error {
	if p.limit < 0 {
		return usagef("--limit can't be negative")
	}
	return nil
}

// collect asks for pages until there are as many rows as the flags want. It gives them as one page; of returns the rows
// of a page, and the cursor of the next one.
func collect[L, T any](
	p *pageFlags, of func(*L) (*[]T, *string), ask func(after string, limit int) (L, error),
) (L, error) {
	all, after := []T{}, p.after
	for {
		n := api.MaxLimit
		if p.limit > 0 {
			n = min(p.limit-len(all), n)
		}
		l, err := ask(after, n)
		if err != nil {
			return l, err
		}
		rows, next := of(&l)
		all = append(all, *rows...)
		if after = *next; after == "" || len(all) == p.limit {
			*rows = all
			return l, nil
		}
	}
}

// colours are those of states: green goes on, yellow waits, red needs an operator.
var colours = map[listing.Colour]draw.Colour{listing.Good: draw.Green, listing.Warn: draw.Yellow, listing.Bad: draw.Red}

func colourOf(state string) draw.Colour { return colours[listing.ColourOf(state)] }

// look is what the cells of listings are made with.
func (c *cli) look() listing.Look { return listing.Look{Now: c.now(), Zone: time.Local} }

// tableOf makes the table of a listing.
func tableOf[T any](c *cli, l listing.Listing[T], rows []T) *draw.Table {
	l = l.For(listing.CLI)
	t := &draw.Table{NoteTitle: l.NoteTitle}
	for _, col := range l.Columns {
		t.Columns = append(t.Columns,
			draw.Column{Title: col.Title, Right: col.Right, Shrink: col.Shrink, Spare: col.Spare})
	}
	for i := range rows {
		var texts []string
		for j, cell := range l.Cells(&rows[i], c.look()) {
			texts = append(texts, cell.Text)
			if cell.Is == listing.IsState {
				t.Columns[j].Colour = colourOf
			}
		}
		t.Add(l.Note(&rows[i], c.look()), texts...)
	}
	return t
}

// printTable prints a table that has rows.
func (c *cli) printTable(t *draw.Table) error {
	if t.Empty() {
		return nil
	}
	return t.Write(c.out, c.screen)
}

// printPage prints a page of a listing, and on standard error what is not shown.
func printPage[T any](c *cli, l listing.Listing[T], rows []T, next string) error {
	if err := c.printTable(tableOf(c, l, rows)); err != nil {
		return err
	}
	c.pageFooter(len(rows), l.Noun, next, "no "+l.Noun+" is known or matches")
	return nil
}

// pageFooter prints on standard error, where it is in the way of no program, what is not shown, or that there is
// nothing.
func (c *cli) pageFooter(shown int, what, next, nothing string) {
	switch {
	case next != "":
		fmt.Fprintf(c.err, "%s shown; for the next ones add: --after %q\n", plural(shown, what), next)
	case shown == 0:
		fmt.Fprintln(c.err, nothing)
	}
}
