package delivery

import (
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
)

// Reload makes sources, limits and rules be asked for again. What waits is looked at anew; it comes
// back Withdrawn where its source is there no longer, or where stays says that it may not leave from
// there. Connections that are no longer as they would be made now end, see renew. Stays must not block, nor call the
// scheduler; nil is all may.
func (s *Scheduler) Reload(stays func(*Job) bool) {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limGen++
	for _, l := range s.lanes {
		src, ok := s.cfg.Source(l.laneKey.source)
		if !ok {
			for _, p := range l.waiting.all() {
				s.fail(p, Result{Reply: withoutSource(l.laneKey.source), Withdrawn: true})
			}
			continue
		}
		if stays != nil {
			for _, p := range l.waiting.removeIf(func(p *part) bool { return !stays(p.work.Job) }) {
				s.fail(p, Result{Reply: reply.Local(451, reply.Enhanced{4, 3, 5}, "route",
					"source %q is no longer used for mail of this tenant", l.laneKey.source), Withdrawn: true})
			}
		}
		l.reload(l.route, src, now)
		l.asked.before = true
		most := l.rcptMax()
		for _, p := range l.waiting.removeIf(func(p *part) bool { return len(p.tx.Recipients) > most }) {
			s.fail(p, Result{Reply: reply.Local(451, reply.Enhanced{4, 5, 3}, "route",
				"a transaction has %d recipients at most", most), Withdrawn: true}) // to be divided anew
		}
	}
	s.renew(nil, now)
	s.runLanes(now)
}

func withoutSource(name string) reply.Reply {
	return reply.Local(451, reply.Enhanced{4, 3, 5}, "route", "source %q was taken out of the configuration", name)
}

// reload is adopt and what follows from it: paths depend on the source, and so does what hosts said to it.
func (l *lane) reload(r *route.Route, src Source, now time.Time) {
	changed := l.source != src && l.source != (Source{})
	l.adopt(r, src, now)
	l.route = nil
	l.follow(r)
	backoff := l.limits.backoff()
	for _, paths := range l.tiers {
		for _, p := range paths {
			if changed {
				l.s.db.Renewed(p)
			}
			l.s.db.Hasten(p, now, backoff)
		}
	}
}

// outdated reports whether the lane's limits are those of a provider that a reload has put in the place of another, or
// taken away: that shows in the first route that was found since.
func (l *lane) outdated(r *route.Route) bool {
	return l.asked.before && l.route.Provider != r.Provider
}

// renew ends connections of a lane, nil for all, that a reload has overtaken: those from what a source was before,
// those that do not count in a limit that is new, and those beyond a limit.
func (s *Scheduler) renew(only *lane, now time.Time) {
	for c := range s.conns {
		if (only == nil || c.lane == only) && !c.current() {
			s.dismiss(c, now)
		}
	}
	if only != nil {
		only.keepToLimits(now)
		return
	}
	for _, l := range s.lanes {
		if l.asked.gen == s.limGen {
			l.keepToLimits(now)
		}
	}
}

// keepToLimits ends connections beyond the lane's limits.
func (l *lane) keepToLimits(now time.Time) {
	for _, x := range l.scopes {
		l.s.keepTo(x.scope.Connections, x.b, now)
	}
	if n := l.limits.Host.Connections; n > 0 {
		for _, p := range l.pools {
			l.s.keepTo(n, l.s.budgets[budgetKey{kind: scopeHost, name: p.path.Addr.String()}], now)
		}
	}
}

// keepTo ends the connections of a scope beyond a limit, 0 for none.
func (s *Scheduler) keepTo(limit int, b *budget, now time.Time) {
	if limit > 0 && b != nil {
		s.shrink(b, b.live-b.leaving-limit, now)
	}
}

// current reports whether a connection is as one would be that is opened now: from its source as that is now, under the
// same timeouts, with commands as far ahead, and counted in the same scopes.
func (c *connection) current() bool {
	if src, ok := c.s.cfg.Source(c.source.Name); !ok || src != c.source {
		return false
	}
	if l := &c.lane.limits; l.Timeouts != c.limits.Timeouts || l.MaxMode != c.limits.MaxMode {
		return false
	}
	for _, x := range c.lane.scopes {
		if !c.countsIn(x.b) {
			return false
		}
	}
	return true
}

// dismiss has a connection end: one that has work after the job in hand. It reports false if it ends anyway.
func (s *Scheduler) dismiss(c *connection, now time.Time) bool {
	switch {
	case c.unwanted, c.rec.Phase == destdb.Closing:
		return false
	case c.session == nil:
		c.unwanted = true
		c.cancel()
	case c.rec.Backlog == 0:
		c.retire()
	default:
		s.giveWay(c, now)
	}
	return true
}
