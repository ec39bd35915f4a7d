package delivery

import (
	"fmt"
	"math"
	"time"

	"mta/internal/envelope"
	"mta/internal/gcra"
	"mta/internal/reply"
	"mta/internal/replyclass"
)

// drain keeps a backlog from leaving all at once when a site comes back (control.md 3.5): a lane
// begins at its usual rate and doubles that every half minute while the site takes everything. At the
// first sign of trouble it falls back, and waits longer before it grows again; 1 to 1.5 times the usual
// rate, reached over ten minutes, is what is left in the worst case. Fresh mail goes first: see waitlist.
// So that it finds room, little of the backlog is in memory: see Scheduler.space.
//
// An outage is a minute or more in which all hosts were broken, or the lane was suspended. The time in
// which this relay did not run is no outage of the site.
type drain struct {
	began   time.Time // when the outage ended; zero: not draining
	level   float64   // messages a second, before it grows
	grows   time.Time // since when it doubles; in the future: not yet
	calm    time.Duration
	least   float64   // what it never falls below
	fell    time.Time // when it fell back last
	bound   time.Time // when the limit held something back last
	saved   time.Time // when it was written down last
	missed  float64   // messages that would have left while the site was away for a moment, amid the drain
	limiter gcra.Limiter

	usual          float64       // messages a second that the site takes, the p95 of the windows with mail
	pace           float64       // the same of the last window
	with           time.Duration // of this window, so far
	taken          int           // messages in this window
	seen           int           // of those, before the last tick
	ticked, mailed time.Time     // the last tick, and the last one at which there was mail
	noted          time.Time     // when LastGood was written down last
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

// drainFactor is how much more than usual may leave after so long, however the site takes it.
func drainFactor(t time.Duration) float64 {
	return 1 + (drainMost-1)*min(1, float64(max(t, 0))/float64(drainRamp))
}

// perSecond is the rate of now, in messages a second.
func (d *drain) perSecond(now time.Time) float64 {
	grown := math.Exp2(float64(max(now.Sub(d.grows), 0)) / float64(drainDouble))
	return max(d.level*grown, d.least*drainFactor(now.Sub(d.began)))
}

// rate has next to no burst: no second has more than a tenth above it.
func (d *drain) rate(now time.Time) gcra.Rate {
	r := d.perSecond(now)
	return gcra.Rate{Events: int(r * 60), Per: time.Minute, Burst: max(1, int(r/20))}
}

func (d *drain) active() bool { return !d.began.IsZero() }

// idle reports whether there is nothing to remember.
func (d *drain) idle() bool { return d.down.IsZero() && !d.active() }

// running looks whether an outage has ended just now, and reports whether the lane drains.
func (d *drain) running(l *lane, now time.Time) bool {
	d.look(l, now)
	return d.active() && !l.limits.NoDrain
}

// stock is how many jobs of the backlog are in memory at most; 0 when the lane doesn't drain.
func (d *drain) stock(l *lane, now time.Time) int {
	if !d.running(l, now) {
		return 0
	}
	return max(1, int(d.perSecond(now)*drainStock.Seconds()))
}

// drainGate says whether the drain limit keeps the lane from sending.
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
		return waitReason{What: fmt.Sprintf("draining after an outage, %v", r), Until: at}
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

// refused notes what became of a transaction, if that is a sign of trouble: a lost connection, or a
// temporary refusal that is about more than one address or mailbox (RFC 3463, 3.2 and 3.3).
func (d *drain) refused(r *reply.Reply, now time.Time) {
	if !r.Temporary() || !d.active() {
		return
	}
	subject, class := r.Status()[1], replyclass.Of(*r)
	aboutRecipient := !r.Local && (subject == 1 || subject == 2 || class.AboutRecipient() || class == replyclass.Greylisted)
	if !aboutRecipient {
		d.trouble(now)
	}
}

// trouble makes the rate fall by half, and stay there for a while: each time for longer, unless it has
// grown since.
func (d *drain) trouble(now time.Time) {
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

// look sees outages begin and end. What a short one amid a drain kept from leaving may leave at once,
// as after any short outage: were the time lost, a site that comes and goes would fall behind what
// comes in.
func (d *drain) look(l *lane, now time.Time) {
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
	if d.usual == 0 || l.limits.NoDrain {
		return
	}
	d.began, d.bound, d.grows, d.fell = now, now, now, now
	d.level, d.least, d.calm, d.missed = level, max(d.usual, drainLeast), 0, 0
	for p := l.waiting.oldest; p != nil; p = p.newer {
		if w := p.work; !w.backlog {
			w.backlog = true
			w.flow.backlog++
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

// save writes down where the drain is, so that a restart takes it up there.
func (d *drain) save(l *lane, now time.Time) {
	l.site.DrainBegan, l.site.DrainRate, d.saved = d.began, d.perSecond(now), now
	l.s.db.Touched(l.site, now)
}

// resume takes up a drain that the relay was amid when it stopped.
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

// tick learns the usual rate, and ends what is over.
func (d *drain) tick(l *lane, now time.Time) {
	d.look(l, now)
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

// downSince is since when nothing can leave: the lane is suspended, or no host is known to work. Zero
// when something can.
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

// took notes that the site has taken a message.
func (d *drain) took() { d.taken++ }

// learn counts the time in which the lane had mail and the site was there, and learns from each window of
// it. Neither nights without mail nor the time in which this relay was off make a site's
// usual rate any lower.
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

// percentile95 follows the 95th percentile of the rates that it is given: up by 19 parts, down by one.
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

// Takes estimates how long a backlog of n messages takes to leave, if the site goes on taking mail as it
// does: fresh mail comes at the usual rate, and goes first.
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
