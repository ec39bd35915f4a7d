package destdb

import "time"

// Phase is how far a connection has come.
type Phase uint8

const (
	Opening Phase = iota // dialling, greeting, TLS, AUTH
	Open                 // takes jobs
	Closing              // takes no more; it may still have some
)

// String gives the word for listings.
func (p Phase) String() string { return [...]string{"opening", "open", "closing"}[p] }

// Conn is a live connection. Its owner keeps Phase, Backlog and the times up to date.
type Conn struct {
	Path *Path
	Site *Site // for whose mail it was opened

	Phase     Phase
	Made      time.Time // when it was begun
	Backlog   int       // jobs that it has
	Since     time.Time // when it last went from busy to idle or back, or changed its phase
	Shared    int       // with less backlog than that one more job shares the round trip of what it has
	Threshold int       // with that much backlog it takes no more by itself: another job would wait too long
	Limit     int       // with that much backlog it takes no more at all

	Owner any // whose it is
}

// Shares reports whether one more job would wait for nothing.
func (c *Conn) Shares() bool { return c.Phase == Open && c.Backlog < c.Shared }

// Space reports whether it takes a job without being asked twice (S7).
func (c *Conn) Space() bool { return c.Phase == Open && c.Backlog < c.Threshold }

// Rideable reports whether it may take a job when no other worker can be had (S8).
func (c *Conn) Rideable() bool { return c.Phase == Open && c.Backlog < c.Limit }

// Open notes that a connection along p is begun, for a site's mail. It counts in every limit from
// now on.
func (db *DB) Open(p *Path, s *Site, now time.Time) *Conn {
	c := &Conn{Path: p, Site: s, Made: now, Since: now}
	p.conns = append(p.conns, nil)
	copy(p.conns[1:], p.conns)
	p.conns[0] = c
	p.Made = now
	p.Host.live++
	p.Host.used = now
	s.live++
	s.used = now
	db.touch(p.key())
	return c
}

// Closed notes that a connection is no more. Done twice for one connection it changes nothing.
func (db *DB) Closed(c *Conn) {
	p := c.Path
	for i, o := range p.conns {
		if o != c {
			continue
		}
		copy(p.conns[i:], p.conns[i+1:])
		p.conns[len(p.conns)-1] = nil
		p.conns = p.conns[:len(p.conns)-1]
		p.Host.live--
		c.Site.live--
		return
	}
}
