package listing

import (
	"fmt"

	"example.org/mta/operator/api"
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
