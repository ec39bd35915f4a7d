package delivery

import "example.org/mta/internal/route"

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
