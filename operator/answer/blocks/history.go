package blocks

import (
	"context"
	"slices"

	"example.org/mta/delivery"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/config"
	"example.org/mta/mta/tally"
	"example.org/mta/operator/api"
	"example.org/mta/operator/history"
	"example.org/mta/queue"
)

// Meter reads the figures that a history keeps.
type Meter struct {
	Config        func() *config.Config // in force
	Tally         *tally.Tallies
	Queue         Queue
	Delivery      Connections
	States        func() map[string]int64
	ProviderOf    func(parking.Key) (string, bool)
	Clients       func() int64              // connections of clients
	TenantClients func(tenant string) int64 // of a tenant
}

// Queue counts what is queued.
type Queue interface {
	Stats() queue.Stats
	CountTenants() queue.Counts
	EachLine(func(parking.Line, *queue.LineCount))
}

// Connections counts those to remote hosts.
type Connections interface {
	Counts() delivery.Counts
	LiveOf(delivery.Party, []string) []int
}

// tallyScopes are where the kinds of a history's subjects are counted.
var tallyScopes = map[history.Kind]tally.Scope{
	history.Provider: tally.Provider, history.Source: tally.Source, history.Site: tally.Site,
	history.Tenant: tally.Tenant,
}

// Busy implements history.Meter. Providers and sources of the configuration have figures before they have mail.
func (m Meter) Busy(k history.Kind, each func(name string, recipients int64)) {
	m.Tally.Busy(tallyScopes[k], each)
	cfg := m.Config()
	switch k {
	case history.Provider:
		for _, p := range cfg.Providers {
			each(p.Name, 0)
		}
	case history.Source:
		for _, s := range cfg.Sources {
			each(s.Name, 0)
		}
	}
}

// Drop implements history.Meter.
func (m Meter) Drop(k history.Kind, name string) { m.Tally.Unwatch(tallyScopes[k], name) }

// Read implements history.Meter.
func (m Meter) Read(k history.Kind, names []string) []history.Reading {
	if k == history.Relay {
		return []history.Reading{m.whole()}
	}
	all := make([]history.Reading, len(names))
	for i, name := range names {
		r := &all[i]
		t := m.Tally.Get(tallyScopes[k], name)
		r.Counts, r.Delays = historyCounts(&t), m.Tally.Delays(tallyScopes[k], name)
	}
	m.addQueued(k, names, all)
	for i, n := range m.connections(k, names) {
		all[i].Level(history.Connections, float64(n))
		if k == history.Tenant {
			all[i].Level(history.ClientConnections, float64(m.TenantClients(names[i])))
		}
	}
	return all
}

// connections counts those to remote hosts. Tenants share them.
func (m Meter) connections(k history.Kind, names []string) []int {
	parties := map[history.Kind]delivery.Party{history.Provider: delivery.PartyProvider,
		history.Source: delivery.PartySource, history.Site: delivery.PartySite}
	of, ok := parties[k]
	if !ok {
		return make([]int, len(names))
	}
	return m.Delivery.LiveOf(of, names)
}

func historyCounts(t *tally.Tally) (counts [5]int64) {
	counts[history.Accepted], counts[history.Refused] = t.Accepted, t.Refused
	counts[history.Delivered], counts[history.Deferred], counts[history.Bounced] = t.Delivered, t.Deferred,
		t.Bounced+t.Expired
	return counts
}

