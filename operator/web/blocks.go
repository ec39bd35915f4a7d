package web

import (
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/listing"
)

// blocksPage is a page of the providers, sources, pools or tenants of the configuration.
type blocksPage struct {
	Filter api.BlockFilter
	Inputs []input
	Rows   any
	Table  *table
	Paging paging
	Path   string // of the page
	Plots  []Plot
}

var blockParams = paramsOf(new(api.BlockFilter), "after")

// blocks makes the page of a kind of block. Its label is that of the page, and rows have the actions of pauses.
func blocks[T any](
	of api.Subject, l listing.Listing[T], buttons func(path string, row *T) []act,
	list func(r *request, f api.BlockFilter, after string) ([]T, string, error),
) func(*request) (any, error) {
	path := "/" + l.Name
	return func(r *request) (any, error) {
		p := blocksPage{Path: path}
		if err := r.read(&p.Filter); err != nil {
			return nil, err
		}
		if path == "/sources" || path == "/tenants" {
			p.Inputs = inputs(&p.Filter)
		} else {
			p.Inputs = inputs(&p.Filter, "pool")
		}
		rows, next, err := list(r, p.Filter, r.get("after"))
		if err != nil {
			return nil, err
		}
		p.Rows, p.Paging = rows, r.paging(next)
		p.Table = newTable(r, l, rows)
		if buttons != nil {
			acts(p.Table, "/pauses/begin", rows, func(row *T) []act { return buttons(path, row) })
		}
		if of == "" || len(p.Filter.Names) != 1 {
			return p, nil
		}
		h, err := r.relay.History(r.ctx, api.HistoryQuery{Of: of, Name: p.Filter.Names[0], Span: api.Last12Hours})
		switch {
		case err == nil:
			p.Plots = []Plot{history(h, "rates", "Recipients", "/s", "accepted", "delivered", "deferred", "bounced"),
				history(h, "delay", "Time to delivery", "s", "delay_p50", "delay_p99")}
		case !api.IsNotFound(err):
			return nil, err
		}
		return p, nil
	}
}

// pausing is the button that pauses something, or has it go on.
func pausing(what api.PauseWhat, name, back string, paused bool) act {
	path := "/pauses/begin"
	if paused {
		path = "/pauses/end"
	}
	return act{path: path, fields: []any{"what", what, "name", name, "back", back}}
}

func poolActs(back string, p *api.Pool) []act {
	return []act{pausing(api.PausePool, p.Name, back, p.Paused != "")}
}

func sourceActs(back string, s *api.Source) []act {
	return []act{pausing(api.PauseSource, s.Name, back, s.State == api.SourcePaused)}
}

func tenantActs(back string, t *api.Tenant) []act {
	if t.Name == "" {
		return nil
	}
	fields := []any{"tenant", t.Name, "back", back}
	return []act{pausing(api.PauseTenant, t.Name, back, t.Paused != ""),
		{path: "/queue/hold", fields: fields}, {path: "/queue/release", fields: fields}}
}

// The pages of the four kinds.
var (
	providers = blocks(api.OfProvider, listing.Providers, nil,
		func(r *request, f api.BlockFilter, after string) ([]api.Provider, string, error) {
			l, err := r.relay.Providers(r.ctx, f, after, api.DefaultLimit)
			return l.Providers, l.Next, err
		})
	sources = blocks(api.OfSource, listing.Sources, sourceActs,
		func(r *request, f api.BlockFilter, after string) ([]api.Source, string, error) {
			l, err := r.relay.Sources(r.ctx, f, after, api.DefaultLimit)
			return l.Sources, l.Next, err
		})
	pools = blocks("", listing.Pools, poolActs,
		func(r *request, f api.BlockFilter, after string) ([]api.Pool, string, error) {
			l, err := r.relay.Pools(r.ctx, f, after, api.DefaultLimit)
			return l.Pools, l.Next, err
		})
	tenants = blocks(api.OfTenant, listing.Tenants, tenantActs,
		func(r *request, f api.BlockFilter, after string) ([]api.Tenant, string, error) {
			l, err := r.relay.Tenants(r.ctx, f, after, api.DefaultLimit)
			return l.Tenants, l.Next, err
		})
)

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

var (
	pauseParams  = []string{"what", "name", "for"}
	resumeParams = []string{"what", "name"}
)

func pause(r *request, try Try) (Outcome, error) {
	span, err := r.age("for")
	if err != nil {
		return Outcome{}, err
	}
	done, err := r.relay.BeginPause(r.ctx, api.BeginPause{Intent: try.intent(), What: api.PauseWhat(r.get("what")), Name: r.get("name"), For: span, Reason: r.get(reasonParam)})
	o := Outcome{Count: done.Count, Noun: "pause"}
	if !done.Until.IsZero() {
		o.Lines = []string{"Until " + done.Until.UTC().Format(time.DateTime)}
	}
	return o, err
}

func unpause(r *request, try Try) (Outcome, error) {
	done, err := r.relay.EndPause(r.ctx, api.EndPause{Intent: try.intent(), What: api.PauseWhat(r.get("what")), Name: r.get("name")})
	return Outcome{Count: done.Count, Noun: "pause"}, err
}
