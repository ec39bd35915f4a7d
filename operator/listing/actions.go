package listing

import (
	"time"

	"example.org/mta/operator/audit"
)

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
	Note: func(a *action, _ Look) string { return Join(a.Reason, a.Error) },
	Key:  func(a *action) string { return a.Time.Format(time.RFC3339Nano) },
}

// actor is who did it, and from where if that is not this machine's socket.
func actor(a *action) string {
	if a.Address == "" {
		return a.Name()
	}
	return a.Name() + "@" + a.Address
}
