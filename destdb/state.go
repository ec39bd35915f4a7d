package destdb

import (
	"slices"
	"time"
)

// State is Finch's classification of a destination.
type State uint8

const (
	Unused State = iota // nothing is known of it
	Active              // it has busy connections
	Idle                // it has connections, none of them busy
	Closed              // there was a connection not long ago
	Retry               // it is broken; see Path.Waiting for whether its time has come
)

// String gives the word for listings.
func (s State) String() string { return [...]string{"unused", "active", "idle", "closed", "retry"}[s] }

// State classifies p. A connection that is being opened makes its path active, one that is being
// closed doesn't count. Live connections outweigh a retry record: a host that turns away the
// eleventh connection still serves the ten.
func (p *Path) State() State {
	idle := false
	for _, c := range p.conns {
		switch {
		case c.Phase == Opening, c.Phase == Open && c.Backlog > 0:
			return Active
		case c.Phase == Open:
			idle = true
		}
	}
	switch {
	case idle:
		return Idle
	case p.Suspect():
		return Retry
	case !p.Made.IsZero():
		return Closed
	}
	return Unused
}

// Proven reports whether p is known to be of use, or nothing is known against it: it has a
// connection that stands, or its last attempt did not fail.
func (p *Path) Proven(now time.Time) bool {
	if p.Suspension(now) != nil {
		return false
	}
	if !p.Suspect() {
		return true
	}
	return slices.ContainsFunc(p.conns, func(c *Conn) bool { return c.Phase == Open })
}

// Working reports whether p can be counted on now: it has connections, or may be tried, and is not
// suspended.
func (p *Path) Working(now time.Time) bool {
	if p.Suspension(now) != nil {
		return false
	}
	for _, c := range p.conns {
		if c.Phase != Closing {
			return true
		}
	}
	_, retrying := p.Retrying(now)
	return !retrying
}
