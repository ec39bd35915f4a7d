package delivery

import (
	"fmt"
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/internal/minheap"
)

// scopeKind says what a budget is for.
type scopeKind uint8

const (
	scopeTotal scopeKind = iota
	scopeSource
	scopeProvider
	scopeHost
	scopeSite
	scopePath
	scopeTenant
	scopeShared
	scopeDivided    // among relays
	scopeRule       // mail that an operator's rule slows; its name is the number
	scopeOnTheirWay // the relay's connections that are not ready for mail
	scopeStrangers  // of those, the ones to hosts that have not proved themselves
	scopeSuspects   // of those, the ones to hosts whose last connection failed, or that need patience
)

// budgetKey names a budget: a source's has the source, a path's site and source, and so on.
type budgetKey struct {
	kind         scopeKind
	name, source string
}

// Words around a limit that relays share, in why mail waits.
const (
	PartOf      = "this relay's part of "
	OfAllRelays = ", of all relays together"
)

// String gives the name of the setting's scope, for explanations.
func (k budgetKey) String() string {
	switch k.kind {
	case scopeTotal:
		return "the relay"
	case scopeOnTheirWay:
		return "the relay: connections that are not ready for mail yet"
	case scopeStrangers:
		return "the relay: connections to hosts that have not proved themselves"
	case scopeSuspects:
		return "the relay: connections to hosts whose last connection failed, or that take long to answer"
	case scopeSource:
		return "source " + k.source
	case scopeProvider:
		return "provider " + k.name
	case scopeHost:
		return "host " + k.name
	case scopeSite:
		return "site " + k.name
	case scopeTenant:
		return "tenant " + k.name
	case scopeShared:
		return k.name
	case scopeDivided:
		return k.name + OfAllRelays
	case scopeRule:
		return "rule " + k.name
	}
	return "site " + k.name + " from source " + k.source
}

// budget is what lanes share in one scope: connections at a time, messages and connections by
// rate.
type budget struct {
	budgetKey
	live        int // connections
	idle        int // of those, idle ones
	leaving     int // and those about to end
	messages    gcra.Limiter
	connections gcra.Limiter
	named       time.Time // when there was a lane last that has it

	// Why mail waits, in words: made once, as a lane at a limit meets it with every message.
	atLimit, atRate string
	rate            gcra.Rate // in atRate

	// Those that share the places for connections, see places.go.
	parties map[string]*party
	holders int                  // parties that have connections
	line    minheap.Heap[*party] // those that want one more and met this limit, whose turn it is first
	waiting int                  // their lanes in line
	turns   float64              // busy connections that may be closed for the sake of others

	division *division // nil: all of it is this relay's
}

// limitText is why a lane waits for a connection.
func (b *budget) limitText() string {
	if b.atLimit == "" {
		b.atLimit = "connection_limit of " + b.String()
	}
	return b.atLimit
}

// rateText is why a lane waits for its turn at a rate.
func (b *budget) rateText(rate gcra.Rate) string {
	if b.atRate == "" || b.rate != rate {
		b.atRate, b.rate = fmt.Sprintf("max_message_rate %v of %s", rate, b.budgetKey), rate
	}
	return b.atRate
}

// full reports whether no more connections may be made at this time.
func (b *budget) full(limit int) bool {
	limit, bounded := b.most(limit)
	return bounded && b.live >= limit
}

// most is how many connections there may be at a time, false for any number.
func (b *budget) most(limit int) (most int, bounded bool) {
	if b.division != nil {
		return b.division.allowed()
	}
	return limit, limit > 0
}

// free is how many connections may be made, since idle ones give way.
func (b *budget) free(limit int) int { return limit - b.live + b.idle }

func newBudget(key budgetKey) *budget {
	return &budget{budgetKey: key, parties: make(map[string]*party, 1), turns: turnsSaved,
		line: minheap.New((*party).before, func(p *party, i int) { p.at = i })}
}

// budget gives the budget of that key, making it if need be.
func (s *Scheduler) budget(key budgetKey) *budget {
	b := s.budgets[key]
	if b == nil {
		b = newBudget(key)
		s.budgets[key] = b
	}
	return b
}
