package messages

import (
	"context"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

func (m *Messages) Summary(_ context.Context, q api.SummaryQuery) (api.Summary, error) {
	sel, err := m.selector(q.Filter, true)
	if err != nil {
		return api.Summary{}, err
	}
	if rows, ok := m.counted(q.By, q.Filter); ok {
		return fromCounters(q.By, rows, q.Limit), nil
	}
	return m.looking(q.By, sel.Filter, q.SummaryPage)
}

// Fitting counts the recipients that a filter fits.
func (m *Messages) Fitting(f api.Filter) (n int, err error) {
	sel, err := m.selector(f, true)
	if err == nil {
		for _, k := range m.Queue.Summary(sel.Filter) {
			n += k.Total
		}
	}
	return n, err
}

// counted gives the counters that answer a summary; false when none do.
func (m *Messages) counted(by api.SummaryBy, f api.Filter) (queue.Counts, bool) {
	other := f
	other.Tenant = ""
	if !other.Empty() {
		return queue.Counts{}, false
	}
	q := m.Queue
	switch {
	case by == api.ByWaitsFor:
		return queue.Counts{}, false
	case by == api.ByCampaign:
		return q.CountCampaigns(f.Tenant), true
	case by == api.BySenderDomain:
		return q.CountSenders(f.Tenant), true
	case f.Tenant != "":
		return queue.Counts{}, false
	case by == api.ByTenant:
		return q.CountTenants(), true
	case by == api.ByDomain:
		return q.CountDomains(), true
	case by == api.ByState:
		return m.countedStates(), true
	}
	return q.CountLines(m.naming(by).Line), true
}

// countedStates counts by the states that operators see. Those of what was handed out are asked for one by one; there
// is not much of that, whatever is queued.
func (m *Messages) countedStates() queue.Counts {
	by := m.Queue.CountStates()
	var active, ending, waiting queue.Count
	m.Queue.Out(func(out queue.Leased) {
		of := &waiting
		if out.Ending {
			of = &ending
		} else if m.Delivery.OnConnection(out.ID, out.Recipient) {
			of = &active
		}
		of.Total++
		of.Ages[out.AgeClass]++
		of.States[queue.StateLeased]++
	})
	waiting.Add(&by[queue.StateParked])
	ending.Add(&by[queue.StateEnding])
	var c queue.Counts
	for state, n := range map[api.State]*queue.Count{
		api.StateDue: &by[queue.StateDue], api.StateDeferred: &by[queue.StateDeferred],
		api.StateHeld:       &by[queue.StateHeld],
		api.StateUnreadable: &by[queue.StateUnreadable], api.StateWaiting: &waiting, api.StateActive: &active,
		api.StateEnding: &ending,
	} {
		if n.Total > 0 {
			row := queue.Row{Name: string(state)}
			row.Add(n)
			c.Rows = append(c.Rows, row)
		}
	}
	slices.SortFunc(c.Rows, queue.Row.Compare)
	return c
}

// fromCounters puts counters in the API's words.
func fromCounters(by api.SummaryBy, c queue.Counts, limit int) api.Summary {
	switch by {
	case api.BySite, api.ByDomain, api.ByCampaign, api.BySenderDomain:
		if limit == 0 || limit > api.MostRows {
			limit = api.MostRows
		}
	}
	s := summarise(by, c.Rows, 0)
	s.Complete = true
	for i := range c.Rows {
		if s.Rows[i].Error = c.Rows[i].Error; s.Rows[i].Error > 0 {
			s.Exact = false
		}
	}
	if c.Unnamed.Total > 0 {
		other := summaryRow("", &c.Unnamed)
		s.Other, s.Exact = &other, false
		s.Total = s.Total.Plus(other)
	}
	s.Cut(limit)
	return s
}

// naming gives the name of a recipient in a summary.
func (m *Messages) naming(by api.SummaryBy) queue.Naming {
	switch by {
	case api.ByProvider:
		return queue.Naming{Line: func(l parking.Line) string {
			name, _ := m.Providers.Provider(l.Key)
			return name
		}}
	case api.BySource:
		return queue.Naming{Line: func(l parking.Line) string { return l.Source }}
	case api.ByDomain:
		return queue.Naming{Envelope: func(m *envelope.Message, i int) string {
			return strings.ToLower(m.Recipients[i].Address.Domain())
		}}
	case api.ByTenant:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string { return m.Tenant }}
	case api.ByCampaign:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string { return m.Campaign }}
	case api.ByState:
		return queue.Naming{State: func(s queue.RecipientState) string { return string(m.stateOf(s)) }}
	case api.ByWaitsFor:
		look := m.Waits.Look()
		return queue.Naming{Waits: func(line parking.Line, s queue.RecipientState) string {
			if s.State == queue.StateLeased && m.Delivery.OnConnection(s.ID, s.Recipient) {
				return ""
			}
			return look.Cause(line, s.State).Reason.String()
		}}
	case api.BySenderDomain:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string {
			return strings.ToLower(m.Sender.Domain())
		}}
	}
	return queue.Naming{Line: func(l parking.Line) string { return l.Key.String() }}
}

// looking counts by looking through the queue, for a time.
func (m *Messages) looking(by api.SummaryBy, f queue.Filter, p api.SummaryPage) (api.Summary, error) {
	t, err := m.Queue.Tally(f, m.naming(by), p.After, timeToLook)
	if err != nil {
		return api.Summary{}, badCursor(err)
	}
	s := summarise(by, t.Rows, p.Limit)
	s.Looked, s.Next, s.Complete = t.Looked, t.Next, t.Next == ""
	return s, nil
}

// summarise puts rows in the API's words, the limit largest of them; 0: all.
func summarise(by api.SummaryBy, rows []queue.Row, limit int) api.Summary {
	s := api.Summary{By: by, Rows: make([]api.SummaryRow, len(rows)), Exact: true}
	for _, a := range queue.AgeLimits {
		s.Bounds = append(s.Bounds, api.Age(a))
	}
	var total queue.Count
	for i := range rows {
		s.Rows[i] = summaryRow(rows[i].Name, &rows[i].Count)
		total.Add(&rows[i].Count)
	}
	s.Total = summaryRow("", &total)
	s.Cut(limit)
	return s
}

func summaryRow(name string, c *queue.Count) api.SummaryRow {
	row := api.SummaryRow{Key: name, Total: c.Total, Counts: c.Ages[:], States: make(map[api.State]int)}
	for state, n := range c.States {
		if n > 0 {
			row.States[stateWords[state]] += n
		}
	}
	return row
}

// stateWords are what operators call the queue's states. What is handed out is active, though it may wait within
// delivery for a connection.
var stateWords = [...]api.State{
	queue.StateDue: api.StateDue, queue.StateDeferred: api.StateDeferred, queue.StateParked: api.StateWaiting,
	queue.StateHeld: api.StateHeld, queue.StateLeased: api.StateActive, queue.StateEnding: api.StateEnding,
	queue.StateUnreadable: api.StateUnreadable,
}
