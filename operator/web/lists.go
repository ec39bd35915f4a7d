package web

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// lister makes the page of a listing. F is its filter, which is the page's form and its URL; L is the relay's answer.
type lister[F, L, T any] struct {
	listing.Listing[T]
	ask   func(*request, F) (L, error)
	apart string // fields of the filter that are not in the form
	may   string // the action that acts or ticks are for
	acts  func(p *listPage, row *T) []act
	ticks bool        // rows have boxes
	of    api.Subject // has a history, which stands above the list of one; "": none
	// The name of the table, and what stands there without a row, in place of the usual words.
	label, nothing string
}

// listPage is the data of its template.
type listPage struct {
	Path   string
	Inputs []input
	Table  *table
	Paging paging
	Back   string // for forms that return to the page
	Find   string // the name, or the address, that was searched for
	Same   string // the filter as a query, for the export
	Answer any    // what some pages have beside the rows
	Plots  []Plot // of the only row
	Only   any    // the row, if the filter names one
}

func (l lister[F, L, T]) page(r *request) (any, error) {
	var f F
	if err := r.read(&f); err != nil {
		return nil, err
	}
	if paged, ok := any(&f).(interface{ At(string, int) }); ok {
		paged.At(r.get("after"), api.DefaultLimit)
	}
	answer, err := l.ask(r, f)
	if err != nil {
		return nil, err
	}
	rows, next := api.RowsOf[T](&answer)
	p := &listPage{Path: r.route.path, Inputs: inputs(&f, strings.Fields(l.apart)...), Back: r.here(), Answer: answer}
	p.Find, p.Same = cmp.Or(r.get("q"), r.get("address")), filterURL(r.sameOf(paramsOf(&f), "address"))
	p.Table, p.Paging = newTable(r, l.Listing, *rows), r.paging(*next)
	p.Table.May, p.Table.Label, p.Table.Empty = l.may, cmp.Or(l.label, p.Table.Label), cmp.Or(l.nothing, p.Table.Empty)
	for i := range *rows {
		row := &(*rows)[i]
		if l.ticks {
			p.Table.Ticked, p.Table.Rows[i].Tick = l.Name, l.Key(row)
		} else if l.acts != nil {
			p.Table.Rows[i].Acts = l.acts(p, row)
		}
	}
	if names := r.list("name"); len(names) == 1 && l.of != "" {
		if len(*rows) == 1 {
			p.Only = &(*rows)[0]
		}
		p.Plots, err = plotsOf(r, l.of, names[0], api.Last12Hours)
	}
	return p, err
}

// asks makes a question, or a change, of a row of the table of operations.
func asks[Q, A any](row api.Op[Q, A]) func(*request, Q) (A, error) {
	return func(r *request, q Q) (A, error) { return row.Call(r.ctx, r.relay, q) }
}

// siteSearch is a filter of sites, or a name: that site, and all below it.
type siteSearch struct {
	Find string `q:"q" label:"Name" hint:"mx.example or example"`
	api.SiteFilter
}

var sites = lister[siteSearch, api.SiteList, api.Site]{Listing: listing.Sites, apart: "name",
	ask: func(r *request, s siteSearch) (api.SiteList, error) {
		if s.Find != "" {
			s.Names = append(s.Names, s.Find, "."+strings.TrimPrefix(s.Find, "."))
		}
		return api.OpSites.Call(r.ctx, r.relay, s.SiteFilter)
	}}

var hosts = lister[api.HostFilter, api.HostList, api.Host]{Listing: listing.Hosts, ask: asks(api.OpHosts),
	may: "/hosts/forget",
	acts: func(p *listPage, h *api.Host) []act {
		a := newAct("/hosts/suspend", "host", address(h), "back", p.Path)
		a.Spans, a.More = suspensions, []string{"/hosts/resume", "/hosts/forget"}
		return []act{a}
	}}

// address is that of a host without its port, by which actions name it.
func address(h *api.Host) string {
	if ap, err := netip.ParseAddrPort(h.Address); err == nil {
		return ap.Addr().String()
	}
	return h.Name
}

var connections = lister[api.ConnectionFilter, api.ConnectionList, api.Connection]{Listing: listing.Connections,
	ask: asks(api.OpConnections), may: "/connections/close", ticks: true}

var warmups = lister[api.Paging, api.WarmupList, api.Warmup]{Listing: listing.Warmups, ask: asks(api.OpWarmups)}

// actionFilter is a filter of the audit log.
type actionFilter struct {
	Who    string  `q:"who"`
	Action string  `q:"action" hint:"queue hold"`
	Within api.Age `q:"within" hint:"7d"`
}

var actions = lister[actionFilter, api.ActionPage, api.ActionLine]{Listing: listing.Actions,
	ask: func(r *request, f actionFilter) (api.ActionPage, error) {
		q := api.ActionQuery{Who: f.Who, Action: f.Action, After: r.get("after"), Limit: api.DefaultLimit}
		if f.Within > 0 {
			q.Since = r.now.Add(-time.Duration(f.Within))
		}
		return api.OpActions.Call(r.ctx, r.relay, q)
	}}

// The blocks of the configuration.
var (
	providers = lister[api.UnpooledFilter, api.ProviderList, api.Provider]{Listing: listing.Providers,
		ask: asks(api.OpProviders), of: api.OfProvider}
	sources = lister[api.BlockFilter, api.SourceList, api.Source]{Listing: listing.Sources,
		ask: asks(api.OpSources), may: "/rules/pause", of: api.OfSource,
		acts: func(p *listPage, s *api.Source) []act {
			return []act{pausing("source", s.Name, p.Path, s.State == api.SourcePaused)}
		}}
	pools = lister[api.UnpooledFilter, api.PoolList, api.Pool]{Listing: listing.Pools,
		ask: asks(api.OpPools), may: "/rules/pause",
		acts: func(p *listPage, x *api.Pool) []act {
			return []act{pausing("pool", x.Name, p.Path, x.Paused != ""),
				newAct("/pools/weight", "pool", x.Name, "back", p.Path)}
		}}
	tenants = lister[api.TenantFilter, api.TenantList, api.Tenant]{Listing: listing.Tenants,
		ask: asks(api.OpTenants), may: "/rules/pause", of: api.OfTenant, apart: "queued",
		acts: func(p *listPage, t *api.Tenant) []act {
			if t.Name == "" {
				return nil
			}
			return []act{pausing("tenant", t.Name, p.Path, t.Paused != ""),
				newAct("/queue/hold", "tenant", t.Name, "back", p.Path),
				newAct("/queue/release", "tenant", t.Name, "back", p.Path)}
		}}
)

var rules = lister[api.None, api.RuleList, api.Rule]{Listing: listing.Rules, may: "/rules/end",
	ask:  asks(api.OpRules),
	acts: func(p *listPage, r *api.Rule) []act { return []act{newAct("/rules/end", "id", r.ID, "back", p.Path)} }}

// pausing is the button that pauses something, or has it go on.
func pausing(kind, name, back string, paused bool) act {
	path := "/rules/pause"
	if paused {
		path = "/rules/resume"
	}
	return newAct(path, "action", api.RuleSuspend, kind, name, "back", back)
}
