package mta

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/queue"
)

// attempt is one recipient's part in a finished job, or in a route that could not be found.
type attempt struct {
	pending queue.Pending
	result  delivery.Result
}

// via is the source that the recipient keeps: greylisting hosts want to see the same one again. Where
// no attempt was made it is the one of the attempt before.
func (a attempt) via() string {
	if a.result.Attempted && a.result.Source != "" {
		return a.result.Source
	}
	return a.pending.Via
}

// untried reports whether delivery had no turn for it, and knows when it may have: that is no attempt,
// and the wait not one of its schedule.
func (a *attempt) untried() bool { return !a.result.Attempted && !a.result.RetryAfter.IsZero() }

// done takes a job's results apart by what is to be done about them. Delivery calls it once a
// job.
func (d *dispatcher) done(j *delivery.Job, recipients []queue.Pending, results []delivery.Result) {
	o := outcomes{message: j.Message, route: j.Route, key: parking.Key{Name: j.Route.Site}}
	late, stopping := !d.now().Before(j.Expires), d.stopping.Load()
	doubtful := late && d.now().Before(d.given(j.Expires)) // it came to delivery before the clock jumped ahead
	late = late && !doubtful
	for _, r := range results {
		if !r.Attempted && (stopping || doubtful) && r.Reply.Temporary() {
			// Our own stop, or clock, is no failure: it is due as it was when the relay is back, or at once.
			o.unsent = append(o.unsent, r.Recipient)
			continue
		}
		o.sort(attempt{find(recipients, r.Recipient), r}, late)
	}
	d.settle(&o)
}

// find gives the lease's entry for a recipient. They are in the order of their index.
func find(recipients []queue.Pending, index int) queue.Pending {
	i, ok := slices.BinarySearchFunc(recipients, index, func(p queue.Pending, index int) int { return cmp.Compare(p.Index, index) })
	if !ok {
		return queue.Pending{Index: index}
	}
	return recipients[i]
}

// outcomes is a job's recipients by what became of them.
type outcomes struct {
	message *envelope.Message
	route   *route.Route // nil when none was found
	key     parking.Key  // what a deferred recipient is filed under

	delivered, bounced, expired, deferred []attempt
	unsent                                []int
}

// site is where the recipients were to go, or their domain when that has no route; "" when they waited for
// something else.
func (o *outcomes) site() string {
	if o.route != nil {
		return o.route.Site
	}
	return o.key.Site()
}

func (o *outcomes) sort(a attempt, late bool) {
	switch r := a.result; {
	case r.Reply.OK():
		o.delivered = append(o.delivered, a)
	case r.Reply.Permanent():
		o.bounced = append(o.bounced, a)
	case r.Withdrawn:
		o.unsent = append(o.unsent, r.Recipient)
	case late:
		o.expired = append(o.expired, a)
	default:
		o.deferred = append(o.deferred, a)
	}
}

// settle writes outcomes into the queue and tells operator and sender.
func (d *dispatcher) settle(o *outcomes) {
	d.settleDelivered(o)
	d.feed(o)
	d.settleFailed(o, o.bounced, queue.Bounced, eventBounce)
	d.settleFailed(o, o.expired, queue.Expired, eventExpiration)
	d.settleDeferred(o)
	if len(o.unsent) > 0 {
		d.queue.Return(o.message.ID, o.unsent)
	}
}

func (d *dispatcher) settleDelivered(o *outcomes) {
	if len(o.delivered) == 0 {
		return
	}
	for _, a := range o.delivered {
		d.events.attempted(eventDelivery, o, a)
	}
	d.journal(o.message, d.queue.Settle(o.message.ID, attemptIndexes(o.delivered), queue.Delivered))
	n := notification{kind: notifyDelivered, message: o.message, attempts: o.delivered}
	if len(n.wanted()) > 0 {
		d.notify(n, func(err error) {
			d.reported(o.message, err)
		})
	}
}

// settleFailed reports to the sender first and settles when the report is durable: a crash in
// between sends the report twice, never not at all.
func (d *dispatcher) settleFailed(o *outcomes, failed []attempt, outcome queue.Outcome, event eventKind) {
	if len(failed) == 0 {
		return
	}
	d.notify(notification{kind: notifyFailed, message: o.message, attempts: failed}, func(err error) {
		if d.reported(o.message, err); err != nil {
			until := d.now().Add(reportRetry)
			for _, group := range byAttempts(failed) {
				d.putOff(o, group, until, !group[0].result.Attempted)
			}
			return
		}
		for _, a := range failed {
			d.events.attempted(event, o, a)
		}
		d.journal(o.message, d.queue.Settle(o.message.ID, attemptIndexes(failed), outcome))
	})
}

