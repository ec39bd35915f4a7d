package web

import (
	"net/netip"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// lister makes the page of a listing. F is its filter: what the page's form has, and its URL.
type lister[F, T any] struct {
	listing.Listing[T]
	ask   func(r *request, p *listPage, f F) (rows []T, next string, err error)
	apart string // fields of the filter that are not in the form
	may   string // the action that acts or ticks are for
	acts  func(p *listPage, row *T) []act
	ticks bool // rows have boxes
}

// listPage is the data of its template.
type listPage struct {
	Path   string
	Inputs []input
	Table  *table
	Paging paging
	Back   string // for forms that return to the page
	// What some pages have beside it: of sites what was searched for, of connections how many are open, of a block its
	// curves, of a source itself.
	Find   string
	Total  int
	Plots  []Plot
	Source *api.Source
}

func (l lister[F, T]) page(r *request) (any, error) {
	var f F
	if err := r.read(&f); err != nil {
		return nil, err
	}
	p := &listPage{Path: r.route.path, Inputs: inputs(&f, strings.Fields(l.apart)...), Back: r.here()}
	rows, next, err := l.ask(r, p, f)
	if err != nil {
		return nil, err
	}
	p.Table, p.Paging = newTable(r, l.Listing, rows), r.paging(next)
	p.Table.May = l.may
	for i := range rows {
		if l.ticks {
			p.Table.Ticked, p.Table.Rows[i].Tick = l.Name, l.Key(&rows[i])
		} else if l.acts != nil {
			p.Table.Rows[i].Acts = l.acts(p, &rows[i])
		}
	}
	return p, nil
}

var sites = lister[api.SiteFilter, api.Site]{Listing: listing.Sites, apart: "name",
	ask: func(r *request, p *listPage, f api.SiteFilter) ([]api.Site, string, error) {
		if p.Find = r.get("q"); p.Find != "" { // a name, or all below it
			f.Names = append(f.Names, p.Find, "."+strings.TrimPrefix(p.Find, "."))
		}
		l, err := r.relay.Sites(r.ctx, f, r.get("after"), api.DefaultLimit)
		return l.Sites, l.Next, err
	}}

var hosts = lister[api.HostFilter, api.Host]{Listing: listing.Hosts, may: "/hosts/forget",
	ask: func(r *request, _ *listPage, f api.HostFilter) ([]api.Host, string, error) {
		l, err := r.relay.Hosts(r.ctx, f, r.get("after"), api.DefaultLimit)
		return l.Hosts, l.Next, err
	},
	acts: func(p *listPage, h *api.Host) []act {
		fields := []any{"host", address(h), "back", p.Path}
		return []act{{"/hosts/suspend", fields, suspensions, []string{"/hosts/resume", "/hosts/forget"}}}
	}}

// address is that of a host without its port, by which actions name it.
func address(h *api.Host) string {
	if ap, err := netip.ParseAddrPort(h.Address); err == nil {
		return ap.Addr().String()
	}
	return h.Name
}

var connections = lister[api.ConnectionFilter, api.Connection]{
	Listing: listing.Connections, may: "/connections/close", ticks: true,
	ask: func(r *request, p *listPage, f api.ConnectionFilter) ([]api.Connection, string, error) {
		l, err := r.relay.Connections(r.ctx, f, r.get("after"), api.DefaultLimit)
		p.Total = l.Total
		return l.Connections, l.Next, err
	}}

var warmups = lister[struct{}, api.Warmup]{Listing: listing.Warmups,
	ask: func(r *request, _ *listPage, _ struct{}) ([]api.Warmup, string, error) {
		l, err := r.relay.Warmups(r.ctx, r.get("after"), api.DefaultLimit)
		return l.Warmups, l.Next, err
	}}

// actionFilter is a filter of the audit log.
type actionFilter struct {
	Who    string  `q:"who"`
	Action string  `q:"action" hint:"queue hold"`
	Within api.Age `q:"within" hint:"7d"`
}

var actions = lister[actionFilter, api.ActionLine]{Listing: listing.Actions,
	ask: func(r *request, _ *listPage, f actionFilter) ([]api.ActionLine, string, error) {
		q := api.ActionQuery{Who: f.Who, Action: f.Action, After: r.get("after"), Limit: api.DefaultLimit}
		if f.Within > 0 {
			q.Since = r.now.Add(-time.Duration(f.Within))
		}
		l, err := r.relay.Actions(r.ctx, q)
		return l.Actions, l.Next, err
	}}

// The blocks of the configuration.
var (
	providers = lister[api.BlockFilter, api.Provider]{Listing: listing.Providers, apart: "pool",
		ask: func(r *request, p *listPage, f api.BlockFilter) (rows []api.Provider, next string, err error) {
			l, err := r.relay.Providers(r.ctx, f, r.get("after"), api.DefaultLimit)
			return l.Providers, l.Next, p.curves(r, api.OfProvider, f, err)
		}}
	sources = lister[api.BlockFilter, api.Source]{Listing: listing.Sources, may: "/pauses/begin",
		ask: func(r *request, p *listPage, f api.BlockFilter) ([]api.Source, string, error) {
			l, err := r.relay.Sources(r.ctx, f, r.get("after"), api.DefaultLimit)
			if len(f.Names) == 1 && len(l.Sources) == 1 {
				p.Source = &l.Sources[0]
			}
			return l.Sources, l.Next, p.curves(r, api.OfSource, f, err)
		},
		acts: func(p *listPage, s *api.Source) []act {
			return []act{pausing(api.PauseSource, s.Name, p.Path, s.State == api.SourcePaused)}
		}}
	pools = lister[api.BlockFilter, api.Pool]{Listing: listing.Pools, apart: "pool", may: "/pauses/begin",
		ask: func(r *request, _ *listPage, f api.BlockFilter) ([]api.Pool, string, error) {
			l, err := r.relay.Pools(r.ctx, f, r.get("after"), api.DefaultLimit)
			return l.Pools, l.Next, err
		},
		acts: func(p *listPage, x *api.Pool) []act {
			return []act{pausing(api.PausePool, x.Name, p.Path, x.Paused != "")}
		}}
	tenants = lister[api.BlockFilter, api.Tenant]{Listing: listing.Tenants, may: "/pauses/begin",
		ask: func(r *request, p *listPage, f api.BlockFilter) ([]api.Tenant, string, error) {
			l, err := r.relay.Tenants(r.ctx, f, r.get("after"), api.DefaultLimit)
			return l.Tenants, l.Next, p.curves(r, api.OfTenant, f, err)
		},
		acts: func(p *listPage, t *api.Tenant) []act {
			if t.Name == "" {
				return nil
			}
			fields := []any{"tenant", t.Name, "back", p.Path}
			return []act{pausing(api.PauseTenant, t.Name, p.Path, t.Paused != ""),
				{path: "/queue/hold", fields: fields}, {path: "/queue/release", fields: fields}}
		}}
)

// curves adds the history of the one block that a filter names.
func (p *listPage) curves(r *request, of api.Subject, f api.BlockFilter, err error) error {
	if err != nil || len(f.Names) != 1 {
		return err
	}
	p.Plots, err = plotsOf(r, of, f.Names[0], api.Last12Hours)
	return err
}

// pausing is the button that pauses something, or has it go on.
func pausing(what api.PauseWhat, name, back string, paused bool) act {
	path := "/pauses/begin"
	if paused {
		path = "/pauses/end"
	}
	return act{path: path, fields: []any{"what", what, "name", name, "back", back}}
}

// pausesPage is what is paused, and the form to pause something.
type pausesPage struct {
	Table *table
	Whats []api.PauseWhat
	Spans []string
}

func pauses(r *request) (any, error) {
	l, err := r.relay.Pauses(r.ctx)
	t := newTable(r, listing.Pauses, l.Pauses)
	acts(t, "/pauses/end", l.Pauses, func(p *api.Pause) []act {
		return []act{pausing(p.What, p.Name, "/pauses", true)}
	})
	return pausesPage{t, api.PauseWhats, suspensions}, err
}
