package delivery

import (
	"math"
	"time"

	"example.org/mta/destdb"
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
	if n := c.limits.Site.Connections; n > 0 && site.Allowed >= float64(n) ||
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
