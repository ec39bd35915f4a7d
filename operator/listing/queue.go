package listing

import (
	"fmt"
	"strings"

	"example.org/mta/operator/api"
)

// Queued is a recipient of a message in the queue.
type Queued struct {
	*api.Item
	*api.RecipientStatus     // nil: More stands in its place
	Number               int // of the recipient, from 0
	More                 int // recipients that are left out
}

// QueueRows gives the rows of messages.
func QueueRows(messages []api.Item) (rows []Queued) {
	for i := range messages {
		m := &messages[i]
		for j := range m.Recipients {
			rows = append(rows, Queued{Item: m, RecipientStatus: &m.Recipients[j], Number: j})
		}
		if left := m.Matching - len(m.Recipients); left > 0 {
			rows = append(rows, Queued{Item: m, More: left})
		}
	}
	return rows
}

// Queue lists the messages in the queue, a row for each recipient.
var Queue = Listing[Queued]{
	Name:  "messages",
	Noun:  "message",
	Empty: "messages that wait for delivery would stand here",
	Columns: []Column[Queued]{
		{Title: "ID", Cell: first(func(m *api.Item) Cell { return Name(ToMessage, m.ID) })},
		{Title: "AGE", Right: true, At: age},
		{Title: "SIZE", Right: true, Cell: first(func(m *api.Item) Cell { return readable(m, Size(m.Size)) })},
		{Title: "SENDER", Shrink: true, Cell: first(func(m *api.Item) Cell { return readable(m, Address(m.Sender)) })},
		{Title: "TENANT", In: Console, Cell: first(func(m *api.Item) Cell { return Word(m.Tenant) })},
		{Title: "RECIPIENT", Shrink: true, Cell: recipient},
		{Title: "STATE", Cell: each(func(r *api.RecipientStatus) Cell { return State(r.State) })},
		{Title: "TRIES", Right: true, Cell: each(func(r *api.RecipientStatus) Cell { return Count(r.Attempts) })},
		{Title: "NEXT", Right: true, At: next},
	},
	Note: func(q *Queued, l Look) string {
		if q.RecipientStatus == nil {
			return ""
		}
		return q.Why(l.Zone)
	},
	Key: func(q *Queued) string {
		if q.RecipientStatus == nil {
			return q.Item.ID + "-more"
		}
		return fmt.Sprint(q.Item.ID, "-", q.Number)
	},
}

// First reports whether a row has the cells of its message, which the others don't repeat.
func (q *Queued) First() bool { return q.RecipientStatus != nil && q.Number == 0 }

// first is a cell of a message: blank but in its first row.
func first(of func(*api.Item) Cell) func(*Queued) Cell {
	return func(q *Queued) Cell {
		if !q.First() {
			return Cell{}
		}
		return of(q.Item)
	}
}

// each is a cell of a recipient.
func each(of func(*api.RecipientStatus) Cell) func(*Queued) Cell {
	return func(q *Queued) Cell {
		if q.RecipientStatus == nil {
			return Cell{}
		}
		return of(q.RecipientStatus)
	}
}

func age(q *Queued, l Look) Cell {
	if !q.First() {
		return Cell{}
	}
	return l.ago(q.Received)
}

func next(q *Queued, l Look) Cell {
	if q.RecipientStatus == nil {
		return Cell{}
	}
	return l.Next(q.RecipientStatus)
}

func recipient(q *Queued) Cell {
	switch {
	case q.RecipientStatus != nil:
		return Address(q.Address)
	case q.More == 1:
		return Word("... and 1 more recipient").to(ToMessage, q.Item.ID)
	}
	return Word(fmt.Sprintf("... and %d more recipients", q.More)).to(ToMessage, q.Item.ID)
}

// readable is a cell of a message whose record could be read.
func readable(m *api.Item, c Cell) Cell {
	if m.Unreadable {
		return Cell{Text: "?", Long: "unreadable"}
	}
	return c
}

// Next is when a recipient is tried next.
func (l Look) Next(r *api.RecipientStatus) Cell {
	switch {
	case r.State == api.StateActive:
		return figure("now", 0)
	case r.State == api.StateHeld:
		return Unknown()
	}
	return l.until(r.Next)
}

// States returns how many recipients are in which state, ": 3 due, 2 held"; "" if none is in any.
func States(counts map[string]int64) string {
	var parts []string
	for _, s := range api.States {
		if n := counts[string(s)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return ": " + strings.Join(parts, ", ")
}
