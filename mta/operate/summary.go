package operate

import (
	"context"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/mta/control"
	"example.org/mta/queue"
)

func (o messages) Summary(_ context.Context, by control.SummaryBy, f control.Filter, p control.SummaryPage) (control.Summary, error) {
	sel, err := o.selector(f, true)
	if err != nil {
		return control.Summary{}, err
	}
	if rows, ok := o.counted(by, f); ok {
		return fromCounters(by, rows, p.Limit), nil
	}
	return o.looking(by, sel.Filter, p)
}

// counted gives the counters that answer a summary; false when none do.
func (o messages) counted(by control.SummaryBy, f control.Filter) (queue.Counts, bool) {
	other := f
	other.Tenant = ""
	if !other.Empty() {
		return queue.Counts{}, false
	}
	q := o.r.Queue
	switch {
	case by == control.ByCampaign:
		return q.CountCampaigns(f.Tenant), true
	case by == control.BySenderDomain:
		return q.CountSenders(f.Tenant), true
	case f.Tenant != "":
		return queue.Counts{}, false
	case by == control.ByTenant:
		return q.CountTenants(), true
	case by == control.ByDomain:
		return q.CountDomains(), true
	case by == control.ByState:
		return o.countedStates(), true
	}
	return q.CountLines(o.r.naming(by).Line), true
}

// countedStates counts by the states that operators see. Those of what was handed out are asked for one by one; there
// is not much of that, whatever is queued.
func (o messages) countedStates() queue.Counts {
	by := o.r.Queue.CountStates()
	var active, ending, waiting queue.Count
	o.r.Queue.Out(func(out queue.Leased) {
		of := &waiting
		if out.Ending {
			of = &ending
		} else if o.r.Delivery.OnConnection(out.ID, out.Recipient) {
			of = &active
		}
		of.Total++
		of.Ages[out.AgeClass]++
		of.States[queue.StateLeased]++
	})
	waiting.Add(&by[queue.StateParked])
	ending.Add(&by[queue.StateEnding])
	var c queue.Counts
	for state, n := range map[control.State]*queue.Count{
		control.StateDue: &by[queue.StateDue], control.StateDeferred: &by[queue.StateDeferred], control.StateHeld: &by[queue.StateHeld],
		control.StateUnreadable: &by[queue.StateUnreadable], control.StateWaiting: &waiting, control.StateActive: &active, control.StateEnding: &ending,
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
func fromCounters(by control.SummaryBy, c queue.Counts, limit int) control.Summary {
	switch by {
	case control.BySite, control.ByDomain, control.ByCampaign, control.BySenderDomain:
		if limit == 0 || limit > control.MostRows {
			limit = control.MostRows
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
func (r *Relay) naming(by control.SummaryBy) queue.Naming {
	switch by {
	case control.ByProvider:
		return queue.Naming{Line: func(l parking.Line) string {
			name, _ := r.Sites.Provider(l.Key)
			return name
		}}
	case control.BySource:
		return queue.Naming{Line: func(l parking.Line) string { return l.Source }}
	case control.ByDomain:
		return queue.Naming{Envelope: func(m *envelope.Message, i int) string { return strings.ToLower(m.Recipients[i].Address.Domain()) }}
	case control.ByTenant:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string { return m.Tenant }}
	case control.ByCampaign:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string { return m.Campaign }}
	case control.ByState:
		return queue.Naming{State: func(s queue.RecipientState) string { return string(r.stateOf(s)) }}
	case control.BySenderDomain:
		return queue.Naming{Envelope: func(m *envelope.Message, _ int) string { return strings.ToLower(m.Sender.Domain()) }}
	}
	return queue.Naming{Line: func(l parking.Line) string { return l.Key.String() }}
}

// looking counts by looking through the queue, for a time.
func (o messages) looking(by control.SummaryBy, f queue.Filter, p control.SummaryPage) (control.Summary, error) {
	t, err := o.r.Queue.Tally(f, o.r.naming(by), p.After, timeToLook)
	if err != nil {
		return control.Summary{}, badCursor(err)
	}
	s := summarise(by, t.Rows, p.Limit)
	s.Looked, s.Next, s.Complete = t.Looked, t.Next, t.Next == ""
	return s, nil
}

// summarise puts rows in the API's words, the limit largest of them; 0: all.
func summarise(by control.SummaryBy, rows []queue.Row, limit int) control.Summary {
	s := control.Summary{By: by, Rows: make([]control.SummaryRow, len(rows)), Exact: true}
	for _, a := range queue.AgeLimits {
		s.Bounds = append(s.Bounds, control.Age(a))
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

func summaryRow(name string, c *queue.Count) control.SummaryRow {
	row := control.SummaryRow{Key: name, Total: c.Total, Counts: c.Ages[:], States: make(map[control.State]int)}
	for state, n := range c.States {
		if n > 0 {
			row.States[stateWords[state]] += n
		}
	}
	return row
}

// stateWords are what operators call the queue's states. What is handed out is active, though it may wait within
// delivery for a connection.
var stateWords = [...]control.State{
	queue.StateDue: control.StateDue, queue.StateDeferred: control.StateDeferred, queue.StateParked: control.StateWaiting,
	queue.StateHeld: control.StateHeld, queue.StateLeased: control.StateActive, queue.StateEnding: control.StateEnding,
	queue.StateUnreadable: control.StateUnreadable,
}
