package delivery

import (
	"slices"
	"time"

	"mta/destdb"
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

// dialed notes that c has its TCP connection, or will have none.
func (s *Scheduler) dialed(c *connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.lane.dialing = slices.DeleteFunc(c.lane.dialing, func(o *connection) bool { return o == c })
}
