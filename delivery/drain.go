package delivery

import (
	"fmt"
	"time"

	"mta/internal/gcra"
)

// drain keeps a backlog from leaving all at once when a site comes back (control.md 3.5): for a
// while a lane sends at most f times its usual rate, f growing from 1 to 1.5 over ten minutes.
type drain struct {
	began   time.Time // zero: not draining
	limiter gcra.Limiter
	usual   float64 // messages a second, the p95 of the minutes with mail
	minute  time.Time
	count   int       // sent in this minute
	quiet   time.Time // since when the site takes nothing; zero: it does
}

const (
	drainOutage = time.Minute      // an outage that short leaves no backlog worth the word
	drainRamp   = 10 * time.Minute // from the usual rate to drainMost times it
	drainMost   = 1.5
	drainEnd    = time.Minute // without anything waiting
)

// factor is how much more than usual may leave after so long.
func drainFactor(t time.Duration) float64 {
	return 1 + (drainMost-1)*min(1, float64(t)/float64(drainRamp))
}

func (d *drain) rate(now time.Time) gcra.Rate {
	perMinute := int(d.usual * 60 * drainFactor(now.Sub(d.began)))
	return gcra.Rate{Events: max(perMinute, 1), Per: time.Minute}
}

func (d *drain) active() bool { return !d.began.IsZero() && d.usual > 0 }

// drainGate says whether the drain limit keeps the lane from sending.
func (l *lane) drainGate(now time.Time) waitReason {
	d := &l.drain
	if !d.active() || l.limits.NoDrain {
		return waitReason{}
	}
	r := d.rate(now)
	if at := d.limiter.Next(now, r, 1); at.After(now) {
		return waitReason{What: fmt.Sprintf("draining after an outage, %v", r), Until: at}
	}
	return waitReason{}
}

// sent notes that a message was handed to a connection.
func (d *drain) sent(now time.Time) {
	d.count++
	if d.active() {
		d.limiter.Take(now, d.rate(now), 1)
	}
}

// tick learns the usual rate, and sees outages begin and end.
func (d *drain) tick(l *lane, now time.Time) {
	if d.minute.IsZero() {
		d.minute, d.usual = now, max(d.usual, l.site.Usual)
	}
	if span := now.Sub(d.minute); span >= time.Minute {
		if !d.active() && d.count > 0 {
			d.learn(float64(d.count) / span.Seconds())
			if l.site.Usual != d.usual {
				l.site.Usual = d.usual
				l.s.db.Touched(l.site, now)
			}
		}
		d.minute, d.count = now, 0
	}
	broken := l.failedAt.After(l.site.LastGood) || l.suspension(now) != nil
	switch {
	case broken && d.quiet.IsZero():
		d.quiet = now
	case !broken && !d.quiet.IsZero():
		if now.Sub(d.quiet) >= drainOutage && d.began.IsZero() {
			d.began = now
		}
		d.quiet = time.Time{}
	case d.active() && l.waiting.n == 0 && now.Sub(l.used) > drainEnd:
		d.began = time.Time{}
	}
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
