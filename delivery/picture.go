package delivery

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mta/destdb"
	"mta/internal/gcra"
)

// Learn takes records into the picture: from the store at start, or from other nodes.
func (s *Scheduler) Learn(records []destdb.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.db.Learn(records)
}

// Hosts lists what is known of hosts.
func (s *Scheduler) Hosts() []destdb.HostInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Hosts()
}

// Sites lists what is known of sites.
func (s *Scheduler) Sites() []destdb.SiteInfo {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Sites()
}

// Forget makes hosts unknown again, those that match by name or address; it returns how many.
func (s *Scheduler) Forget(match func(name, addr string) bool) int {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.db.Forget(match, now)
	for _, l := range s.lanes {
		l.run(now)
	}
	return n
}

// LaneInfo is a lane for 'mta explain': the mail from one source to one site.
type LaneInfo struct {
	Site, Source string
	Waiting      int // parts that no connection has
	Running      int // parts on connections
	Opening      int // connections on their way
	// Why is what the first of those that wait waits for, or why nothing is taken that could wait; ""
	// when neither is so. Until is when that changes, where it is known.
	Why    string
	Until  time.Time
	Oldest time.Time // when the oldest that waits was submitted
	Limits Limits
	// SlowStart is how many connections the site has earned; Drain is the rate after an outage, ""
	// when there is no such limit.
	SlowStart int
	Drain     string
	DrainRate gcra.Rate // the same
}

// Lanes lists the lanes by site and source; of one site unless that is "".
func (s *Scheduler) Lanes(site string) []LaneInfo {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []LaneInfo
	for _, l := range s.lanes {
		if site == "" || site == l.laneKey.site {
			list = append(list, l.info(now))
		}
	}
	slices.SortFunc(list, func(a, b LaneInfo) int {
		return cmp.Or(strings.Compare(a.Site, b.Site), strings.Compare(a.Source, b.Source))
	})
	return list
}

func (l *lane) info(now time.Time) LaneInfo {
	i := LaneInfo{Site: l.laneKey.site, Source: l.laneKey.source, Waiting: l.waiting.n, Running: l.running, Opening: l.opening,
		Limits: l.limits, SlowStart: l.slowStart()}
	if l.waiting.n > 0 {
		i.Why, i.Until, i.Oldest = l.why.What, l.why.Until, l.waiting.oldest.work.since
	}
	if l.waiting.n == 0 && l.prospects(now) != laneWorks {
		r, _, until := l.outOfService(now)
		i.Why, i.Until = r.Text, until
	}
	if l.drain.active() && !l.limits.NoDrain {
		i.DrainRate = l.drain.rate(now)
		i.Drain = i.DrainRate.String()
	}
	return i
}
