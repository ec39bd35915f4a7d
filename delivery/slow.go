package delivery

import (
	"maps"
	"math"
	"slices"
	"time"

	"example.org/mta/destdb"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
)

// slowStart is how many connections the site may have so far: one to begin with, one more for each
// message that it takes while all are in use. What was reached is remembered in destdb.
func (l *lane) slowStart() int {
	return max(int(l.site.Allowed), 1)
}

// countAccepted notes that a site took a message.
func (s *Scheduler) countAccepted(c *connection, now time.Time) {
	site := c.rec.Site
	site.LastGood = now
	b := c.lane.siteBudget
	if float64(b.live) < site.Allowed || s.action(site, now, fewerConnections, "") != nil {
		return // it is not what holds us back, or growth is halted
	}
	if n := c.lane.limits.Site.Connections; n > 0 && site.Allowed >= float64(n) ||
		site.Allowed >= float64(s.cfg.MaxConnections) {
		return
	}
	site.Allowed++
	s.db.Touched(site, now)
	s.runWaiters(b, now)
}

// fewer halves what slow start has come to, and halts its growth for a while.
func (s *Scheduler) fewer(site *destdb.Site, now time.Time) {
	site.Allowed = max(math.Floor(min(site.Allowed, float64(site.Live()))/2), 1)
	s.db.Touched(site, now)
}

// slowOnce is how long refusals count as one: mail on its way is refused with the first.
const slowOnce = 10 * time.Second

// slowing is a slow-down that a lane keeps to.
type slowing struct {
	b *budget // whose limits it lowers
	Scope
	why string
}

// slow begins a slow-down, or takes one back to the rate before the last refusal.
func (s *Scheduler) slow(c *connection, rule *Rule, reason string, now time.Time) {
	site, a := c.rec.Site, s.action(c.rec.Site, now, slowed, rule.source(c))
	if a == nil {
		x := &destdb.Slow{Rate: rule.Rate.PerSecond(), Connections: rule.Connections, Hold: rule.Slow,
			Last: now.Add(rule.Suspend)}
		if rule.RateFactor > 0 {
			x.Rate = max(rule.RateFactor*s.paceOf(c, rule), 1./60)
		}
		s.act(site, destdb.Action{What: slowed, Source: rule.source(c), Reason: reason, Begin: now, End: x.End(),
			Slow: x, Waits: parking.Rate}, now)
		s.closeSurplus(site, rule.source(c), rule.Connections)
	} else if x := a.Slow; now.Sub(x.Last) >= slowOnce {
		before := x.Doublings(now)
		x.Last, x.Doubled = now, max(before-1, 0)
		a.End = x.End()
		s.db.Touched(site, now)
		if before > x.Doubled {
			a.Reason = reason
			s.cfg.OnAction(site.Name, *a)
		}
	}
	if a = s.action(site, now, slowed, rule.source(c)); a != nil && (a.Begin.Equal(now) || a.Slow.Last.Equal(now)) {
		rate, connections := a.Slow.Allows(now)
		s.cfg.Log.Info("mail is slowed down", "site", site.Name, "source", a.Source, "rate", gcra.Of(rate).String(),
			"connections", connections, "until", a.End)
	}
	for _, l := range s.bySite[site.Name] {
		l.slowDown(now)
	}
}

// paceOf is how fast the site has taken mail of late, as far as a rule is about it, in messages a second.
func (s *Scheduler) paceOf(c *connection, rule *Rule) (pace float64) {
	for _, l := range s.bySite[c.rec.Site.Name] {
		if l == c.lane || !rule.BySource {
			pace += max(l.drain.pace, l.drain.usual)
		}
	}
	if pace == 0 {
		return max(c.lane.limits.Path.MessageRate.PerSecond(), 1)
	}
	return pace
}

