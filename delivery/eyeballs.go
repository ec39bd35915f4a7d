package delivery

import (
	"fmt"
	"slices"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/parking"
)

// attemptDelay is how long a TCP connection may take before another host is tried beside it: RFC 8305,
// 5 and 8. Both families of a dual-stack host are among the hosts, so that a family that is cut off
// costs this much once, and not the whole time-out.
const attemptDelay = 250 * time.Millisecond

// slow counts the connections begun for the lane's sake that have no TCP connection after
// attemptDelay. They are no longer counted on. Next is when the first of the others will be slow; zero
// when there is none.
func (l *lane) slow(now time.Time) (n int, next time.Time) {
	for _, c := range l.dialing {
		at := c.rec.Made.Add(attemptDelay)
		switch {
		case !at.After(now):
			n++
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return n, next
}

// slowPath reports whether one of them is on the way along p.
func (l *lane) slowPath(p *destdb.Path, now time.Time) bool {
	return slices.ContainsFunc(l.dialing, func(c *connection) bool {
		return c.rec.Path == p && !c.rec.Made.Add(attemptDelay).After(now)
	})
}

// noGreeting is after how long a host without a greeting is why mail waits for a limit of its site.
const noGreeting = 5 * time.Second

// reason is why mail of the lane waits, as operators see it. It names the host that has let us in and
// says nothing: some take minutes for their greeting.
func (l *lane) reason(now time.Time) waitReason {
	if x := l.pace.line; x != nil {
		why := l.why
		why.Until = x.next(now) // as of now: only the first in line was run since
		if x.b.division != nil && why.Until.IsZero() {
			why.What = x.b.division.lacking(why.What, x.i)
		}
		return why
	}
	if b := l.waitsOn; b != nil && b.division != nil {
		why := l.why
		if n, bounded := b.division.allowed(); bounded && n == 0 {
			why.What = b.division.lacking(why.What, dividedConnections)
		}
		return why
	}
	if l.why.What != beingOpened && l.waitsOn != l.siteBudget {
		return l.why
	}
	var silent *connection // for longest
	for _, paths := range l.tiers {
		for _, p := range paths {
			for _, r := range p.Conns() {
				c := r.Owner.(*connection)
				switch {
				case c.session != nil && l.why.What != beingOpened:
					return l.why
				case r.Phase == destdb.Opening && c.lane == l && !slices.Contains(l.dialing, c) &&
					(silent == nil || r.Made.Before(silent.rec.Made)):
					silent = c
				}
			}
		}
	}
	if silent == nil || l.why.What != beingOpened && now.Sub(silent.rec.Made) < noGreeting {
		return l.why
	}
	return waitReason{
		What: fmt.Sprintf("%s took a connection %v ago and is not ready for mail yet (greeting, EHLO or STARTTLS)",
			silent.host, now.Sub(silent.rec.Made).Round(time.Second)),
		Until: silent.rec.Made.Add(l.limits.HandshakeTimeout), Waits: parking.Unreachable,
	}
}

// dialed notes that c has its TCP connection, or will have none.
func (s *Scheduler) dialed(c *connection) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c.heard = now
	c.lane.dialing = slices.DeleteFunc(c.lane.dialing, func(o *connection) bool { return o == c })
}
