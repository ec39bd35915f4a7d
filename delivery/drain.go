package delivery

import (
	"fmt"
	"math"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/gcra"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
)

// drain keeps a backlog from leaving all at once when a site comes back (docs/control.md, Drain). A lane begins at
// its usual rate and doubles that every half minute while the site accepts everything. At each sign of
// overload the rate falls back, and waits longer before it grows again. The floor is the usual rate, rising to
// 1.5 times that over ten minutes. Fresh mail goes first (see waitlist), and little of the backlog is kept in
// memory so that fresh mail finds space (see Scheduler.part).
//
// An outage is a minute or more in which all hosts were broken, or the lane was suspended. Time during which
// this relay did not run does not count.
type drain struct {
	began   time.Time     // when the outage ended; zero: not draining
	level   float64       // messages a second at the time grows
	grows   time.Time     // since when the rate doubles; in the future: not yet
	calm    time.Duration // from the last trouble to grows
	least   float64       // messages a second; the rate never falls below
	fell    time.Time     // when it last fell back
	bound   time.Time     // when the limit last held something back
	saved   time.Time     // when it was last recorded in destdb
	missed  float64       // messages that could not leave during a short outage amid the drain
	limiter gcra.Limiter

	usual          float64       // messages a second that the site takes, the p95 of the windows with mail
	pace           float64       // the same of the last window
	with           time.Duration // how much of this window has passed
	taken          int           // messages delivered in this window
	seen           int           // of those, before the last tick
	ticked, mailed time.Time     // the last tick, and the last one at which there was mail
	noted          time.Time     // when LastGood was last recorded
	down           time.Time     // since when the site takes nothing; zero: it does
}

const (
	drainOutage   = time.Minute      // an outage that short leaves no backlog worth the word
	drainDouble   = 30 * time.Second // without trouble, and the rate is twice as high
	drainCalm     = 10 * time.Minute // at most from a sign of trouble to the next growth
	drainFallOnce = time.Second      // what comes within is one sign of trouble
	drainFree     = 5 * time.Minute  // of growth, a thousandfold, and there is no limit any more
	drainRamp     = 10 * time.Minute // from the usual rate to drainMost times it, whatever the trouble
	drainMost     = 1.5
	drainLeast    = 1.0             // messages a second: no site minds those
	drainEnd      = 2 * time.Minute // without anything held back
	drainLife     = 24 * time.Hour  // at most: what is left then may leave as it likes
	drainStock    = 2 * time.Second // worth of backlog in memory
	drainSave     = 10 * time.Second

	usualWindow = 20 * time.Second // of time with mail
	usualGap    = 5 * time.Second  // between two messages is no pause
	goodSave    = time.Minute      // between two notes of the last success
)

// drainFactor is the multiple of the usual rate that may leave after t, whatever the trouble.
func drainFactor(t time.Duration) float64 {
	return 1 + (drainMost-1)*min(1, float64(max(t, 0))/float64(drainRamp))
}

// perSecond is the rate of now, in messages a second.
func (d *drain) perSecond(now time.Time) float64 {
	grown := math.Exp2(float64(max(now.Sub(d.grows), 0)) / float64(drainDouble))
	return max(d.level*grown, d.least*drainFactor(now.Sub(d.began)))
}

// rate is perSecond with next to no burst: no second exceeds it by more than a tenth.
func (d *drain) rate(now time.Time) gcra.Rate {
	r := d.perSecond(now)
	return gcra.Rate{Events: int(r * 60), Per: time.Minute, Burst: max(1, int(r/20))}
}

func (d *drain) active() bool { return !d.began.IsZero() }

// idle reports whether there is nothing to remember.
func (d *drain) idle() bool { return d.down.IsZero() && !d.active() }

// running brings the drain up to date, and reports whether the lane drains.
func (d *drain) running(l *lane, now time.Time) bool {
	d.update(l, now)
	return d.active()
}

// stock is the most jobs of the backlog to keep in memory; 0 when the lane doesn't drain.
func (d *drain) stock(l *lane, now time.Time) int {
	if !d.running(l, now) {
		return 0
	}
	return max(1, int(d.perSecond(now)*drainStock.Seconds()))
}

