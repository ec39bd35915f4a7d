package delivery

import (
	"fmt"
	"slices"
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

	division *division    // nil: all of it is this relay's
	lines    [3]*rateLine // of messages and of openings, indexed as the limits of a division; nil: none yet
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

// rateLine is the lanes that wait for a rate. Each event is for the one that had a message longest ago, and that one
// alone has a timer: an event costs the same, however many lanes wait.
type rateLine struct {
	b     *budget
	i     int       // which of its rates
	rate  gcra.Rate // of all that are in line
	lanes minheap.Heap[*lane]
	timed *lane // whose timer is for the next event; nil: none's
}

// ratePlace is a lane's place in such a line.
type ratePlace struct {
	line    *rateLine // nil: in none
	at      int
	charged uint64 // grows with each message
}

// lineAt gives the line for a rate. A lane that has another rate than those in line, which a rule slows or a reload has
// not reached yet, gets none: it waits by a timer alone.
func (b *budget) lineAt(i int, rate gcra.Rate) *rateLine {
	if b.division != nil {
		rate = gcra.Rate{} // the Divider's to know
	}
	x := b.lines[i]
	if x == nil {
		x = &rateLine{b: b, i: i, lanes: minheap.New(
			func(a, b *lane) bool { return a.pace.charged < b.pace.charged }, func(l *lane, at int) { l.pace.at = at })}
		b.lines[i] = x
	}
	if x.lanes.Len() == 0 {
		x.rate = rate
	}
	if x.rate != rate {
		return nil
	}
	return x
}

// inLine reports whether lanes wait for a rate of the budget.
func (b *budget) inLine() bool {
	return slices.ContainsFunc(b.lines[:], func(x *rateLine) bool { return x != nil && x.lanes.Len() > 0 })
}

// next is when the next event may be; zero: when this relay's part has grown.
func (x *rateLine) next(now time.Time) time.Time {
	if x.b.division != nil {
		return x.b.division.next(x.i, now)
	}
	limiter := &x.b.messages
	if x.i == dividedOpenings {
		limiter = &x.b.connections
	}
	return limiter.Next(now, x.rate, 1)
}

// join puts a lane in line.
func (x *rateLine) join(l *lane, now time.Time) {
	l.leave()
	l.s.setTimer(l, time.Time{})
	l.pace.line = x
	x.lanes.Push(l)
	x.call(now)
}

// leave takes the lane out of its line, which it returns: call must follow when the lane has been run.
func (l *lane) leave() *rateLine {
	x := l.pace.line
	if x != nil {
		x.lanes.Remove(l.pace.at)
		l.pace.line = nil
		if x.timed == l {
			x.timed = nil
		}
	}
	return x
}

// call has the first in line run at the next event.
func (x *rateLine) call(now time.Time) {
	if x == nil || x.lanes.Len() == 0 {
		return
	}
	l := x.lanes.Top()
	if x.timed != nil && x.timed != l {
		l.s.setTimer(x.timed, time.Time{})
	}
	x.timed = l
	l.s.setTimer(l, x.next(now))
}