// whole reads the relay.
func (m Meter) whole() (r history.Reading) {
	t, s := m.Tally.Total(), m.Queue.Stats()
	r.Counts, r.Delays = historyCounts(&t), m.Tally.TotalDelays()
	states := m.States()
	for state, f := range map[api.State]history.Figure{
		api.StateDue: history.QueuedDue, api.StateWaiting: history.QueuedWaiting, api.StateActive: history.QueuedActive,
		api.StateDeferred: history.QueuedDeferred, api.StateHeld: history.QueuedHeld,
		api.StateEnding:     history.QueuedEnding,
		api.StateUnreadable: history.QueuedUnreadable,
	} {
		r.Level(f, float64(states[string(state)]))
	}
	r.Level(history.Queued, float64(s.Queued))
	r.Level(history.OldestDue, s.OldestDue.Seconds())
	r.Level(history.Connections, float64(m.Delivery.Counts().Live))
	r.Level(history.ClientConnections, float64(m.Clients()))
	r.Level(history.DiskUsed, float64(s.Bytes))
	r.Level(history.DiskFree, float64(s.FreeBytes))
	r.Level(history.Memory, float64(history.ProcessMemory()))
	return r
}

// Histories answers about figures over time; it implements api.Histories.
type Histories struct{ Figures *history.History }

// kindOf and spanOf are in the order of the API's words.
func kindOf(s api.Subject) history.Kind { return history.Kind(slices.Index(api.Subjects, s)) }
func spanOf(s api.Span) history.Span    { return history.Span(slices.Index(api.Spans, s)) }

func (a Histories) History(_ context.Context, q api.HistoryQuery) (api.History, error) {
	sp := spanOf(q.Span)
	start, series, ok := a.Figures.Get(kindOf(q.Of), q.Name, sp)
	if !ok {
		return api.History{}, api.NotFound("those that are kept: mta history "+string(q.Of),
			"no figures are kept of the %s %q by itself; those of %s have it, if it has mail", q.Of, q.Name,
			api.OtherSubjects)
	}
	out := api.History{Of: q.Of, Name: q.Name, Span: q.Span, Step: sp.Step().Seconds(), Start: start,
		Series: make(map[string]api.HistorySeries, len(series))}
	for _, s := range series {
		values := make(api.Figures, len(s.Values))
		for i, v := range s.Values {
			values[i] = api.Figure(v)
		}
		out.Series[s.Figure.String()] = api.HistorySeries{Unit: s.Figure.Unit(), Values: values}
	}
	return out, nil
}

func (a Histories) HistoryNames(_ context.Context, q api.HistoryNamesQuery) (api.HistoryNames, error) {
	out := api.HistoryNames{Of: q.Of}
	for _, name := range a.Figures.Names(kindOf(q.Of)) {
		row := api.HistoryRow{Name: name, Latest: make(map[string]api.Figure)}
		for f, v := range a.Figures.Latest(kindOf(q.Of), name) {
			row.Latest[f.String()] = api.Figure(v)
		}
		out.Rows = append(out.Rows, row)
	}
	return out, nil
}

// addQueued adds what is in the queue.
func (m Meter) addQueued(k history.Kind, names []string, all []history.Reading) {
	index := make(map[string]int, len(names))
	for i, name := range names {
		index[name] = i
	}
	total, deferred := make([]int, len(names)), make([]int, len(names))
	add := func(name string, n, later int) {
		if i, ok := index[name]; ok {
			total[i] += n
			deferred[i] += later
		}
	}
	if k == history.Tenant {
		for _, row := range m.Queue.CountTenants().Rows {
			add(row.Name, row.Total, row.States[queue.StateDeferred])
		}
	} else {
		m.Queue.EachLine(func(line parking.Line, n *queue.LineCount) {
			add(m.nameOf(k, line), int(n.Total), int(n.States[queue.StateDeferred]))
		})
	}
	for i := range names {
		all[i].Level(history.Queued, float64(total[i]))
		all[i].Level(history.QueuedDeferred, float64(deferred[i]))
	}
}

// nameOf is the provider, source or site that a line of mail is for; "" when it is not known yet.
func (m Meter) nameOf(k history.Kind, line parking.Line) string {
	switch {
	case k == history.Provider:
		name, _ := m.ProviderOf(line.Key)
		return name
	case k == history.Source:
		return line.Source
	case line.Key.Kind == parking.Site && !line.Route:
		return line.Key.Name
	}
	return ""
}
