package submission

import (
	"time"
)

// A listener's connections are slots. Strangers, who may not relay, can do nothing useful with
// one, and get three in four at most. When three in four are taken by whomever, who has not had a
// recipient accepted must hurry.
const (
	reservedPart  = 4                // one slot in so many is kept for clients that may relay
	crowdedIdle   = 10 * time.Second // how long a client may be idle before it has shown that it sends mail
	crowdedWhole  = time.Minute      // how long it may be connected until then
	uncrowdedPart = 8                // one in so many slots must have become free for the hurry to end
)

// reserved is how many slots strangers can't have.
func (s *Server) reserved() int { return s.cfg.Limits.Connections / reservedPart }

// seat counts a stranger, unless there are enough of them. The caller releases it by unseat.
func (s *Server) seat() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.strangers >= s.cfg.Limits.Connections-s.reserved() {
		return false
	}
	s.mu.strangers++
	return true
}

func (s *Server) unseat() {
	s.mu.Lock()
	s.mu.strangers--
	s.mu.Unlock()
}

// watchCrowd sees whether slots are scarce. It is called with mu held when their number changes.
func (s *Server) watchCrowd() {
	open, all := len(s.mu.conns), s.cfg.Limits.Connections
	switch crowded := s.crowded.Load(); {
	case !crowded && open >= all-s.reserved() && s.reserved() > 0:
		s.crowded.Store(true)
		for c := range s.mu.conns {
			c.hurry()
		}
	case crowded && open < all-s.reserved()-all/uncrowdedPart:
		s.crowded.Store(false)
	}
}

// hurry shortens the wait for a command of a client that holds a slot for nothing. It is called by
// other goroutines.
func (c *conn) hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.unproved {
		c.socket.SetReadDeadline(c.shorten(c.mu.deadline))
	}
}

// shorten gives the deadline of a client that has to hurry; c.mu is held.
func (c *conn) shorten(t time.Time) time.Time {
	short := earliest(time.Now().Add(crowdedIdle), c.client.began.Add(crowdedWhole))
	if !short.Before(t) {
		return t
	}
	c.mu.hurried, c.mu.deadline = true, short
	return short
}

// wasHurried reports whether the wait that is over had been shortened.
func (c *conn) wasHurried() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.hurried
}

// mustHurry reports whether the client holds a slot for nothing while slots are scarce.
func (c *conn) mustHurry() bool { return !c.client.proved && c.srv.crowded.Load() }
