package delivery

import (
	"time"

	"mta/internal/gcra"
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
)

// budgetKey names a budget: a source's has the source, a path's site and source, and so on.
type budgetKey struct {
	kind         scopeKind
	name, source string
}

// String gives the name of the setting's scope, for explanations.
func (k budgetKey) String() string {
	switch k.kind {
	case scopeTotal:
		return "the relay"
	case scopeSource:
		return "source " + k.source
	case scopeProvider:
		return "provider " + k.name
	case scopeHost:
		return "host " + k.name
	case scopeSite:
		return "site " + k.name
	}
	return "site " + k.name + " from source " + k.source
}

// budget is what lanes share in one scope: connections at a time, messages and connections by
// rate.
type budget struct {
	budgetKey
	live        int
	messages    gcra.Limiter
	connections gcra.Limiter
	waiters     []*lane   // that want a connection and met this limit, first come first served
	named       time.Time // when there was a lane last that has it
}

// full reports whether no more connections may be made at this time.
func (b *budget) full(limit int) bool { return limit > 0 && b.live >= limit }

// wait lets l be told when a connection of this scope ends.
func (b *budget) wait(l *lane) {
	if l.waitsOn == b {
		return
	}
	l.stopWaiting()
	l.waitsOn = b
	b.waiters = append(b.waiters, l)
}

// next takes the first waiter off the list; nil when there is none.
func (b *budget) next() *lane {
	for len(b.waiters) > 0 {
		l := b.waiters[0]
		b.waiters[0] = nil
		b.waiters = b.waiters[1:]
		if l != nil && l.waitsOn == b {
			l.waitsOn = nil
			return l
		}
	}
	return nil
}

// budget gives the budget of that key, making it if need be.
func (s *Scheduler) budget(key budgetKey) *budget {
	b := s.budgets[key]
	if b == nil {
		b = &budget{budgetKey: key}
		s.budgets[key] = b
	}
	return b
}