// drainGate is why the drain limit keeps the lane from sending; empty when it doesn't.
func (l *lane) drainGate(now time.Time) waitReason {
	d := &l.drain
	if !d.running(l, now) {
		return waitReason{}
	}
	if d.missed >= 1 {
		return waitReason{}
	}
	r := d.rate(now)
	if at := d.limiter.Next(now, r, 1); at.After(now) {
		d.bound = now
		return waitReason{What: fmt.Sprintf("draining after an outage, %v", r), Until: at, Waits: parking.Limit}
	}
	return waitReason{}
}

// sent notes that a message was handed to a connection.
func (d *drain) sent(now time.Time) {
	switch {
	case !d.active():
	case d.missed >= 1:
		d.missed--
	default:
		d.limiter.Take(now, d.rate(now), 1)
	}
}

// unsent takes that back: the message did not begin.
func (d *drain) unsent(now time.Time) {
	if d.active() {
		d.limiter.GiveBack(d.rate(now), 1)
	}
}

// refused takes note of a reply that is a sign of trouble: a lost connection, or a temporary refusal that
// concerns more than one address or mailbox (RFC 3463, 3.2 and 3.3).
func (d *drain) refused(r *reply.Reply, class bounce.Class, now time.Time) {
	if !r.Temporary() || !d.active() {
		return
	}
	subject := r.Status()[1]
	aboutRecipient := !r.Local && (subject == 1 || subject == 2 || class.AboutRecipient() || class == bounce.Greylisted)
	if !aboutRecipient {
		d.failure(now)
	}
}

// failure halves the rate and holds it there for a while, for longer each time unless it has grown since.
func (d *drain) failure(now time.Time) {
	if !d.active() || now.Sub(d.fell) < drainFallOnce {
		return
	}
	switch growing := now.Sub(d.grows); {
	case d.calm == 0, growing > drainDouble:
		d.calm = drainDouble
	case growing > 0:
		d.calm = min(2*d.calm, drainCalm)
	}
	d.level = max(d.perSecond(now)/2, d.least)
	d.grows, d.fell = now.Add(d.calm), now
}

// update detects the start and end of outages. What a short one amid a drain held back may leave at once, as
// after any short outage; otherwise mail for a site that comes and goes would pile up.
func (d *drain) update(l *lane, now time.Time) {
	since := l.downSince(now)
	switch {
	case !since.IsZero():
		if d.down.IsZero() {
			d.down = since
		}
	case !d.down.IsZero():
		away := now.Sub(d.down)
		d.down = time.Time{}
		switch {
		case away >= drainOutage:
			d.begin(l, max(d.usual, drainLeast), now)
		case d.active():
			d.missed += away.Seconds() * d.perSecond(now)
		}
	}
}

// begin makes all that waits backlog. A site that is new has no usual rate, and no limit.
func (d *drain) begin(l *lane, level float64, now time.Time) {
	if d.usual == 0 {
		return
	}
	d.began, d.bound, d.grows, d.fell = now, now, now, now
	d.level, d.least, d.calm, d.missed = level, max(d.usual, drainLeast), 0, 0
	for p := l.waiting.oldest; p != nil; p = p.newer {
		if w := p.work; !w.space.backlog {
			w.space.backlog = true
			w.space.flow.backlog++
		}
	}
	l.waiting.drain(true)
	d.save(l, now)
}

func (d *drain) end(l *lane, now time.Time) {
	d.began, d.missed = time.Time{}, 0
	l.waiting.drain(false)
	for _, o := range l.s.bySite[l.laneKey.site] {
		if o.drain.active() {
			return
		}
	}
	l.site.DrainBegan, l.site.DrainRate = time.Time{}, 0
	l.s.db.Touched(l.site, now)
}

// save records how far the drain has come, so that it continues there after a restart.
func (d *drain) save(l *lane, now time.Time) {
	l.site.DrainBegan, l.site.DrainRate, d.saved = d.began, d.perSecond(now), now
	l.s.db.Touched(l.site, now)
}

