package delivery

import (
	"slices"
	"strings"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// ConnectionInfo is a connection of the pool, a copy of what it was at one instant.
type ConnectionInfo struct {
	Session        string // names it in logs
	Host           route.Host
	Site, Provider string
	Source         string
	Tenant         string // for whose mail it was opened
	State          ConnectionState
	Backlog        int // transactions that it has
	Given          int // transactions handed to it so far
	Mode           string
	Window         int // transactions that make use of the wire at a time
	Link           Link
	Since          time.Time   // when it was begun
	Idle           time.Time   // since when it waits for mail; zero while it has some
	Last           reply.Reply // what the host has said last about a message; zero before that
}

// ConnectionState is what a connection does.
type ConnectionState uint8

// The states of a connection.
const (
	Opening ConnectionState = iota // it is not ready for mail yet
	Busy
	Idle
	Closing // it takes no more
)

// ConnectionQuery says which connections are meant. All that is set must fit.
type ConnectionQuery struct {
	Site, Source, Tenant string
	State                *ConnectionState
	Host                 func(route.Host) bool // nil: any
}

func (q *ConnectionQuery) fits(c *connection) bool {
	return (q.Site == "" || q.Site == c.lane.laneKey.site) && (q.Source == "" || q.Source == c.source.Name) &&
		(q.Tenant == "" || q.Tenant == c.tenant) &&
		(q.State == nil || *q.State == c.state()) && (q.Host == nil || q.Host(c.host))
}

func (c *connection) state() ConnectionState {
	switch {
	case c.session == nil:
		return Opening
	case c.rec.Phase == destdb.Closing:
		return Closing
	case c.rec.Backlog > 0:
		return Busy
	}
	return Idle
}

// Connections lists the first n connections that fit behind a session, by session, which is about their age; total
// counts all that fit. Deliveries wait for it, some ten nanoseconds for each connection there is and a microsecond for
// each that is listed.
func (s *Scheduler) Connections(q ConnectionQuery, after string, n int) (list []ConnectionInfo, total int) {
	found := s.connections(&q)
	slices.SortFunc(found, func(a, b *connection) int { return strings.Compare(a.id, b.id) })
	total = len(found)
	if i, known := slices.BinarySearchFunc(found, after, func(c *connection, id string) int {
		return strings.Compare(c.id, id)
	}); known {
		found = found[i+1:]
	} else {
		found = found[i:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range found[:min(n, len(found))] {
		list = append(list, c.info())
	}
	return list, total
}

func (s *Scheduler) connections(q *ConnectionQuery) (found []*connection) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if q.fits(c) {
			found = append(found, c)
		}
	}
	return found
}

func (c *connection) info() ConnectionInfo {
	i := ConnectionInfo{
		Session: c.id, Host: c.host, Site: c.lane.laneKey.site, Provider: c.route.Provider, Source: c.source.Name,
		Tenant: c.tenant,
		State:  c.state(), Backlog: c.rec.Backlog, Given: c.given, Since: c.rec.Made, Last: c.said,
	}
	if c.session != nil {
		i.Mode, i.Window, i.Link = c.session.Mode().String(), c.session.Depth(), c.link
		if i.State == Idle {
			i.Idle = c.rec.Since
		}
	}
	return i
}

// CloseConnections ends connections, by session. What they have begun is finished, and what they have not begun goes
// back to its lane; one that is being opened is given up, and its host not blamed. It returns how many were known, and
// how many of these end later.
func (s *Scheduler) CloseConnections(sessions []string) (known, later int) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if !slices.Contains(sessions, c.id) {
			continue
		}
		known++
		switch c.state() {
		case Opening:
			c.unwanted = true
			c.cancel()
		case Idle:
			c.retire()
		case Busy:
			later++
			s.giveWay(c, now)
		case Closing:
			if c.rec.Backlog > 0 {
				later++
			}
		}
	}
	return known, later
}

// Cut cuts the connections that have mail, so that no host gets the end of what it has the beginning of. What is not
// delivered is tried again, if it may begin. It returns how many those were.
func (s *Scheduler) Cut() int {
	s.mu.Lock()
	cut := s.sessions(func(c *connection) bool { return c.rec.Backlog > 0 })
	s.mu.Unlock()
	for _, c := range cut {
		c.Close()
	}
	return len(cut)
}

// sessions are those of connections that stand. s.mu is held.
func (s *Scheduler) sessions(fits func(*connection) bool) (all []session) {
	for c := range s.conns {
		if c.session != nil && fits(c) {
			all = append(all, c.session)
		}
	}
	return all
}

// Watched is a connection that somebody may want to watch.
type Watched struct {
	Host         route.Host
	Site, Source string // for which and from which it was opened
	Session      string // names it in logs
}

func (c *connection) watched() Watched {
	return Watched{Host: c.host, Site: c.route.Site, Source: c.source.Name, Session: c.id}
}

// Retrace asks for all connections that stand who watches them: whoever begins or ends to watch
// calls it. One that is being opened is asked about when it stands.
func (s *Scheduler) Retrace() {
	if s.cfg.Trace == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.session != nil {
			s.retrace(c)
		}
	}
}

func (s *Scheduler) retrace(c *connection) {
	if s.cfg.Trace != nil {
		c.session.SetTrace(s.cfg.Trace(c.watched()))
	}
}