// closeSurplus has the connections of a site beyond a limit end, from one source or, with "", from all; 0: no limit.
func (s *Scheduler) closeSurplus(site *destdb.Site, source string, limit int) {
	n := 0
	for c := range s.conns {
		if limit > 0 && c.session != nil && c.rec.Site == site && (source == "" || c.source.Name == source) {
			if n++; n > limit {
				c.retire()
			}
		}
	}
}

// slowDown makes the lane keep to the slow-downs in force, and reports whether its limits have changed.
func (l *lane) slowDown(now time.Time) bool {
	if len(l.site.Actions) == 0 && len(l.slows) == 0 {
		return false
	}
	var slows []slowing
	for i := range l.site.Actions {
		a := &l.site.Actions[i]
		if a.Slow == nil || !now.Before(a.End) || a.Source != "" && a.Source != l.source.Name {
			continue
		}
		perSecond, connections := a.Slow.Allows(now)
		x := slowing{b: l.siteBudget, Scope: Scope{Connections: connections, MessageRate: gcra.Of(perSecond)}}
		if a.Source != "" {
			x.b = l.scopes[pathAt].b
		}
		x.why = "slowed to " + x.text() + ": " + a.Reason
		slows = append(slows, x)
	}
	if slices.Equal(slows, l.slows) {
		return false
	}
	l.slows = slows
	own := l.s.limitsFor(l.route, l.source.Name, "")
	l.limits.Site, l.limits.Path = own.Site, own.Path
	for _, x := range slows {
		if x.b == l.siteBudget {
			l.limits.Site = l.limits.Site.Least(x.Scope)
		} else {
			l.limits.Path = l.limits.Path.Least(x.Scope)
		}
	}
	l.forgive(now)
	return true
}

// forgive has the lane not wait for what was sent at a slower rate than it has now.
func (l *lane) forgive(now time.Time) {
	for _, x := range l.scopes {
		x.b.messages.Forgive(now, x.scope.MessageRate)
		x.b.connections.Forgive(now, x.scope.ConnectionRate)
	}
}

// text is what a slow-down allows, in words.
func (x *slowing) text() string {
	switch {
	case x.Connections == 0:
		return x.MessageRate.String()
	case x.MessageRate.Unlimited():
		return connections(x.Connections)
	}
	return x.MessageRate.String() + " on " + connections(x.Connections)
}

// whySlow is why a lane has met a limit of a scope, if that is a slow-down's; else other.
func (l *lane) whySlow(x scoped, limit func(Scope) bool, other string) waitReason {
	for _, s := range l.slows {
		if s.b == x.b && limit(s.Scope) {
			return waitReason{What: s.why, Waits: parking.Rate}
		}
	}
	return waitReason{What: other, Waits: parking.Limit}
}

// reached reports whether a rule applies that needs several refusals of a source by a site: whether this one is the
// last of so many within its time. A slow-down in force needs no more of them; what was on its way when it began, or
// was taken back, is refused with the first and doesn't count.
func (s *Scheduler) reached(rule *Rule, c *connection, now time.Time) bool {
	if rule.After.Unlimited() {
		return true
	}
	if a := s.action(c.rec.Site, now, slowed, rule.source(c)); a != nil && rule.Slow > 0 {
		return true
	} else if a != nil && now.Sub(a.Slow.Last) < slowOnce {
		return false
	}
	key := refused{rule.Name, c.rec.Site.Name, c.source.Name}
	all := s.refused[key]
	for len(all) > 0 && now.Sub(all[0]) >= rule.After.Per {
		all = all[1:]
	}
	if len(all)+1 >= rule.After.Events {
		delete(s.refused, key)
		return true
	}
	s.refused[key] = append(all, now)
	return false
}

// refused is what refusals are counted by, for rules that need several.
type refused struct{ rule, site, source string }

// forgetRefused drops what is a day old: no rule counts longer.
func (s *Scheduler) forgetRefused(now time.Time) {
	maps.DeleteFunc(s.refused, func(_ refused, all []time.Time) bool {
		return now.Sub(all[len(all)-1]) >= 24*time.Hour
	})
}
