package listing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"example.org/mta/operator/api"
)

type (
	provider = api.Provider
	source   = api.Source
	pool     = api.Pool
)

// Providers lists the providers of the configuration.
var Providers = Listing[provider]{
	Name:  "providers",
	Noun:  "provider",
	Empty: "sites with one budget are a provider of the configuration",
	Columns: slices.Concat([]Column[provider]{
		{Title: "PROVIDER", Shrink: true,
			Cell: func(p *provider) Cell { return orRest(Name(ToProvider, p.Name), "(none)", "all other sites") }},
		{Title: "QUEUED", Right: true, In: Top, At: func(_ *provider, l Look) Cell { return l.whole("queued") }},
		{Title: "DEFERRED", Right: true, In: Top,
			At: func(_ *provider, l Look) Cell { return l.whole("queued_deferred") }},
	}, load(Console, func(p *provider) *api.Load { return &p.Load }), []Column[provider]{
		waits(6, func(p *provider) []api.WaitsFor { return p.WaitsFor }),
		rate[provider]("DELIV/s", 0, "delivered"),
		rate[provider]("DEFERRED/s", 1, "deferred"),
		rate[provider]("BOUNCED/s", 4, "bounced"),
		{Title: "DELAY p50", Right: true, Spare: 6, In: Top,
			At: func(_ *provider, l Look) Cell { return l.seconds("delay_p50") }},
		{Title: "p99", Right: true, Spare: 5, In: Top,
			At: func(_ *provider, l Look) Cell { return l.seconds("delay_p99") }},
	}, tally(Console, func(p *provider) *api.Tally { return &p.Tally })),
	Note: func(p *provider, l Look) string { return l.LastError(&p.Tally) },
	Key:  func(p *provider) string { return p.Name },
	Rest: api.OtherSubjects,
}

// orRest names the row of all that have no name, in few and in more words.
func orRest(name Cell, short, long string) Cell {
	if name.Text == Nothing {
		return Cell{Text: short, Long: long}
	}
	return name
}

// Sources lists the sources of the configuration.
var Sources = Listing[source]{
	Name:  "sources",
	Noun:  "source",
	Empty: "the local addresses from which mail leaves would stand here",
	Columns: slices.Concat([]Column[source]{
		{Title: "SOURCE", Shrink: true, Cell: func(s *source) Cell { return Name(ToSource, s.Name) }},
		{Title: "ADDRESS", Spare: 5, Cell: func(s *source) Cell { return Word(s.Address) }},
		{Title: "EHLO", In: Console, Cell: func(s *source) Cell { return Word(s.EHLO) }},
		{Title: "POOLS", In: Console, Cell: func(s *source) Cell { return Names(ToPool, s.Pools) }},
		{Title: "STATE", Cell: func(s *source) Cell { return State(s.State) }},
		{Title: "QUEUED", Right: true, Spare: 6, In: Top,
			At: func(_ *source, l Look) Cell { return l.whole("queued") }},
	}, load(0, func(s *source) *api.Load { return &s.Load }), []Column[source]{
		waits(2, func(s *source) []api.WaitsFor { return s.WaitsFor }),
		rate[source]("DELIV/s", 0, "delivered"),
		rate[source]("FAIL/s", 1, "deferred", "bounced"),
	}, tally(CLI|Console, func(s *source) *api.Tally { return &s.Tally }), []Column[source]{
		{Title: "SUSPENSIONS", Right: true, In: Console, Cell: func(s *source) Cell { return Count(s.Suspensions) }},
	}),
	Note: func(s *source, l Look) string {
		return Join(s.Reason, weights("in pool ", s.Weights), l.LastError(&s.Tally))
	},
	Key: func(s *source) string { return s.Name },
}

// Pools lists the pools of sources.
var Pools = Listing[pool]{
	Name:  "pools",
	Noun:  "pool",
	Empty: "the groups of sources that tenants may use would stand here",
	Columns: slices.Concat([]Column[pool]{
		{Title: "POOL", Shrink: true, Cell: func(p *pool) Cell { return Word(p.Name) }},
		{Title: "SHARED", Right: true, Spare: 4, Cell: func(p *pool) Cell { return Names(ToSource, p.Shared) }},
		{Title: "DEDICATED", Right: true, Spare: 4, Cell: func(p *pool) Cell { return Names(ToSource, p.Dedicated) }},
		{Title: "TENANTS", Right: true, Spare: 4,
			Cell: func(p *pool) Cell { return Count(p.Tenants).to(ToTenants, p.Name) }},
	}, load(0, func(p *pool) *api.Load { return &p.Load }), []Column[pool]{
		waits(2, func(p *pool) []api.WaitsFor { return p.WaitsFor }),
		{Title: "ACCEPTED", Right: true, Cell: func(p *pool) Cell { return Count(p.Tally.Accepted) }},
	}, tally(0, func(p *pool) *api.Tally { return &p.Tally })),
	Note: func(p *pool, l Look) string { return Join(p.Paused, weights("", p.Weights), l.LastError(&p.Tally)) },
	Key:  func(p *pool) string { return p.Name },
}

// weights describes weights by name, "" without any.
func weights(prefix string, of map[string]int) string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		words = append(words, fmt.Sprintf("weight %d %s%s", of[name], prefix, name))
	}
	return strings.Join(words, ", ")
}
