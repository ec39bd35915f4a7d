package web

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"example.org/mta/operator/listing"
)

// table is a listing on a page, for {{template "table"}}.
type table struct {
	Label string // for those who don't see it
	Empty string // what would stand here
	// May is the path of the action that buttons and ticks are for: roles that may not carry it out have none.
	May    string
	Ticked string // the noun of what is ticked; "": nothing is
	Heads  []head
	Rows   []tableRow
}

type head struct{ Title, Class string }

// tableRow is a row. ID is that of its element, Tick what its box stands for.
type tableRow struct {
	ID, Tick string
	Cells    []listing.Cell
	Note     string
	Acts     []act
}

// newTable makes the table of a listing.
func newTable[T any](r *request, l listing.Listing[T], rows []T) *table {
	l = l.For(listing.Console)
	t := &table{Label: listing.Long(l.Name), Empty: "No " + l.Noun + " fits: " + l.Empty + "."}
	for _, c := range l.Columns {
		class := ""
		if c.Right {
			class = "n"
		}
		t.Heads = append(t.Heads, head{listing.Long(c.Title), class})
	}
	t.Heads = append(t.Heads, head{listing.Long(l.NoteTitle), "wide"})
	look := listing.Look{Now: r.now, Zone: time.UTC}
	for i := range rows {
		id := l.Name[:1] + "-" + l.Key(&rows[i])
		t.Rows = append(t.Rows, tableRow{ID: id, Cells: l.Cells(&rows[i], look), Note: l.Note(&rows[i], look)})
	}
	return t
}

// tick gives rows their boxes, where name gives what is ticked.
func (t *table) tick(may, nouns string, name func(i int) string) {
	t.May, t.Ticked = may, nouns
	for i := range t.Rows {
		t.Rows[i].Tick = name(i)
	}
}

// linked are the pages of what cells link to, and the parameter that names it; "" is the end of the path.
var linked = map[string]struct{ path, param string }{
	listing.ToMessage:  {"/messages/", ""},
	listing.ToSite:     {"/site", "name"},
	listing.ToSource:   {"/sources", "name"},
	listing.ToPool:     {"/pools", "name"},
	listing.ToTenant:   {"/tenants", "name"},
	listing.ToTenants:  {"/tenants", "pool"},
	listing.ToProvider: {"/providers", "name"},
	listing.ToWarmup:   {"/warm-up", "source"},
	listing.ToQueue:    {"/queue", "tenant"},
}

// cell writes a cell of a listing.
func (s *Server) cell(c listing.Cell) template.HTML {
	text := cmp.Or(c.Long, c.Text)
	switch {
	case text == listing.Nothing:
		return none
	case len(c.Links) > 0:
		var links []string
		for _, l := range c.Links {
			to := linked[l.To]
			path, query := to.path, []any{to.param, l.Name}
			if to.param == "" {
				path, query = path+l.Name, nil
			}
			links = append(links, string(s.link(path, cmp.Or(l.Text, text), query...)))
		}
		return template.HTML(strings.Join(links, " "))
	case c.Is == listing.IsState:
		return state(text)
	case !c.Time.IsZero():
		stamp := c.Time.UTC().Format(time.RFC3339)
		return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%[1]s">%s</time>`, stamp, text))
	}
	return cut(60, text)
}

// none stands for what is not known.
const none template.HTML = `<span class="none">–</span>`

// state writes a word in its colour.
func state(word any) template.HTML {
	text := fmt.Sprint(word)
	colour := listing.ColourOf(text).String()
	return template.HTML(`<span class="state s-` + colour + `">` + template.HTMLEscapeString(text) + `</span>`)
}