// notify has a sender told, and counts it until that is done.
func (d *dispatcher) notify(n notification, done func(error)) {
	d.reporting.add(len(n.attempts))
	d.notifier.notify(n, func(err error) {
		defer d.reporting.done(len(n.attempts))
		done(err)
	})
}

// reported notes whether a report could be queued. On a full disk none can, whatever it is about.
func (d *dispatcher) reported(m *envelope.Message, err error) {
	switch {
	case err == nil:
		d.reports.Well()
	case errors.Is(err, queue.ErrDiskFull):
		d.reports.Failed("disk full", "message", m.ID, "error", err)
	case errors.Is(err, queue.ErrStorage):
		d.reports.Failed("storage", "message", m.ID, "error", err)
	default:
		d.log.Error("report to the sender could not be made", "message", m.ID, "error", err)
	}
}

// reportRetry is how long a recipient waits, that failed or is late, when its report can't be queued
// (disk full).
const reportRetry = 5 * time.Minute

func (d *dispatcher) settleDeferred(o *outcomes) {
	for _, a := range o.deferred {
		d.events.attempted(eventTransientFailure, o, a)
	}
	for _, group := range byAttempts(o.deferred) {
		first := group[0]
		until := first.result.RetryAfter
		if at := d.now().Add(retryOf(d.policy().Traffic(o.key.Site(), o.route)).after(first.pending.Attempts+1, d.chance())); !first.untried() && at.After(until) {
			until = at
		}
		if expires := d.expires(o.message, o.key.Site(), o.route); expires.Before(until) {
			until = expires // to be given up then: the queue doesn't know of a domain's own max_age
		}
		d.putOff(o, group, until, first.untried())
	}
}

// putOff defers recipients that can share a record.
func (d *dispatcher) putOff(o *outcomes, group []attempt, until time.Time, untried bool) {
	last := queue.Attempt{Reply: group[0].result.Reply, Via: group[0].via(), Untried: untried}
	d.journal(o.message, d.queue.Defer(o.message.ID, attemptIndexes(group), until, last, o.key))
}

// byAttempts groups recipients that can share a record: same reply, same number of attempts
// before, same wish for the next one.
func byAttempts(as []attempt) [][]attempt {
	if len(as) == 0 {
		return nil
	}
	type kind struct {
		attempts int
		reply    reply.Reply
		via      string
		after    time.Time
		tried    bool
	}
	index := make(map[kind]int, 1)
	var groups [][]attempt
	for _, a := range as {
		k := kind{a.pending.Attempts, a.result.Reply, a.via(), a.result.RetryAfter, a.result.Attempted}
		i, ok := index[k]
		if !ok {
			i = len(groups)
			index[k] = i
			groups = append(groups, nil)
		}
		groups[i] = append(groups[i], a)
	}
	return groups
}

// journal logs an error of the queue. Whatever was not written is still there after a restart,
// so the recipient may be tried again; it isn't lost.
func (d *dispatcher) journal(m *envelope.Message, err error) {
	if err != nil {
		d.log.Error("outcome could not be written; recipients may be tried again after a restart",
			"message", m.ID, "error", err)
	}
}

// unroutable settles recipients for whom the router found no way.
func (d *dispatcher) unroutable(m *envelope.Message, recipients []queue.Pending, domain string, why reply.Reply) {
	if d.stopping.Load() && why.Temporary() {
		d.queue.Return(m.ID, indexes(recipients))
		return
	}
	o := outcomes{message: m, key: parking.Key{Name: domain}}
	late := !d.now().Before(d.expires(m, domain, nil))
	for _, p := range recipients {
		o.sort(attempt{p, delivery.Result{Recipient: p.Index, Reply: why}}, late)
	}
	d.settle(&o)
}

// sourceRetry is how long mail waits at least whose sources are all missing, or that can't be signed.
const sourceRetry = 5 * time.Minute

