package web

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"unicode"

	"example.org/mta/operator/api"
)

// overviewPage is what the first page shows.
type overviewPage struct {
	Status    api.Status
	Plots     []Plot
	States    api.Summary
	Sites     api.Summary
	Tenants   api.Summary
	Providers []providerRow
}

// alarmPages says where to look, by the name of an alarm.
var alarmPages = map[string]string{
	"queue_age": "/queue", "queue_growing": "/queue/summary", "queue_stuck": "/sites", "low_traffic": "/sites",
	"sources": "/sources",
	"warmup":  "/warm-ups", "warmup_health": "/warm-ups",
	"flood": "/suppression/pending", "accounting": "/log", "dns": "/log", "paused": "/rules", "logins": "/actions",
	"overload": "/tenants", "bounces": "/tenants", "provider_defers": "/providers", "provider_blocks": "/providers",
	"delivery_slow": "/providers", "source_connects": "/sources",
	"audit": "/actions", "damage": "/log", "certificates": "/configuration",
}

// providerRow is the mail of a provider that does not get through, and the reply that it gives most often.
type providerRow struct {
	Name                      string // "": the sites without one
	Queued, Deferred          int
	Delivers, Defers, Bounces api.Figure // recipients a second
	Reply                     string     // "": none is known
	Site                      string     // that has given it
	Times, Of                 int        // of its latest errors
}

// How much the first page shows.
const (
	largest     = 10 // sites, tenants and providers
	askedSites  = 40 // whose latest errors are looked at: the fullest ones
	oneProvider = 3  // of them at most
)

func overview(r *request) (any, error) {
	var p overviewPage
	var err error
	if p.Status, err = api.OpStatus.Call(r.ctx, r.relay, api.None{}); err != nil {
		return nil, err
	}
	if p.Plots, err = relayPlots(r); err != nil {
		return nil, err
	}
	for by, sum := range map[api.SummaryBy]*api.Summary{api.ByState: &p.States, api.BySite: &p.Sites,
		api.ByTenant: &p.Tenants} {
		if *sum, err = api.OpSummary.Call(r.ctx, r.relay,
			api.SummaryQuery{By: by, SummaryPage: api.SummaryPage{Limit: largest}}); err != nil {
			return nil, err
		}
	}
	p.Providers, err = providerRows(r)
	return p, err
}

// relayPlots are the curves of the relay as a whole, over the last quarter of an hour.
func relayPlots(r *request) ([]Plot, error) {
	h, err := api.OpHistory.Call(r.ctx, r.relay, api.HistoryQuery{Of: api.OfRelay, Span: api.Last15Minutes})
	if err != nil && !api.IsNotFound(err) {
		return nil, err
	}
	queued := []string{}
	for _, s := range api.States {
		queued = append(queued, "queued_"+string(s))
	}
	states := history(h, "queued", "Queued recipients", "", queued...)
	states.Stacked = true
	states.Series = slices.DeleteFunc(states.Series, func(s Series) bool { return !(most(s.Values) > 0) })
	return []Plot{
		history(h, "rates", "Recipients", "/s", "accepted", "delivered", "deferred", "bounced"),
		states,
		history(h, "delay", "Time to delivery", "s", "delay_p50", "delay_p99"),
		history(h, "connections", "Connections", "", "connections", "client_connections"),
	}, nil
}

// providerRows are the providers with the most mail that was deferred.
func providerRows(r *request) ([]providerRow, error) {
	sum, err := api.OpSummary.Call(r.ctx, r.relay,
		api.SummaryQuery{By: api.ByProvider, SummaryPage: api.SummaryPage{Limit: largest}})
	if err != nil {
		return nil, err
	}
	names, err := api.OpHistoryNames.Call(r.ctx, r.relay, api.HistoryNamesQuery{Of: api.OfProvider})
	if err != nil && !api.IsNotFound(err) {
		return nil, err
	}
	rate := func(provider, name string) api.Figure {
		i := slices.IndexFunc(names.Rows, func(row api.HistoryRow) bool { return row.Name == provider })
		if i < 0 {
			return api.Figure(math.NaN())
		}
		return names.Rows[i].Latest[name]
	}
	replies, err := commonestReplies(r)
	if err != nil {
		return nil, err
	}
	var rows []providerRow
	for _, s := range sum.Rows {
		row := replies[s.Key]
		row.Name, row.Queued, row.Deferred = s.Key, s.Total, s.States[api.StateDeferred]
		row.Delivers, row.Defers, row.Bounces = rate(s.Key, "delivered"), rate(s.Key, "deferred"),
			rate(s.Key, "bounced")
		if row.Deferred > 0 || row.Defers > 0 {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b providerRow) int { return cmp.Compare(b.Deferred, a.Deferred) })
	return rows, nil
}

// commonestReplies looks at the latest errors of the fullest sites that fail, and gives by provider the reply that
// stands there most often.
func commonestReplies(r *request) (map[string]providerRow, error) {
	sites, err := api.OpSites.Call(r.ctx, r.relay,
		api.SiteFilter{Queued: true, Order: api.BySize, Paging: api.Paging{Limit: askedSites}})
	if err != nil {
		return nil, err
	}
	type likeness struct{ provider, reply string }
	counts := make(map[likeness]providerRow)
	asked, total := make(map[string]int), make(map[string]int)
	for _, s := range sites.Sites {
		if s.Deferred == 0 || asked[s.Provider] == oneProvider {
			continue
		}
		asked[s.Provider]++
		recent, err := api.OpRecent.Call(r.ctx, r.relay, api.None{}, s.Name)
		if err != nil && !api.IsNotFound(err) {
			return nil, err
		}
		for _, e := range recent.Errors {
			like := likeness{s.Provider, withoutNumbers(e.Reply.String())}
			row := counts[like]
			if row.Times == 0 {
				row.Reply, row.Site = e.Reply.String(), s.Name
			}
			row.Times++
			counts[like] = row
			total[s.Provider]++
		}
	}
	out := make(map[string]providerRow)
	for like, row := range counts {
		if best := out[like.provider]; row.Times > best.Times || row.Times == best.Times && row.Reply < best.Reply {
			row.Of = total[like.provider]
			out[like.provider] = row
		}
	}
	return out, nil
}

// withoutNumbers makes replies alike that differ by a queue id, an address or a time: words with a digit in them
// are left out, those at the front apart, which are the code.
func withoutNumbers(reply string) string {
	words := strings.Fields(reply)
	kept := words[:0:0]
	for i, w := range words {
		if i < 3 || !strings.ContainsFunc(w, unicode.IsDigit) {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " ")
}

// SitesAsked and SitesOfProvider bound the sites whose replies are counted, for the page to say so.
func (overviewPage) SitesAsked() int { return askedSites }

// SitesOfProvider is the bound for one provider.
func (overviewPage) SitesOfProvider() int { return oneProvider }
