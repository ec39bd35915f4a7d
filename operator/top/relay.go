package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// Printer prints what the commands print, as text of a width.
type Printer interface {
	Explain(ctx context.Context, q api.ExplainQuery, w io.Writer, width int) error
	Warmup(ctx context.Context, source string, w io.Writer, width int) error
	// Trace prints lines until ctx ends or the relay stops.
	Trace(ctx context.Context, q api.TraceQuery, w io.Writer, width int) error
}

const (
	// listed is how many rows are asked for.
	listed = 200
	// searched is how many rows are asked for when they are filtered.
	searched = api.MaxLimit
)

// ask asks the relay for a screen.
func (f *fetch) ask(ctx context.Context, relay *api.Client, now time.Time) (*Data, error) {
	d := &Data{Time: now, table: f.table}
	var err error
	if d.Status, err = api.OpStatus.Call(ctx, relay, api.None{}); err != nil {
		return nil, err
	}
	d.figures(ctx, relay, f)
	return d, f.list(ctx, relay, d)
}

// figures asks for what the relay keeps of the past. Without it the screen is still of use.
func (d *Data) figures(ctx context.Context, relay *api.Client, f *fetch) {
	if f.rates {
		h, err := api.OpHistory.Call(ctx, relay, api.HistoryQuery{Of: api.OfRelay, Span: api.Last15Minutes})
		if err != nil {
			d.NoHistory = textOr("", err)
		} else {
			d.Rates = &h
		}
	}
	if of, ok := subjects[f.table]; ok {
		names, err := api.OpHistoryNames.Call(ctx, relay, api.HistoryNamesQuery{Of: of})
		if err != nil {
			d.NoHistory = textOr("", err)
		}
		d.Latest = names.Rows
	}
}

// subjects are the tables whose rows have figures in the history.
var subjects = map[Table]api.Subject{sites: api.OfSite, providers: api.OfProvider, sources: api.OfSource,
	tenants: api.OfTenant}

// list asks for the rows of the table.
func (f *fetch) list(ctx context.Context, relay *api.Client, d *Data) error {
	limit := listed
	if f.filter != "" {
		limit = searched
	}
	err := kinds[f.table].ask(ctx, relay, f, limit, d)
	if err == nil && f.table == sites && d.More && f.filter != "" {
		err = f.named(ctx, relay, d)
	}
	return err
}

// named adds the sites that a filter names, or ends the name of.
func (f *fetch) named(ctx context.Context, relay *api.Client, d *Data) error {
	have := make(map[string]bool, len(d.Sites))
	for i := range d.Sites {
		have[d.Sites[i].Name] = true
	}
	names := []string{f.filter, "." + strings.TrimPrefix(f.filter, ".")}
	l, err := api.OpSites.Call(ctx, relay,
		api.SiteFilter{Provider: f.of, Names: names, Paging: api.Paging{Limit: listed}})
	if err != nil {
		return err
	}
	for i := range l.Sites {
		if !have[l.Sites[i].Name] {
			d.Sites = append(d.Sites, l.Sites[i])
		}
	}
	return nil
}

// print gives the text of a page about a row.
func (e *explain) print(ctx context.Context, relay *api.Client, printer Printer) (string, error) {
	var b strings.Builder
	switch {
	case e.table == warmups:
		err := printer.Warmup(ctx, e.row.key, &b, e.width)
		return b.String(), err
	case e.table == sites || e.table == connections && !e.row.incoming:
		q, err := siteQuery(ctx, relay, e.row.site)
		if err != nil {
			return "", err
		}
		err = printer.Explain(ctx, q, &b, e.width)
		return b.String(), err
	case e.table == tenants && e.row.key != "":
		l, err := api.OpList.Call(ctx, relay,
			api.ListQuery{Filter: api.Filter{Tenant: e.row.key}, Page: api.Page{Limit: 1, Recipients: 1}})
		if err != nil {
			return "", err
		}
		if len(l.Messages) > 0 {
			fmt.Fprintf(&b, "The oldest message of tenant %s:\n\n", clean(e.row.key))
			err := printer.Explain(ctx, api.ExplainQuery{ID: l.Messages[0].ID}, &b, e.width)
			return b.String(), err
		}
	}
	return e.facts(), nil
}

// siteQuery asks about a site by the domain of its oldest mail, or else by its name, which a domain may have.
func siteQuery(ctx context.Context, relay *api.Client, site string) (api.ExplainQuery, error) {
	l, err := api.OpList.Call(ctx, relay,
		api.ListQuery{Filter: api.Filter{Site: site}, Page: api.Page{Limit: 1, Recipients: 1}})
	if err != nil || len(l.Messages) == 0 || len(l.Messages[0].Recipients) == 0 {
		return api.ExplainQuery{Domain: site}, err
	}
	address := l.Messages[0].Recipients[0].Address
	return api.ExplainQuery{Domain: address[strings.LastIndexByte(address, '@')+1:], Tenant: l.Messages[0].Tenant}, nil
}

// facts are all that the table knows of a row.
func (e *explain) facts() string {
	var b strings.Builder
	if e.row.node != 0 {
		fmt.Fprintf(&b, "%-16s  %d\n", "node", e.row.node)
	}
	for i, c := range kinds[e.table].columns {
		fmt.Fprintf(&b, "%-16s  %s\n", strings.ToLower(c.title), clean(e.row.cells[i].Text))
	}
	if e.row.note == "" {
		return b.String()
	}
	for i, l := range wrap(e.row.note, max(20, e.width-18)) {
		name := ""
		if i == 0 {
			name = "note"
		}
		fmt.Fprintf(&b, "%-16s  %s\n", name, l)
	}
	return b.String()
}
