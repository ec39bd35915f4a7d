package listing

import (
	"fmt"
	"time"

	"example.org/mta/operator/api"
	"example.org/mta/operator/audit"
)

type logCount = api.LogCount

// LogCounts lists the values of a property that accounting records have most often.
var LogCounts = Listing[logCount]{
	Name:  "counts",
	Noun:  "record",
	Empty: "the most frequent values would stand here",
	Columns: []Column[logCount]{
		{Title: "VALUE", Shrink: true, Cell: func(c *logCount) Cell { return Word(c.Name) }},
		{Title: "COUNT", Right: true, Cell: func(c *logCount) Cell { return Count(c.Count) }},
		{Title: "SHARE", Right: true,
			Cell: func(c *logCount) Cell { return figure(fmt.Sprintf("%.1f%%", 100*c.Share), c.Share) }},
	},
	NoteTitle: "REPLY",
	Note: func(c *logCount, _ Look) string {
		if c.Reply == nil {
			return ""
		}
		return c.Reply.String()
	},
	Key: func(c *logCount) string { return c.Name },
}

type action = audit.Line

// Actions lists what operators did.
var Actions = Listing[action]{
	Name:  "actions",
	Noun:  "action",
	Empty: "what operators change, by command, API or console, and what was refused would stand here",
	Columns: []Column[action]{
		{Title: "TIME", At: func(a *action, l Look) Cell { return Word(a.Time.In(l.Zone).Format(time.DateTime)) }},
		{Title: "WHO", Shrink: true, Cell: func(a *action) Cell { return Word(actor(a)) }},
		{Title: "ACTION", Cell: func(a *action) Cell { return Word(a.Action) }},
		{Title: "COUNT", Right: true, Cell: func(a *action) Cell { return Count(a.Count) }},
		{Title: "OUTCOME", Cell: func(a *action) Cell { return State(a.Outcome) }},
		{Title: "SUBJECT", Shrink: true, Cell: func(a *action) Cell { return Word(a.Subject) }},
	},
	Note:    func(a *action, _ Look) string { return Join(a.Reason, a.Error) },
	Key:     func(a *action) string { return a.Time.Format(time.RFC3339Nano) },
	Compare: func(_ string, a, b *action) int { return b.Time.Compare(a.Time) },
}

// actor is who did it, and from where if that is not this machine's socket.
func actor(a *action) string {
	if a.Address == "" {
		return a.Name()
	}
	return a.Name() + "@" + a.Address
}
