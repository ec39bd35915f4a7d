package listing

import (
	"cmp"
	"slices"
	"strconv"

	"example.org/mta/operator/api"
)

type rule = api.Rule

// Rules lists the rules for mail.
var Rules = Listing[rule]{
	Name:  "rules",
	Noun:  "rule",
	Empty: "the mail that is bounced, held, paused, rerouted or slowed would stand here",
	Columns: []Column[rule]{
		{Title: "RULE", Cell: func(r *rule) Cell { return Word(strconv.Itoa(r.ID)) }},
		{Title: "DOES", Cell: func(r *rule) Cell { return Word(r.Action) }},
		{Title: "MAIL", Shrink: true, Cell: func(r *rule) Cell { return Word(r.Selection.String()) }},
		{Title: "TO", Shrink: true, Cell: func(r *rule) Cell { return Word(r.Rate + r.Host) }},
		{Title: "BY", Shrink: true, Cell: func(r *rule) Cell { return Word(r.By) }},
		{Title: "SINCE", Right: true, At: func(r *rule, l Look) Cell { return l.ago(r.Since) }},
		{Title: "UNTIL", Right: true, At: func(r *rule, l Look) Cell {
			if r.Until.IsZero() {
				return Word("-")
			}
			return l.until(r.Until)
		}},
	},
	Note: func(r *rule, _ Look) string { return r.Reason },
	Key:  func(r *rule) string { return strconv.Itoa(r.ID) },
	Compare: func(_ string, a, b *rule) int {
		return cmp.Or(slices.Index(api.RuleActions, a.Action)-slices.Index(api.RuleActions, b.Action),
			cmp.Compare(a.Selection.String(), b.Selection.String()))
	},
}
