package top

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

// Relay is what the screen asks of a running relay. *api.Client is one.
type Relay interface {
	Status(context.Context) (api.Status, error)
	History(context.Context, api.HistoryQuery) (api.History, error)
	HistoryNames(context.Context, api.Subject) (api.HistoryNames, error)
	Sites(ctx context.Context, f api.SiteFilter, after string, limit int) (api.SiteList, error)
	Providers(ctx context.Context, f api.BlockFilter, after string, limit int) (api.ProviderList, error)
	Sources(ctx context.Context, f api.BlockFilter, after string, limit int) (api.SourceList, error)
	Tenants(ctx context.Context, f api.BlockFilter, after string, limit int) (api.TenantList, error)
	Warmups(ctx context.Context, after string, limit int) (api.WarmupList, error)
	Connections(ctx context.Context, f api.ConnectionFilter, after string, limit int) (api.ConnectionList, error)
	List(context.Context, api.Filter, api.Page) (api.List, error)

	Suspend(context.Context, api.Suspend) (api.Suspended, error)
	Resume(context.Context, api.Resume) (api.Resumed, error)
	BeginPause(context.Context, api.BeginPause) (api.PauseChanged, error)
	EndPause(context.Context, api.EndPause) (api.PauseChanged, error)
	ChangeWarmup(ctx context.Context, name string, a api.WarmupAction, to api.StageChoice) (api.WarmupChanged, error)
	CloseConnections(context.Context, api.CloseConnections) (api.ClosedConnections, error)
}

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
func (f *fetch) ask(ctx context.Context, relay Relay, now time.Time) (*Data, error) {
	d := &Data{Time: now, table: f.table}
	var err error
	if d.Status, err = relay.Status(ctx); err != nil {
		return nil, err
	}
	d.figures(ctx, relay, f)
	return d, f.list(ctx, relay, d)
}

// figures asks for what the relay keeps of the past. Without it the screen is still of use.
func (d *Data) figures(ctx context.Context, relay Relay, f *fetch) {
	if f.rates {
		h, err := relay.History(ctx, api.HistoryQuery{Of: api.OfRelay, Span: api.Last15Minutes})
		if err != nil {
			d.NoHistory = textOr("", err)
		} else {
			d.Rates = &h
		}
	}
	if of, ok := subjects[f.table]; ok {
		names, err := relay.HistoryNames(ctx, of)
		if err != nil {
			d.NoHistory = textOr("", err)
		}
		d.Latest = names.Rows
	}
}

// subjects are the tables whose rows have figures in the history.
var subjects = map[Table]api.Subject{sites: api.OfSite, providers: api.OfProvider, sources: api.OfSource, tenants: api.OfTenant}

// list asks for the rows of the table.
func (f *fetch) list(ctx context.Context, relay Relay, d *Data) error {
	limit := listed
	if f.filter != "" {
		limit = searched
	}
	var err error
	next, blocks := "", api.BlockFilter{Order: api.BySize}
	switch f.table {
	case sites:
		var l api.SiteList
		l, err = relay.Sites(ctx, api.SiteFilter{Provider: f.of, Order: api.BySize}, "", limit)
		if d.Sites, next = l.Sites, l.Next; err == nil && next != "" && f.filter != "" {
			err = f.named(ctx, relay, d)
		}
	case providers:
		var l api.ProviderList
		l, err = relay.Providers(ctx, blocks, "", limit)
		d.Providers, next = l.Providers, l.Next
	case sources:
		var l api.SourceList
		l, err = relay.Sources(ctx, blocks, "", limit)
		d.Sources, next = l.Sources, l.Next
	case tenants:
		var l api.TenantList
		l, err = relay.Tenants(ctx, blocks, "", limit)
		d.Tenants, next = l.Tenants, l.Next
	case warmups:
		var l api.WarmupList
		l, err = relay.Warmups(ctx, "", limit)
		d.Warmups, next = l.Warmups, l.Next
	case connections:
		var l api.ConnectionList
		l, err = relay.Connections(ctx, api.ConnectionFilter{Source: f.of}, "", limit)
		d.Connections, next = l.Connections, l.Next
	}
	d.More = next != ""
	return err
}

// named adds the sites that a filter names, or ends the name of.
func (f *fetch) named(ctx context.Context, relay Relay, d *Data) error {
	have := make(map[string]bool, len(d.Sites))
	for i := range d.Sites {
		have[d.Sites[i].Name] = true
	}
	names := []string{f.filter, "." + strings.TrimPrefix(f.filter, ".")}
	l, err := relay.Sites(ctx, api.SiteFilter{Provider: f.of, Names: names}, "", listed)
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
func (e *explain) print(ctx context.Context, relay Relay, printer Printer) (string, error) {
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
		l, err := relay.List(ctx, api.Filter{Tenant: e.row.key}, api.Page{Limit: 1, Recipients: 1})
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
func siteQuery(ctx context.Context, relay Relay, site string) (api.ExplainQuery, error) {
	l, err := relay.List(ctx, api.Filter{Site: site}, api.Page{Limit: 1, Recipients: 1})
	if err != nil || len(l.Messages) == 0 || len(l.Messages[0].Recipients) == 0 {
		return api.ExplainQuery{Domain: site}, err
	}
	address := l.Messages[0].Recipients[0].Address
	return api.ExplainQuery{Domain: address[strings.LastIndexByte(address, '@')+1:], Tenant: l.Messages[0].Tenant}, nil
}

// facts are all that the table knows of a row.
func (e *explain) facts() string {
	var b strings.Builder
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