// postpone defers recipients that something of ours keeps: no source is there for them, or no signature
// could be made. That is no attempt. They come again
// before long, at times that differ, and not by the schedule, which is made for remote hosts: the
// address may be back at any moment.
func (d *dispatcher) postpone(m *envelope.Message, rt *route.Route, recipients []queue.Pending, why reply.Reply) {
	if d.stopping.Load() {
		d.queue.Return(m.ID, indexes(recipients))
		return
	}
	o := outcomes{message: m, route: rt, key: parking.Key{Name: rt.Site}}
	late := !d.now().Before(d.expires(m, rt.Domain, rt))
	for _, p := range recipients {
		o.sort(attempt{p, delivery.Result{Recipient: p.Index, Reply: why}}, late)
	}
	d.settleFailed(&o, o.expired, queue.Expired, eventExpiration)
	if len(o.deferred) == 0 {
		return
	}
	for _, a := range o.deferred {
		d.events.attempted(eventTransientFailure, &o, a)
	}
	again := d.now().Add(sourceRetry + time.Duration(d.chance()*float64(sourceRetry)))
	d.putOff(&o, o.deferred, again, true)
}

// expire settles what is too old, in whatever state it was. rt is nil when it is not known.
func (d *dispatcher) expire(m *envelope.Message, rt *route.Route, recipients []queue.Pending) {
	key := recipients[0].Key
	if rt != nil {
		key = parking.Key{Name: rt.Site}
	}
	d.settleFailed(&outcomes{message: m, route: rt, key: key}, asFailed(recipients, func(last reply.Reply) reply.Reply {
		if last.Code == 0 {
			if why, ok := d.delivery.Trouble(key.Site()); ok {
				return why
			}
			return reply.Local(451, reply.Enhanced{4, 4, 7}, "queue", "no delivery was attempted before the message expired")
		}
		return last
	}), queue.Expired, eventExpiration)
}

// bounceForOperator settles what an operator gave up.
func (d *dispatcher) bounceForOperator(l *queue.Lease) {
	d.settleFailed(&outcomes{message: l.Message, key: l.Recipients[0].Key}, asFailed(l.Recipients, func(last reply.Reply) reply.Reply {
		return reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "the administrator of this relay gave up delivery")
	}), queue.Bounced, eventAdminBounce)
}

// bounceDamaged settles what this relay's disk has spoiled: there is nothing left that could be sent.
func (d *dispatcher) bounceDamaged(l *queue.Lease) {
	d.settleFailed(&outcomes{message: l.Message, key: l.Recipients[0].Key}, asFailed(l.Recipients, func(reply.Reply) reply.Reply {
		return reply.Local(554, reply.Enhanced{5, 3, 0}, "queue", "the content of the message was damaged on this relay's disk: please send it again")
	}), queue.Bounced, eventBounce)
}

func asFailed(recipients []queue.Pending, why func(last reply.Reply) reply.Reply) []attempt {
	as := make([]attempt, len(recipients))
	for i, p := range recipients {
		as[i] = attempt{p, delivery.Result{Recipient: p.Index, Reply: why(p.Last)}}
	}
	return as
}

// warn tells the sender that a message is late, unless it is too late already. The recipients are not
// out: they stay where they wait.
func (d *dispatcher) warn(l *queue.Lease) {
	m, as := l.Message, asFailed(l.Recipients, func(last reply.Reply) reply.Reply { return last })
	late := slices.DeleteFunc(slices.Clone(as), func(a attempt) bool { return d.tooOld(m, a.pending) })
	d.notify(notification{kind: notifyDelayed, message: m, attempts: late}, func(err error) {
		d.reported(m, err)
		if errors.Is(err, queue.ErrDiskFull) || errors.Is(err, queue.ErrStorage) { // any other is for good
			d.queue.WarnLater(m.ID, attemptIndexes(as), d.now().Add(reportRetry))
			return
		}
		d.queue.Warned(m.ID, attemptIndexes(as))
	})
}

// tooOld reports whether a recipient that waits is about to be given up: a report of that could not be
// queued, say.
func (d *dispatcher) tooOld(m *envelope.Message, p queue.Pending) bool {
	domain := m.Recipients[p.Index].Address.Domain()
	provider, known := d.sites.of(p.Key)
	return known && !d.now().Before(d.given(m.Start().Add(d.policy().Config.Traffic(domain, provider).MaxAge)))
}

// expires is when a message for a destination is given up.
func (d *dispatcher) expires(m *envelope.Message, domain string, rt *route.Route) time.Time {
	return d.given(d.policy().Expires(m, domain, rt))
}

// given is the time at which mail is given up that would be at another: a time that has passed counts once the
// queue has no doubt about the clock.
func (d *dispatcher) given(at time.Time) time.Time {
	if now := d.now(); !now.Before(at) {
		if trusted := d.queue.NothingExpiresBefore(); trusted.After(now) {
			return trusted
		}
	}
	return at
}

func attemptIndexes(as []attempt) []int {
	out := make([]int, len(as))
	for i, a := range as {
		out[i] = a.pending.Index
	}
	return out
}
