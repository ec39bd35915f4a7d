package listing

import "example.org/mta/operator/api"

type pause = api.Pause

// Pauses lists what is paused.
var Pauses = Listing[pause]{
	Name:  "pauses",
	Noun:  "pause",
	Empty: "the tenants, pools, sources and domains of which nothing is sent would stand here",
	Columns: []Column[pause]{
		{Title: "PAUSED", Cell: func(p *pause) Cell { return Word(p.What) }},
		{Title: "NAME", Shrink: true, Cell: func(p *pause) Cell { return Word(p.Name) }},
		{Title: "BY", Shrink: true, Cell: func(p *pause) Cell { return Word(p.By) }},
		{Title: "SINCE", Right: true, At: func(p *pause, l Look) Cell { return l.ago(p.Since) }},
		{Title: "UNTIL", Right: true, At: func(p *pause, l Look) Cell {
			if p.Until.IsZero() {
				return Word("resumed")
			}
			return l.until(p.Until)
		}},
	},
	Note: func(p *pause, _ Look) string { return p.Reason },
	Key:  func(p *pause) string { return string(p.What) + "-" + p.Name },
}
