package web

import (
	"fmt"
	"slices"
	"time"

	"example.org/mta/operator/api"
)

// blocksPage is a page of the providers, sources, pools or tenants of the configuration.
type blocksPage struct {
	Filter api.BlockFilter
	Find   string
	Rows   any
	Empty  bool
	Paging paging
	// Path is that of the page, Pools that sources and tenants can be filtered by one.
	Path  string
	Pools bool
	Plots []Plot
}

var blockParams = []string{"name", "pool", "busy", "failing", "order", "after"}

// blocks makes the page of a kind of block.
func blocks[T any](path string, of api.Subject, list func(r *request, f api.BlockFilter, after string) ([]T, string, error)) func(*request) (any, error) {
	return func(r *request) (any, error) {
		p := blocksPage{Path: path, Find: r.get("name"), Filter: api.BlockFilter{
			Names: r.list("name"), Pool: r.get("pool"), Busy: r.flag("busy"), Failing: r.flag("failing"), Order: api.SiteOrder(r.get("order")),
		}}
		p.Pools = path == "/sources" || path == "/tenants"
		rows, next, err := list(r, p.Filter, r.get("after"))
		if err != nil {
			return nil, err
		}
		p.Rows, p.Empty, p.Paging = rows, len(rows) == 0, r.paging(next)
		if of == "" || len(p.Filter.Names) != 1 {
			return p, nil
		}
		h, err := r.relay.History(r.ctx, api.HistoryQuery{Of: of, Name: p.Find, Span: api.Last12Hours})
		switch {
		case err == nil:
			p.Plots = []Plot{history(h, "rates", "Recipients", "/s", "accepted", "delivered", "deferred", "bounced"), history(h, "delay", "Time to delivery", "s", "delay_p50", "delay_p99")}
		case !api.IsNotFound(err):
			return nil, err
		}
		return p, nil
	}
}

func providers(r *request, f api.BlockFilter, after string) ([]api.Provider, string, error) {
	l, err := r.relay.Providers(r.ctx, api.BlockFilter{Names: f.Names, Busy: f.Busy, Failing: f.Failing, Order: f.Order}, after, api.DefaultLimit)
	return l.Providers, l.Next, err
}

func sources(r *request, f api.BlockFilter, after string) ([]api.Source, string, error) {
	l, err := r.relay.Sources(r.ctx, f, after, api.DefaultLimit)
	return l.Sources, l.Next, err
}

func pools(r *request, f api.BlockFilter, after string) ([]api.Pool, string, error) {
	l, err := r.relay.Pools(r.ctx, api.BlockFilter{Names: f.Names, Busy: f.Busy, Failing: f.Failing, Order: f.Order}, after, api.DefaultLimit)
	return l.Pools, l.Next, err
}

func tenants(r *request, f api.BlockFilter, after string) ([]api.Tenant, string, error) {
	l, err := r.relay.Tenants(r.ctx, f, after, api.DefaultLimit)
	return l.Tenants, l.Next, err
}

// Refused counts what a tenant's limits have refused.
func (blocksPage) Refused(u *api.TenantUse) (n int64) {
	for _, refused := range u.Refused {
		n += refused
	}
	return n
}

// Limits are those of a tenant beside what it uses of them.
func (blocksPage) Limits(u *api.TenantUse) (all []string) {
	use := func(name string, now, most int64) {
		if most > 0 {
			all = append(all, fmt.Sprintf("%s %s of %s", name, count(now), count(most)))
		}
	}
	use("connections", int64(u.Connections), int64(u.MaxConnections))
	use("messages", u.QueuedMessages, u.MaxQueuedMessages)
	use("octets", u.QueuedBytes, u.MaxQueuedBytes)
	if u.MaxSubmissionRate != "" {
		all = append(all, "rate "+u.MaxSubmissionRate)
	}
	return all
}

// pausesPage is what is paused, and the form to pause something.
type pausesPage struct {
	List  api.PauseList
	Whats []api.PauseWhat
	Spans []string
}

func pauses(r *request) (any, error) {
	l, err := r.relay.Pauses(r.ctx)
	return pausesPage{l, api.PauseWhats, slices.Clone(suspensions)}, err
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
