package listing

import (
	"strings"

	"example.org/mta/operator/api"
)

type limit = api.Limit

// Limits lists the limits in force for the mail of a destination.
var Limits = Listing[limit]{
	Name: "limits",
	Columns: []Column[limit]{
		{Title: "LIMIT", Cell: func(l *limit) Cell { return Word(l.Setting) }},
		{Title: "VALUE", Right: true, Cell: func(l *limit) Cell { return Word(l.Value) }},
		{Title: "OF", Cell: func(l *limit) Cell { return Word(l.Scope) }},
		{Title: "SET BY", Cell: func(l *limit) Cell { return Word(l.Origin) }},
	},
	NoteTitle: "NOW",
	Note:      func(l *limit, _ Look) string { return l.Now },
	Key:       func(l *limit) string { return l.Setting + "-" + strings.ReplaceAll(l.Scope, " ", "-") },
}
