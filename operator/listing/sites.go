package listing

import (
	"slices"

	"example.org/mta/operator/api"
)

type site = api.Site

// Sites lists the sites that mail goes to.
var Sites = Listing[site]{
	Name:  "sites",
	Noun:  "site",
	Empty: "sites that mail has gone to would stand here, the longest queue first",
	Columns: slices.Concat([]Column[site]{
		{Title: "SITE", Shrink: true, Cell: func(s *site) Cell { return Name(ToSite, s.Name) }},
		{Title: "PROVIDER", Spare: 6, Cell: func(s *site) Cell { return Word(s.Provider) }},
		{Title: "QUEUED", Right: true, Cell: func(s *site) Cell { return Count(s.Queued) }},
		{Title: "CONNS", Right: true, Spare: 4, Cell: func(s *site) Cell { return Of(s.Connections, s.SlowStart) }},
		{Title: "ACTIVE", Right: true, Spare: 5, In: CLI | Console,
			Cell: func(s *site) Cell { return Count(s.Running) }},
		{Title: "WAITING", Right: true, Spare: 5, Cell: func(s *site) Cell { return Count(Waiting(s)) }},
		{Title: "DEFERRED", Right: true, Spare: 3, Cell: func(s *site) Cell { return Count(s.Deferred) }},
		rate[site]("DELIV/s", 0, "delivered"),
		rate[site]("FAIL/s", 1, "deferred", "bounced"),
	}, tally(CLI, func(s *site) *api.Tally { return &s.Tally }), []Column[site]{
		{Title: "USUAL/s", Right: true, Spare: 8, In: CLI | Console,
			Cell: func(s *site) Cell { return KnownRate(s.Usual) }},
		{Title: "LAST", Right: true, Spare: 9, At: func(s *site, l Look) Cell { return l.ago(s.LastGood) }},
		waits(2, func(s *site) []api.WaitsFor { return s.WaitsFor }),
		{Title: "STATE", In: Top | Console, Cell: func(s *site) Cell { return State(siteState(s)) }},
	}),
	Note: func(s *site, l Look) string { return Join(l.siteNote(s), l.LastError(&s.Tally)) },
	Key:  func(s *site) string { return s.Name },
	Compare: byMail(func(s *site) int { return s.Queued }, func(s *site) []api.WaitsFor { return s.WaitsFor },
		func(s *site) string { return s.Name }),
}

// Waiting counts the recipients in the state waiting: in delivery, or in the queue for lack of space there.
func Waiting(s *site) int { return s.Waiting + s.Parked }

// siteState is what a site's mail does, "" without any.
func siteState(s *site) string {
	switch {
	case len(s.Actions) > 0:
		return s.Actions[0].What
	case s.Why != "" && Waiting(s) > 0:
		return "waiting"
	case s.Running > 0:
		return "sending"
	case s.Why != "":
		return "retry"
	}
	return ""
}

// siteNote is what holds back mail for a site.
func (l Look) siteNote(s *site) string {
	if s.Why == "" || len(s.Actions) > 0 {
		var notes []string
		for _, a := range s.Actions {
			notes = append(notes, l.Action(a))
		}
		return Join(notes...)
	}
	note := "can't be tried: " + s.Why
	if Waiting(s) > 0 {
		note = "waits: " + s.Why
	}
	return note + l.More(s.Until)
}
