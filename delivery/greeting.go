package delivery

import (
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
)

// Hosts that accept connections and say nothing must not use up the relay's. Until a connection has been
// greeted, and is ready for mail, it counts in up to three scopes more: all connections on their way;
// those to strangers, which are hosts that have not proved themselves; and those to suspects, which are
// strangers whose last connection failed, or who were silent through their first turn. A lane that meets
// one of these limits lines up as for any other place, and while any does, the wait for a host is short. A
// stranger's first turn is the shortest, so one that was never met does not wait behind silent ones (for the
// order of the line see party.next); who needs more patience goes on as a suspect, or lines up with these.

// Shares of the relay's connections.
const (
	onTheirWay     = 4 // at least one in so many is kept for connections that stand
	strangersShare = 2 // at most one in so many is on its way to a stranger
	suspectsShare  = 4 // at most one in so many is on its way to a suspect
	goingOnShare   = 8 // while at most one in so many is, a stranger may go on after its first turn
)

// openings are the scopes of the relay's connections that are not ready for mail yet.
type openings struct {
	all       *budget
	strangers *budget   // of those, to hosts that have not proved themselves
	suspects  *budget   // of these, to hosts whose last connection failed, or that need patience
	hurried   time.Time // when hurry looked at them last
}

// waiting counts the lanes in line.
func (o *openings) waiting() int { return o.all.waiting + o.strangers.waiting + o.suspects.waiting }

// patience bounds the wait for a connection while lanes wait for its place: most, and less as the line
// grows, down to least. When none waits, Limits.ConnectTimeout and the client's time-outs apply.
type patience struct{ most, least time.Duration }

var (
	// wholeOpening is from the start until the connection is ready for mail.
	wholeOpening = patience{20 * time.Second, 10 * time.Second}
	// firstTurn is a stranger's, for each of its steps: a host that answers is not a silent one.
	firstTurn = patience{time.Second, 250 * time.Millisecond}
)

// maxDoublings bounds the patience with a host that keeps failing, see connection.doublings.
const maxDoublings = 2

// hurryTick is how often connections are looked at while lanes wait for their places.
const hurryTick = 50 * time.Millisecond

// with is the patience while so many wait for one of so many places.
func (p patience) with(waiting, places int) time.Duration {
	return max(p.most*time.Duration(places)/time.Duration(places+waiting), p.least)
}

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
	case p.Suspect() && s.openings.suspects.full(s.suspectsLimit()):
		return s.openings.suspects
	case stranger(p) && s.openings.strangers.full(s.strangersLimit()):
		return s.openings.strangers
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

// hurry gives up connections that have been on their way for too long while lanes wait for their places. It
// returns when to look again; zero: not before another lane waits.
func (s *Scheduler) hurry(now time.Time) (next time.Time) {
	if s.openings.waiting() == 0 {
		return time.Time{}
	}
	if next = s.openings.hurried.Add(hurryTick); now.Before(next) {
		return next
	}
	s.openings.hurried = now
	for _, x := range [...]struct {
		b     *budget
		limit int
	}{{s.openings.suspects, s.suspectsLimit()}, {s.openings.strangers, s.strangersLimit()},
		{s.openings.all, s.onTheirWayLimit()}} {
		if x.b.waiting == 0 {
			continue
		}
		first, whole := firstTurn.with(x.b.waiting, x.limit), wholeOpening.with(x.b.waiting, x.limit)
		for c := range s.conns {
			switch {
			case c.session != nil || c.hurried > 0 || !c.countsIn(x.b):
			// they line up apart
			case x.b == s.openings.strangers && c.countsIn(s.openings.suspects) && s.openings.suspects.live < x.limit:
			case c.firstTurn() && now.Sub(c.heard) >= first:
				s.endFirstTurn(c, now)
			case now.Sub(c.rec.Made) >= whole<<c.doublings():
				c.giveUp(now)
			}
		}
	}
	return now.Add(hurryTick)
}

// doublings is how often the patience with c is doubled: once for each failure of its host in a row but the
// first, since a good host may delay its greeting to strangers for half a minute. Its retries become as rare,
// so silent hosts do not take more of the places.
func (c *connection) doublings() int {
	p := c.rec.Path
	return min(max(p.Broken.Failures, p.Host.Broken.Failures, 1)-1, maxDoublings)
}

// firstTurn reports whether c is on its way to a host that was not met, and has not needed more than that.
func (c *connection) firstTurn() bool {
	return c.countsIn(c.s.openings.strangers) && !c.countsIn(c.s.openings.suspects)
}

// endFirstTurn leaves a silent host a place among the suspects, if there is one.
func (s *Scheduler) endFirstTurn(c *connection, now time.Time) {
	if s.openings.suspects.full(max(s.cfg.MaxConnections/goingOnShare, 1)) {
		c.giveUp(now)
		return
	}
	c.budgets[len(c.budgets)-1] = s.openings.suspects
	s.openings.suspects.enter(c)
}

func (c *connection) giveUp(now time.Time) {
	c.hurried = max(now.Sub(c.rec.Made).Round(time.Millisecond), time.Millisecond)
	c.cancel()
}

// hears notes that the host of a connection on its way has answered.
func (s *Scheduler) hears(c *connection) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.heard = now
}

// tooSlow is the reply for a connection that was given up because others waited for its place.
func (c *connection) tooSlow() reply.Reply {
	return reply.Local(451, reply.Enhanced{4, 4, 1}, "connect",
		"not ready for mail after %v; the wait is cut short while many connections wait for hosts that do not answer",
		c.hurried)
}
