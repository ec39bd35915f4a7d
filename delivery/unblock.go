package delivery

import (
	"net/netip"
	"time"
)

// Unblock ends whatever delays mail for a site: suspensions of the site and of its hosts, and the retry times
// of hosts that have failed, about which everything is forgotten. It returns how many there were.
func (s *Scheduler) Unblock(site string) (n int) {
	n = s.Resume(site)
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var broken []netip.AddrPort
	seen := make(map[netip.AddrPort]bool)
	for _, l := range s.bySite[site] {
		for _, paths := range l.tiers {
			for _, p := range paths {
				if seen[p.Addr] {
					continue
				}
				seen[p.Addr] = true
				n += s.db.Resume(p.Host, now)
				if p.Suspect() {
					broken = append(broken, p.Addr)
				}
			}
		}
	}
	n += s.db.Forget(broken)
	s.runLanes(now)
	s.remind(now)
	return n
}

// OutOfService returns why no mail for a site can leave from any source that it has used, and until when;
// "" when some can.
func (s *Scheduler) OutOfService(site string) (why string, until time.Time) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.bySite[site] {
		reason, at := "", time.Time{}
		if a := l.suspension(now); a != nil {
			reason, at = "suspended: "+a.Reason, a.End
		} else if l.prospects(now) == laneOut {
			r, host, retry := l.outOfService(now)
			reason, at = answer(r, host), retry
		} else {
			return "", time.Time{}
		}
		if why == "" || at.Before(until) {
			why, until = reason, at
		}
	}
	return why, until
}
