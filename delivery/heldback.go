package delivery

import (
	"time"

	"mta/internal/envelope"
	"mta/internal/route"
)

// Held is why a message has no way from a source.
type Held uint8

const (
	NotHeld   Held = iota
	NoRoom         // for the flow: OnRoom tells when there is
	Suspended      // the source, at the site: that may be for hours
)

// HeldBack says whether a message has no way from a source now. A caller who needs a leave that lapses for
// each job can wait with it: a job that may not begin waits like any other, and comes back when its turn
// has come.
func (s *Scheduler) HeldBack(m *envelope.Message, r *route.Route, source string) Held {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.action(s.db.Site(r.Site), now, suspended, source) != nil {
		return Suspended
	}
	l := s.lanes[laneKey{site: r.Site, source: source, policy: policyOf(r)}]
	if _, free := s.space(FlowOf(m, r.Site, source), !l.isBacklog(m, now), now); free <= 0 {
		return NoRoom
	}
	return NotHeld
}

// isBacklog says whether a message is of the backlog that the lane drains. A nil lane drains none.
func (l *lane) isBacklog(m *envelope.Message, now time.Time) bool {
	return l != nil && l.drain.running(l, now) && m.Start().Before(l.drain.began)
}

// handBack gives back what waits at a site with a leave that lapses, where it is suspended.
func (s *Scheduler) handBack(site string, now time.Time) {
	for _, l := range s.bySite[site] {
		if l.suspension(now) == nil {
			continue
		}
		for _, p := range l.waiting.removeIf(func(p *part) bool { return p.work.MayBegin != nil && p.mayBegin() }) {
			s.fail(p, Result{Reply: takenBack, Withdrawn: true})
		}
	}
}
