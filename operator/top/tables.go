package top

import (
	"context"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// Table is one of the tables of the screen.
type Table int

// The tables, in the order of their keys.
const (
	sites Table = iota
	providers
	sources
	tenants
	warmups
	connections
	tables // how many there are
)

// kind is how a table looks and what can be done with its rows.
type kind struct {
	name    string
	subject string // what a row is, in an action on it
	columns []column
	sort    int // by which column, at first
	ask     func(context.Context, *api.Client, *fetch, int, *Data) error
	rows    func(*Data) []row
	empty   string // what an empty table would show
}

// column is one of a table. The first is what the row is about, and is cut when the screen is narrow.
type column struct {
	title string
	right bool // figures, of which the largest come first
	spare int  // left out when the screen is narrow, the largest first; 0: never
}

// row is a line of a table.
type row struct {
	node  int    // of the cluster, whose row it is; 0: this relay
	key   string // what the relay knows it by
	cells []listing.Cell
	note  string // why it is as it is
	style style

	site, source, tenant string // that its mail is of, for explanations and traces
	incoming             bool   // a connection of a client
}

// has reports whether a row has text, in lower case, in one of its words.
func (r *row) has(want string) bool {
	return slices.ContainsFunc(r.cells, func(c listing.Cell) bool {
		return c.Is != listing.IsFigure && strings.Contains(strings.ToLower(c.Text), want)
	})
}

// queuedTitle is of the columns that count recipients in the queue.
const queuedTitle = "QUEUED"

var kinds = [tables]kind{
	sites: kindOf(listing.Sites, "site", queuedTitle, func(d *Data) *[]api.Site { return &d.Sites },
		api.OpSites, func(f *fetch, p api.Paging) api.SiteFilter {
			return api.SiteFilter{Provider: f.of, Order: api.BySize, Paging: p}
		}, func(s *api.Site) row { return row{site: s.Name} }),
	providers: kindOf(listing.Providers, "provider", queuedTitle, func(d *Data) *[]api.Provider { return &d.Providers },
		api.OpProviders, func(_ *fetch, p api.Paging) api.UnpooledFilter {
			return api.UnpooledFilter{BlockFilter: largest(nil, p)}
		}, func(*api.Provider) row { return row{} }),
	sources: kindOf(listing.Sources, "source", "SOURCE", func(d *Data) *[]api.Source { return &d.Sources },
		api.OpSources, largest, func(s *api.Source) row { return row{source: s.Name} }),
	tenants: kindOf(listing.Tenants, "tenant", queuedTitle, func(d *Data) *[]api.Tenant { return &d.Tenants },
		api.OpTenants, func(_ *fetch, p api.Paging) api.TenantFilter {
			return api.TenantFilter{BlockFilter: largest(nil, p)}
		}, func(t *api.Tenant) row { return row{tenant: t.Name} }),
	warmups: kindOf(listing.Warmups, "the warm-up of source", "SOURCE", func(d *Data) *[]api.Warmup {
		return &d.Warmups
	},
		api.OpWarmups, func(_ *fetch, p api.Paging) api.Paging { return p },
		func(w *api.Warmup) row { return row{source: w.Source} }),
	connections: kindOf(listing.Connections, "the connection with", "AGE",
		func(d *Data) *[]api.Connection { return &d.Connections },
		api.OpConnections, func(f *fetch, p api.Paging) api.ConnectionFilter {
			return api.ConnectionFilter{Source: f.of, Paging: p}
		}, func(c *api.Connection) row {
			return row{site: c.Site, source: c.Source, tenant: c.Tenant, incoming: c.Direction == api.Incoming}
		}),
}

// largest asks for blocks of the configuration, the largest first.
func largest(_ *fetch, p api.Paging) api.BlockFilter {
	return api.BlockFilter{Order: api.BySize, Paging: p}
}

// kindOf makes the table of a listing, sorted by the column of a title. list is where its rows are, op answers with
// them when it is asked with filter, and about returns of what a row is.
func kindOf[T, Q, L any](
	l listing.Listing[T], subject, sort string, list func(*Data) *[]T,
	op api.Op[Q, L], filter func(*fetch, api.Paging) Q, about func(*T) row,
) kind {
	l = l.For(listing.Top)
	k := kind{name: l.Name, subject: subject, empty: "no " + l.Noun + " is known: " + l.Empty}
	for i, c := range l.Columns {
		k.columns = append(k.columns, column{c.Title, c.Right, c.Spare})
		if c.Title == sort {
			k.sort = i
		}
	}
	k.ask = func(ctx context.Context, relay *api.Client, f *fetch, limit int, d *Data) error {
		answer, err := op.Call(ctx, relay, filter(f, api.Paging{Limit: limit}))
		rows, next := api.RowsOf[T](&answer)
		*list(d), d.More = *rows, *next != ""
		return err
	}
	k.rows = func(d *Data) (rows []row) {
		all := *list(d)
		for i := range all {
			r := about(&all[i])
			r.key = l.Key(&all[i])
			look := listing.Look{Now: d.Time, Zone: time.Local, Latest: d.latest(l.Subject(&all[i]))}
			r.cells, r.note = l.Cells(&all[i], look), l.Note(&all[i], look)
			if r.note != "" && l.NoteTitle != listing.Reason {
				r.note = strings.ToLower(l.NoteTitle) + ": " + r.note
			}
			for _, c := range r.cells {
				if c.Is == listing.IsState {
					r.style = styles[listing.ColourOf(c.Text)]
				}
			}
			rows = append(rows, r)
		}
		return rows
	}
	return k
}

var styles = map[listing.Colour]style{listing.Good: good, listing.Warn: waiting, listing.Bad: bad}

// Tables are the names of all tables.
func Tables() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}
