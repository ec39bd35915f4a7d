package controltest

import (
	"context"
	"math"
	"slices"
	"time"

	"example.org/mta/mta/control"
)

var _ control.Histories = (*Relay)(nil)

// historySteps are how many values each span has, and how far apart they are.
var historySteps = map[control.Span]struct {
	values int
	step   time.Duration
}{
	control.Last15Minutes: {450, 2 * time.Second},
	control.Last12Hours:   {1440, 30 * time.Second},
	control.Last14Days:    {2016, 10 * time.Minute},
}

// historyNames are the subjects of which there are figures.
func (r *Relay) historyNames(of control.Subject) (names []string) {
	switch of {
	case control.OfRelay:
		return []string{""}
	case control.OfProvider:
		names = []string{"big"}
	case control.OfSource:
		for _, s := range r.KnownSources {
			names = append(names, s.Name)
		}
	case control.OfSite:
		for _, s := range r.KnownSites {
			names = append(names, s.Name)
		}
	case control.OfTenant:
		for _, t := range r.KnownTenants {
			if t.Name != "" {
				names = append(names, t.Name)
			}
		}
	}
	return append(names, control.OtherSubjects)
}

// History gives waves; the first tenth is not known.
func (r *Relay) History(_ context.Context, q control.HistoryQuery) (control.History, error) {
	if !slices.Contains(r.historyNames(q.Of), q.Name) {
		return control.History{}, control.NotFound("those that are kept: mta history "+string(q.Of), "nothing is kept of the %s %q", q.Of, q.Name)
	}
	s := historySteps[q.Span]
	h := control.History{
		Of: q.Of, Name: q.Name, Span: q.Span, Step: s.step.Seconds(), Start: r.Now.Truncate(s.step).Add(-time.Duration(s.values) * s.step),
		Series: make(map[string]control.HistorySeries),
	}
	for i, name := range historySeriesNames(q.Of) {
		values := make(control.Figures, s.values)
		for j := range values {
			values[j] = control.Figure(100 * (1 + math.Sin(float64(i)+float64(j)/25)))
			if j < s.values/10 {
				values[j] = control.UnknownFigure()
			}
		}
		h.Series[name] = control.HistorySeries{Unit: historyUnit(name), Values: values}
	}
	return h, nil
}

func historySeriesNames(of control.Subject) []string {
	names := []string{"delivered", "deferred", "bounced", "queued", "queued_deferred", "delay_p50", "delay_p99"}
	switch of {
	case control.OfRelay:
		names = []string{
			"accepted", "refused", "delivered", "deferred", "bounced", "queued",
			"queued_due", "queued_waiting", "queued_active", "queued_deferred", "queued_held", "queued_ending", "queued_unreadable",
			"oldest_due", "delay_p50", "delay_p99", "connections", "client_connections", "disk_used", "disk_free", "memory",
		}
	case control.OfTenant:
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
func (r *Relay) HistoryNames(ctx context.Context, of control.Subject) (control.HistoryNames, error) {
	all := control.HistoryNames{Of: of}
	for _, name := range r.historyNames(of) {
		h, err := r.History(ctx, control.HistoryQuery{Of: of, Name: name, Span: control.Last15Minutes})
		if err != nil {
			return all, err
		}
		row := control.HistoryRow{Name: name, Latest: make(map[string]control.Figure)}
		for figure, s := range h.Series {
			row.Latest[figure] = s.Values[len(s.Values)-1]
		}
		all.Rows = append(all.Rows, row)
	}
	return all, nil
}
