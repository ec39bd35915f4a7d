package controltest

import (
	"context"
	"math"
	"slices"
	"time"

	"example.org/mta/operator/api"
)

var _ api.Histories = (*Relay)(nil)

// historySteps are how many values each span has, and how far apart they are.
var historySteps = map[api.Span]struct {
	values int
	step   time.Duration
}{
	api.Last15Minutes: {450, 2 * time.Second},
	api.Last12Hours:   {1440, 30 * time.Second},
	api.Last14Days:    {2016, 10 * time.Minute},
}

// historyNames are the subjects of which there are figures.
func (r *Relay) historyNames(of api.Subject) (names []string) {
	switch of {
	case api.OfRelay:
		return []string{""}
	case api.OfProvider:
		names = []string{"big"}
	case api.OfSource:
		for _, s := range r.KnownSources {
			names = append(names, s.Name)
		}
	case api.OfSite:
		for _, s := range r.KnownSites {
			names = append(names, s.Name)
		}
	case api.OfTenant:
		for _, t := range r.KnownTenants {
			if t.Name != "" {
				names = append(names, t.Name)
			}
		}
	}
	return append(names, api.OtherSubjects)
}

// History gives waves; the first tenth is not known.
func (r *Relay) History(_ context.Context, q api.HistoryQuery) (api.History, error) {
	if !slices.Contains(r.historyNames(q.Of), q.Name) {
		return api.History{}, api.NotFound("those that are kept: mta history "+string(q.Of), "nothing is kept of the %s %q", q.Of, q.Name)
	}
	s := historySteps[q.Span]
	h := api.History{
		Of: q.Of, Name: q.Name, Span: q.Span, Step: s.step.Seconds(), Start: r.Now.Truncate(s.step).Add(-time.Duration(s.values) * s.step),
		Series: make(map[string]api.HistorySeries),
	}
	for i, name := range historySeriesNames(q.Of) {
		values := make(api.Figures, s.values)
		for j := range values {
			values[j] = api.Figure(100 * (1 + math.Sin(float64(i)+float64(j)/25)))
			if j < s.values/10 {
				values[j] = api.UnknownFigure()
			}
		}
		h.Series[name] = api.HistorySeries{Unit: historyUnit(name), Values: values}
	}
	return h, nil
}

func historySeriesNames(of api.Subject) []string {
	names := []string{"delivered", "deferred", "bounced", "queued", "queued_deferred", "delay_p50", "delay_p99"}
	switch of {
	case api.OfRelay:
		names = []string{
			"accepted", "refused", "delivered", "deferred", "bounced", "queued",
			"queued_due", "queued_waiting", "queued_active", "queued_deferred", "queued_held", "queued_ending", "queued_unreadable",
			"oldest_due", "delay_p50", "delay_p99", "connections", "client_connections", "disk_used", "disk_free", "memory",
		}
	case api.OfTenant:
		return append(names, "accepted", "refused", "client_connections")
	default:
		return append(names, "connections")
	}
	return names
}

func historyUnit(name string) string {
	switch name {
	case "refused":
		return "refusals/s"
	case "accepted", "delivered", "deferred", "bounced":
		return "recipients/s"
	case "oldest_due", "delay_p50", "delay_p99":
		return "seconds"
	case "connections", "client_connections":
		return "connections"
	case "disk_used", "disk_free", "memory":
		return "bytes"
	}
	return "recipients"
}

// HistoryNames gives the last value of each figure.
func (r *Relay) HistoryNames(ctx context.Context, of api.Subject) (api.HistoryNames, error) {
	all := api.HistoryNames{Of: of}
	for _, name := range r.historyNames(of) {
		h, err := r.History(ctx, api.HistoryQuery{Of: of, Name: name, Span: api.Last15Minutes})
		if err != nil {
			return all, err
		}
		row := api.HistoryRow{Name: name, Latest: make(map[string]api.Figure)}
		for figure, s := range h.Series {
			row.Latest[figure] = s.Values[len(s.Values)-1]
		}
		all.Rows = append(all.Rows, row)
	}
	return all, nil
}
