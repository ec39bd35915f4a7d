package dispatch

import (
	"math"
	"time"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/config"
	"example.org/mta/queue"
)

// settleDeferred sets the time of the next attempt, by the schedule of the destination.
func (d *Dispatcher) settleDeferred(o *Outcomes) {
	if len(o.deferred) == 0 {
		return
	}
	d.Events.Attempted(accounting.TransientFailure, o, o.deferred)
	d.Events.After(func() { d.deferAll(o) })
}

func (d *Dispatcher) deferAll(o *Outcomes) {
	for _, group := range groups(o.deferred, sharedBy) {
		first := group[0]
		until := first.Result.RetryAfter
		if at := d.Now().Add(retryOf(d.Policy().Retry(o.Message, o.key.Site(), o.Route)).after(first.Pending.Attempts+1,
			d.Chance())); !first.untried() && at.After(until) {
			until = at
		}
		d.putOff(o, group, d.inTime(o, until), first.untried())
	}
}

// inTime returns the time of the next attempt, or the one at which the mail is given up if that is sooner: the queue
// doesn't know of a domain's own max_age. Nor does it know, after a restart, when BY has the sender notified: there is
// an attempt then, too.
func (d *Dispatcher) inTime(o *Outcomes, until time.Time) time.Time {
	if by := o.Message.By(); by.Notifies() && by.At.Before(until) && by.At.After(d.Now()) {
		until = by.At
	}
	if expires := d.expires(o.Message, o.key.Site(), o.Route); expires.Before(until) {
		return expires
	}
	return until
}

// putOff defers recipients that can share a record.
func (d *Dispatcher) putOff(o *Outcomes, group []Attempt, until time.Time, untried bool) {
	last := queue.Attempt{Reply: group[0].Result.Reply, Via: group[0].via(), Untried: untried,
		Reason: d.waitsFor(o.Route, &group[0].Result.Reply)}
	d.journal(o.Message, d.Queue.Defer(o.Message.ID, attemptIndexes(group), until, last, o.key))
}

// waitsFor is what mail waits for after a reply.
func (d *Dispatcher) waitsFor(rt *route.Route, r *reply.Reply) parking.Reason {
	provider := ""
	if rt != nil {
		provider = rt.Provider
	}
	if !r.Temporary() {
		return parking.Report
	}
	return d.Classes.Of(r, provider).Waits(r)
}

// shared is what recipients have in common that can share a record: same reply, same number of attempts before, same
// wish for the next one.
type shared struct {
	attempts int
	reply    reply.Reply
	via      string
	after    time.Time
	tried    bool
}

func sharedBy(a *Attempt) shared {
	return shared{a.Pending.Attempts, a.Result.Reply, a.via(), a.Result.RetryAfter, a.Result.Attempted}
}

// retrySchedule is the waits after temporary failures.
type retrySchedule struct {
	// list has the waits in order; the last one repeats. It takes precedence over interval.
	list []time.Duration
	// interval is the first wait; each further one is twice as long, up to max.
	interval, max time.Duration
}

// retryJitter is the random part of a wait, so that mail that failed together is not retried together.
const retryJitter = 0.2

// after gives the wait after the given number of failed attempts, at least 1. chance is in
// [0, 1) and shifts the wait by up to a tenth of it in either direction.
func (s retrySchedule) after(attempts int, chance float64) time.Duration {
	wait := s.plain(max(attempts, 1))
	return time.Duration(float64(wait) * (1 + retryJitter*(chance-0.5)))
}

func (s retrySchedule) plain(attempts int) time.Duration {
	if n := len(s.list); n > 0 {
		return s.list[min(attempts, n)-1]
	}
	wait := float64(s.interval) * math.Pow(2, float64(attempts-1))
	if s.max > 0 {
		wait = min(wait, float64(s.max))
	}
	return time.Duration(min(wait, float64(maxWait)))
}

// maxWait keeps the doubling from overflowing when max_retry_interval is not set.
const maxWait = 30 * 24 * time.Hour

// retryOf gives the schedule of waits, and the longest of them when they double.
func retryOf(r config.Retry, longest time.Duration) retrySchedule {
	return retrySchedule{list: r.List, interval: r.First, max: longest}
}
