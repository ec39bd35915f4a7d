package delivery

import (
	"errors"
	"net/netip"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// Reach is how an attempt to connect to a host has ended: a connection stands, or there was no answer on the network.
type Reach struct {
	Site  string
	Host  route.Host
	Stood bool
	// Again: it stands, and the host had been left alone as one that can't be reached. It is not one of the
	// configuration.
	Again bool
	// Down is why the host is left alone from now on, and Wait for how long: no connection to it stands, it has not
	// answered in time or has refused the connection, and it is not one of the configuration. "": none of that is new.
	Down string
	Wait time.Duration
}

// reach passes on how c has ended in being opened. Failed is of its host before that; err is nil when it stands.
func (s *Scheduler) reach(c *connection, err error, failed int, now time.Time) {
	if s.cfg.OnReach == nil || c.host.Inside() {
		return
	}
	r := Reach{Site: c.lane.laneKey.site, Host: c.host, Stood: err == nil}
	h := c.rec.Path.Host
	var d *dialError
	switch {
	case r.Stood:
		r.Again = failed > 0 && !c.route.Configured
	case !errors.As(err, &d):
		return
	case failed == 0 && h.Broken.Failures > 0 && !h.Open() && !c.route.Configured:
		if why := failureOf(err); why == FailedInTime || why == FailedByPeer {
			r.Down, r.Wait = d.words(), h.Broken.RetryAt.Sub(now)
		}
	}
	s.cfg.OnReach(r)
}

// News is what other relays know of a host.
type News struct {
	Host route.Host
	Down string        // why it could not be reached; "": it can be, or nothing is known any more
	Wait time.Duration // how long it is left alone
	Up   bool          // it was reached
}

// heardFor is the longest that a host is left alone by what other relays know. Then this one tries by itself: it may
// have a way there that they have not.
const heardFor = time.Minute

// Hear takes news into the picture. What this relay knows itself counts before others' failures, but not before their
// success. It returns which hosts were left alone, and are not any more.
func (s *Scheduler) Hear(news []News) (again []netip.AddrPort) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	ended := false
	for _, n := range news {
		if n.Down != "" {
			why := reply.Local(451, reply.Enhanced{4, 4, 1}, "connect", "another relay of the cluster: %s", n.Down)
			s.db.Heard(n.Host.Addr, n.Host.Name, why, now, now.Add(min(n.Wait, heardFor)))
		} else if s.db.Recovered(n.Host.Addr, !n.Up) {
			ended = true
			if n.Up {
				again = append(again, n.Host.Addr)
			}
		}
	}
	if ended {
		s.runLanes(now)
	}
	return again
}

// Answering returns the sites that have answered about mail since a time, on connections that stand yet.
func (s *Scheduler) Answering(since time.Time) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sites := make(map[string]bool)
	for c := range s.conns {
		if c.rec.Phase == destdb.Open && c.answered && !c.last.Before(since) {
			sites[c.lane.laneKey.site] = true
		}
	}
	return sites
}
