package delivery

import (
	"fmt"
	"time"

	"mta/internal/gcra"
)

// drain keeps a backlog from leaving all at once when a site comes back (control.md 3.5): for a
// while a lane sends at most f times its usual rate, f growing from 1 to 1.5 over ten minutes. Fresh
// mail goes first: see waitlist. So that it finds room, little of the backlog is in memory: see
// Scheduler.space.
//
// An outage is a minute or more in which all hosts were broken, or the lane was suspended; or in
// which the relay itself did not run, for mail that it had when it stopped.
type drain struct {
	began   time.Time // when the outage ended; zero: not draining
	bound   time.Time // when the limit held something back last
	limiter gcra.Limiter
	missed  float64 // messages that would have left while the site was away for a moment, amid the drain
	usual   float64 // messages a second, the p95 of the minutes with mail
	minute  time.Time
	count   int       // sent in this minute
	down    time.Time // since when the site takes nothing; zero: it does
}

const (
	drainOutage = time.Minute      // an outage that short leaves no backlog worth the word
	drainRamp   = 10 * time.Minute // from the usual rate to drainMost times it
	drainMost   = 1.5
	drainLeast  = 1.0             // messages a second, of which the factor is taken: no site minds those
	drainEnd    = 2 * time.Minute // without anything held back
	drainLife   = 24 * time.Hour  // at most: what is left then may leave as it likes
	drainStock  = 2 * time.Second // worth of backlog in memory
	drainRested = 2 * time.Minute // without a relay is an outage
)

// factor is how much more than usual may leave after so long.
func drainFactor(t time.Duration) float64 {
	return 1 + (drainMost-1)*min(1, float64(t)/float64(drainRamp))
}

// rate has next to no burst: no second is to have more than 1.6 times the usual.
func (d *drain) rate(now time.Time) gcra.Rate {
	usual := max(d.usual, drainLeast)
	return gcra.Rate{Events: int(usual * 60 * drainFactor(now.Sub(d.began))), Per: time.Minute, Burst: max(1, int(usual/20))}
}

func (d *drain) active() bool { return !d.began.IsZero() }

// idle reports whether there is nothing to remember.
func (d *drain) idle() bool { return d.down.IsZero() && !d.active() }

// running looks whether an outage has ended just now, and says whether the lane drains.
func (d *drain) running(l *lane, now time.Time) bool {
	d.look(l, now)
	return d.active() && !l.limits.NoDrain
}

// stock is how many jobs of the backlog are in memory at most; 0 when the lane doesn't drain.
func (d *drain) stock(l *lane, now time.Time) int {
	if !d.running(l, now) {
		return 0
	}
	r := d.rate(now)
	return max(1, int(drainStock/r.Interval()))
}

// drainGate says whether the drain limit keeps the lane from sending.
func (l *lane) drainGate(now time.Time) waitReason {
	d := &l.drain
	if !d.running(l, now) {
		return waitReason{}
	}
	r := d.rate(now)
	if d.missed >= 1 {
		return waitReason{}
	}
	if at := d.limiter.Next(now, r, 1); at.After(now) {
		d.bound = now
		return waitReason{What: fmt.Sprintf("draining after an outage, %v", r), Until: at}
	}
	return waitReason{}
}

// sent notes that a message was handed to a connection.
func (d *drain) sent(now time.Time) {
	d.count++
	switch {
	case !d.active():
	case d.missed >= 1:
		d.missed--
	default:
		d.limiter.Take(now, d.rate(now), 1)
	}
}

// look sees outages begin and end. What a short one amid a drain kept from leaving may leave at once,
// as after any short outage: were the time lost, a site that comes and goes would fall behind what
// comes in, for as long as it drains.
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
		switch long := away >= drainOutage; {
		case long && !d.active():
			d.begin(l, now)
		case !long && d.active():
			d.missed += away.Seconds() / d.rate(now).Interval().Seconds()
		}
	}
}

// begin makes all that waits backlog. A site that is new has no usual rate, and no limit.
func (d *drain) begin(l *lane, now time.Time) {
	if d.usual == 0 || l.limits.NoDrain {
		return
	}
	d.began, d.bound = now, now
	for p := l.waiting.oldest; p != nil; p = p.newer {
		if w := p.work; !w.backlog {
			w.backlog = true
			_, f := l.s.flow(w.flow)
			f.backlog++
		}
	}
	l.waiting.drain(true)
}

func (d *drain) end(l *lane) {
	d.began, d.missed = time.Time{}, 0
	l.waiting.drain(false)
}

// resume begins a drain when the relay has come back with mail for a new lane that it had when it
// stopped.
func (d *drain) resume(l *lane, first *Job, now time.Time) {
	d.minute, d.usual = now, l.site.Usual
	good, started := l.site.LastGood, l.s.started
	if !good.IsZero() && started.Sub(good) >= drainRested && first.Message.Start().Before(started) {
		d.begin(l, started)
	}
}

// tick learns the usual rate, and ends what is over.
func (d *drain) tick(l *lane, now time.Time) {
	if span := now.Sub(d.minute); span >= time.Minute {
		if d.count > 0 {
			if !d.active() {
				d.learn(float64(d.count) / span.Seconds())
				l.site.Usual = d.usual
			}
			l.s.db.Touched(l.site, now) // for LastGood, too
		}
		d.minute, d.count = now, 0
	}
	d.look(l, now)
	if d.active() && (now.Sub(d.bound) > drainEnd || now.Sub(d.began) > drainLife) {
		d.end(l)
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
			if at := p.DownSince(now); at.After(since) {
				since = at
			}
		}
	}
	return since
}

// learn follows the 95th percentile of the rates of the minutes: up by 19 parts, down by one.
func (d *drain) learn(rate float64) {
	step := max(d.usual, rate) / 20
	switch {
	case d.usual == 0:
		d.usual = rate
	case rate > d.usual:
		d.usual = min(d.usual+step*.95, rate)
	default:
		d.usual = max(d.usual-step*.05, rate)
	}
}