// resume continues a drain that was under way when the relay stopped.
func (d *drain) resume(l *lane, now time.Time) {
	d.usual, d.noted, d.ticked = l.site.Usual, now, now
	began := l.site.DrainBegan
	if began.IsZero() || !began.Before(l.s.started) || now.Sub(began) > drainLife {
		return
	}
	d.begin(l, max(l.site.DrainRate, d.usual, drainLeast), now)
	if d.active() {
		d.began = began
	}
}

// tick learns the usual rate and ends a drain that is over. It is called once a second.
func (d *drain) tick(l *lane, now time.Time) {
	d.update(l, now)
	d.learn(l, now)
	if !d.active() {
		return
	}
	if now.Sub(d.bound) > drainEnd || now.Sub(d.grows) > drainFree || now.Sub(d.began) > drainLife {
		d.end(l, now)
	} else if now.Sub(d.saved) >= drainSave {
		d.save(l, now)
	}
}

// downSince is the time since which nothing can leave, because the lane is suspended or no host is known
// to work; zero when something can.
func (l *lane) downSince(now time.Time) (since time.Time) {
	if l.suspension(now) != nil {
		return now
	}
	if l.prospects(now) == laneWorks {
		return time.Time{}
	}
	for _, paths := range l.tiers {
		for _, p := range paths {
			if at := p.DownSince(now, l.s.started); at.After(since) {
				since = at
			}
		}
	}
	return since
}

// took counts a message that the site has accepted.
func (d *drain) took() { d.taken++ }

// learn measures the rate over windows of time in which the lane had mail and the site was up, so that
// neither quiet nights nor downtime of this relay lower the usual rate.
func (d *drain) learn(l *lane, now time.Time) {
	if d.taken > 0 && now.Sub(d.noted) >= goodSave {
		d.noted = now
		l.s.db.Touched(l.site, now) // for LastGood
	}
	span := min(now.Sub(d.ticked), usualGap)
	if d.taken > d.seen || l.waiting.n > 0 || l.running > 0 {
		d.mailed = now
	}
	d.seen, d.ticked = d.taken, now
	if !d.down.IsZero() || now.Sub(d.mailed) > usualGap {
		return
	}
	if d.with += span; d.with < usualWindow {
		return
	}
	d.pace = float64(d.taken) / d.with.Seconds()
	d.usual = percentile95(d.usual, d.pace)
	d.taken, d.seen, d.with = 0, 0, 0
	l.site.Usual = d.usual
}

// percentile95 moves usual towards the 95th percentile of the rates it sees: 19 parts up, one part down.
func percentile95(usual, rate float64) float64 {
	step := max(usual, rate) / 20
	switch {
	case usual == 0:
		return rate
	case rate > usual:
		return min(usual+step*.95, rate)
	}
	return max(usual-step*.05, rate)
}

// isBacklog reports whether a message is of the backlog that the lane drains. A nil lane drains none.
func (l *lane) isBacklog(m *envelope.Message, now time.Time) bool {
	return l != nil && l.drain.running(l, now) && m.Start().Before(l.drain.began)
}

// Draining is how a lane's backlog leaves after an outage.
type Draining struct {
	Rate gcra.Rate // at most, now
	// at is the drain as it is now. Bound is whether the limit is what holds mail back.
	at    drain
	now   time.Time
	bound bool
}

func (d *drain) picture(now time.Time) *Draining {
	return &Draining{Rate: d.rate(now), at: *d, now: now, bound: now.Sub(d.bound) < 2*time.Second || d.pace == 0}
}

// Takes estimates how long a backlog of n messages takes to leave if the site keeps accepting mail as it
// does now, and fresh mail, which goes first, arrives at the usual rate.
func (d *Draining) Takes(n int) time.Duration {
	left := float64(n)
	for t := time.Duration(0); t < drainLife; t += time.Second {
		at := d.now.Add(t)
		rate := d.at.pace
		if d.bound {
			rate = d.at.perSecond(at)
		}
		left -= max(rate-d.at.usual, rate/backlogShare)
		if left <= 0 || d.bound && at.Sub(d.at.grows) > drainFree {
			return t + time.Second
		}
	}
	return drainLife
}
