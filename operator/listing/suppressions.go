package listing

import "example.org/mta/operator/api"

type suppression = api.Suppression

// Suppressions lists addresses that get no mail.
var Suppressions = Listing[suppression]{
	Name:  "suppressed addresses",
	Noun:  "address",
	Empty: "addresses that get no mail would stand here, with how they came onto the list",
	Columns: []Column[suppression]{
		{Title: "ADDRESS", Shrink: true, Cell: func(s *suppression) Cell { return Word(s.Address) }},
		{Title: "TENANT", Shrink: true,
			Cell: func(s *suppression) Cell { return orRest(Word(s.Tenant), Nothing, "everybody's") }},
		{Title: "SOURCE", Cell: func(s *suppression) Cell { return Word(s.Source) }},
		{Title: "CLASS", In: Console, Cell: func(s *suppression) Cell { return Word(s.Class) }},
		{Title: "PROVIDER", In: Console, Cell: func(s *suppression) Cell { return Word(s.Provider) }},
		{Title: "AGE", Right: true, At: func(s *suppression, l Look) Cell { return l.ago(s.Added) }},
		{Title: "ENDS IN", Right: true, At: func(s *suppression, l Look) Cell { return l.until(s.Expires) }},
	},
	Note: func(s *suppression, _ Look) string { return s.Reason },
	Key:  func(s *suppression) string { return s.Tenant + "-" + s.Address },
}
