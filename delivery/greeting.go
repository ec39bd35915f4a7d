package delivery

import (
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
)

// Hosts that accept connections and say nothing must not use up the relay's. Until a connection has been
// greeted, and is ready for mail, it counts in up to three scopes more: all connections on their way;
// those to strangers, which are hosts that have not proved themselves; and those to suspects, which are
// strangers whose last connection failed. So a host that was never met does not wait behind silent ones
// that are tried again. A lane that meets one of these limits lines up as for any other place, and while
// any does, the wait for a greeting is short.

// Shares of the relay's connections.
const (
	onTheirWay     = 4 // at least one in so many is kept for connections that stand
	strangersShare = 2 // at most one in so many is on its way to a stranger
	suspectsShare  = 4 // at most one in so many is on its way to a suspect
)

// How long a connection may take to become ready for mail while lanes wait for its place: shortGreeting,
// and less as the line grows, down to leastGreeting. When none waits, Limits.ConnectTimeout and the client's
// time-outs apply.
const (
	shortGreeting = 20 * time.Second
	leastGreeting = 10 * time.Second
)

// stranger reports whether a host has yet to prove itself: no recent connection became ready for mail, or
// the last one failed.
func stranger(p *destdb.Path) bool { return p.Host.Facts.Mode == "" || p.Suspect() }

func (s *Scheduler) strangersLimit() int { return max(s.cfg.MaxConnections/strangersShare, 1) }
func (s *Scheduler) suspectsLimit() int  { return max(s.cfg.MaxConnections/suspectsShare, 1) }
func (s *Scheduler) onTheirWayLimit() int {
	return max(s.cfg.MaxConnections-s.cfg.MaxConnections/onTheirWay, 1)
}

// fullForStranger gives the scope whose limit keeps a connection from being begun on p because of what
// is known of its host; nil when none does.
func (s *Scheduler) fullForStranger(p *destdb.Path) *budget {
	switch {
	case p.Suspect() && s.suspects.full(s.suspectsLimit()):
		return s.suspects
	case stranger(p) && s.strangers.full(s.strangersLimit()):
		return s.strangers
	}
	return nil
}

// ofOpening reports whether a connection leaves the scope when it is ready for mail.
func (k scopeKind) ofOpening() bool { return k >= scopeOnTheirWay }

// arrived takes c out of the scopes of connections on their way, and returns these scopes, where others
// may have its place.
func (c *connection) arrived() (free []*budget) {
	for i, b := range c.budgets {
		if b != nil && b.kind.ofOpening() {
			b.leave(c)
			c.budgets[i] = nil
			free = append(free, b)
		}
	}
	return free
}

// hurry gives up connections that have been on their way for too long while lanes wait for their places.
func (s *Scheduler) hurry(now time.Time) {
	for _, x := range [...]struct {
		b     *budget
		limit int
	}{{s.suspects, s.suspectsLimit()}, {s.strangers, s.strangersLimit()}, {s.onTheirWay, s.onTheirWayLimit()}} {
		if x.b.waiting == 0 {
			continue
		}
		patience := max(shortGreeting*time.Duration(x.limit)/time.Duration(x.limit+x.b.waiting), leastGreeting)
		for c := range s.conns {
			if c.session == nil && c.hurried == 0 && now.Sub(c.rec.Made) >= patience && c.countsIn(x.b) {
				c.hurried = now.Sub(c.rec.Made).Round(time.Second)
				c.cancel()
			}
		}
	}
}

// tooSlow is the reply for a connection that was given up because others waited for its place.
func (c *connection) tooSlow() reply.Reply {
	return reply.Local(451, reply.Enhanced{4, 4, 1}, "connect",
		"not ready for mail after %v; the wait is cut short while many connections wait for hosts that do not answer", c.hurried)
}
