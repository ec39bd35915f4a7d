package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/dsn"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/mta/wiring"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// Attempt is one recipient's part in a finished job, or in a route that could not be found.
type Attempt struct {
	Pending queue.Pending
	Result  delivery.Result
}

// via is the source that the recipient keeps: greylisting hosts want to see the same one again. Where
// no attempt was made it is the one of the attempt before.
func (a Attempt) via() string {
	if a.Result.Attempted && a.Result.Source != "" {
		return a.Result.Source
	}
	return a.Pending.Via
}

// untried reports whether delivery made no attempt, and knows when it can: that counts as none, and the
// retry schedule does not apply.
func (a *Attempt) untried() bool { return !a.Result.Attempted && !a.Result.RetryAfter.IsZero() }

// done sorts a job's results, and settles them. Delivery calls it once for each job.
func (d *Dispatcher) done(j *delivery.Job, recipients []queue.Pending, results []delivery.Result) {
	o := Outcomes{Message: j.Message, Route: j.Route, key: parking.Key{Name: j.Route.Site}}
	late, stopping := !d.Now().Before(j.Expires), d.stopping.Load()
	doubtful := late && d.Now().Before(d.given(j.Expires)) // it came to delivery before the clock jumped ahead
	late = late && !doubtful
	for _, r := range results {
		if !r.Attempted && (stopping || doubtful) && r.Reply.Temporary() {
			// Our own stop, or clock, is no failure: it is due as it was when the relay is back, or at once.
			o.unsent = append(o.unsent, r.Recipient)
			continue
		}
		o.sort(Attempt{find(recipients, r.Recipient), r}, late, len(results))
	}
	d.settle(&o)
}

// find gives the lease's entry for a recipient. They are in the order of their index.
func find(recipients []queue.Pending, index int) queue.Pending {
	i, ok := slices.BinarySearchFunc(recipients, index, func(p queue.Pending, index int) int {
		return cmp.Compare(p.Index, index)
	})
	if !ok {
		return queue.Pending{Index: index}
	}
	return recipients[i]
}

// Outcomes is a job's recipients by what became of them.
type Outcomes struct {
	Message *envelope.Message
	Route   *route.Route // nil when none was found
	key     parking.Key  // what a deferred recipient is filed under

	delivered, bounced, expired, deferred []Attempt
	unsent                                []int
	one                                   [1]Attempt // of a job with one recipient
}

// Site is where the recipients were to go, or their domain when that has no route; "" when they waited for
// something else.
func (o *Outcomes) Site() string {
	if o.Route != nil {
		return o.Route.Site
	}
	return o.key.Site()
}

// sort adds a recipient to those with the same outcome, of at most so many.
func (o *Outcomes) sort(a Attempt, late bool, most int) {
	to := &o.deferred
	switch r := &a.Result; {
	case r.Reply.OK():
		to = &o.delivered
	case r.Reply.Permanent():
		to = &o.bounced
	case r.Withdrawn:
		o.unsent = append(o.unsent, r.Recipient)
		return
	case late:
		to = &o.expired
	}
	if *to == nil {
		if *to = o.one[:0]; most > 1 {
			*to = make([]Attempt, 0, most)
		}
	}
	*to = append(*to, a)
}

// settle reports outcomes to the operator and the sender, and writes them into the queue. Recipients stay
// leased until their records are on stable storage.
func (d *Dispatcher) settle(o *Outcomes) {
	d.settleDelivered(o)
	d.settleFailed(o, o.bounced, queue.Bounced, accounting.Bounce)
	d.settleFailed(o, o.expired, queue.Expired, accounting.Expiration)
	d.settleDeferred(o)
	if len(o.unsent) > 0 {
		d.Queue.Return(o.Message.ID, o.unsent)
	}
}

func (d *Dispatcher) settleDelivered(o *Outcomes) {
	if len(o.delivered) == 0 {
		return
	}
	d.taken(o)
	d.Events.Attempted(accounting.Delivery, o, o.delivered)
	d.Events.After(func() {
		n := Notification{Kind: dsn.Delivered, Message: o.Message, Attempts: o.delivered}
		n.Attempts = n.Wanted()
		rest := attemptIndexes(o.delivered)
		if len(n.Attempts) > 0 {
			wanted := attemptIndexes(n.Attempts)
			rest = slices.DeleteFunc(rest, func(i int) bool { return slices.Contains(wanted, i) })
			d.reportDelivered(n, o.key)
		}
		if len(rest) > 0 {
			d.journal(o.Message, d.Queue.Settle(o.Message.ID, rest, queue.Delivered))
		}
	})
}

// reportDelivered reports success first and settles when the report is durable: until then the queue has the
// content, for its header. Those whose report can't be queued wait, with the reply of the host that took the message,
// and in place of the source with its name: see withoutEnded.
func (d *Dispatcher) reportDelivered(n Notification, key parking.Key) {
	d.notify(n, func(err error) {
		d.reported(n.Message, err)
		if !laterReport(err) {
			d.journal(n.Message, d.Queue.Settle(n.Message.ID, attemptIndexes(n.Attempts), queue.Delivered))
			return
		}
		keepHosts(n.Attempts)
		for _, group := range groups(n.Attempts, sharedBy) {
			d.putOff(&Outcomes{Message: n.Message, key: key}, group, d.Now().Add(reportRetry),
				!group[0].Result.Attempted)
		}
	})
}

// keepHosts has recipients whose report is put off keep the host that answered, if one did, in place of the source.
func keepHosts(as []Attempt) {
	for i := range as {
		if r := &as[i].Result; !r.Reply.Temporary() {
			as[i].Pending.Via, r.Source = r.Host.Name, ""
		}
	}
}

// withoutEnded reports the recipients of a lease that were delivered, or refused for good, and only wait for that:
// their last reply is not a temporary one. It gives the lease without them, nil when no others are left.
func (d *Dispatcher) withoutEnded(l *queue.Lease) *queue.Lease {
	if !slices.ContainsFunc(l.Recipients, func(p queue.Pending) bool { return !p.Last.Temporary() }) {
		return l // as nearly all are: this costs no allocation
	}
	n := Notification{Kind: dsn.Delivered, Message: l.Message}
	var rest []queue.Pending
	failed := make(map[refusedBy][]Attempt)
	for _, p := range l.Recipients {
		a := Attempt{p, delivery.Result{Recipient: p.Index, Reply: p.Last, Host: route.Host{Name: p.Via},
			Relayed: p.Last.OK()}}
		switch {
		case p.Last.OK():
			n.Attempts = append(n.Attempts, a)
		case p.Last.Permanent():
			by := refusedBy{p.Key, isGivenUp(&p.Last)}
			failed[by] = append(failed[by], a)
		default:
			rest = append(rest, p)
		}
	}
	if len(n.Attempts) > 0 {
		d.reportDelivered(n, n.Attempts[0].Pending.Key)
	}
	for by, as := range failed {
		event := accounting.Bounce
		if by.operator {
			event = accounting.AdminBounce
		}
		d.settleFailed(&Outcomes{Message: l.Message, key: by.key}, as, queue.Bounced, event)
	}
	if len(rest) == 0 {
		return nil
	}
	return &queue.Lease{Why: l.Why, Message: l.Message, Recipients: rest}
}

// refusedBy is who gave up recipients that wait for their report: a site, or the operator.
type refusedBy struct {
	key      parking.Key
	operator bool
}

// settleFailed reports to the sender first and settles when the report is durable: a crash in
// between sends the report twice, never not at all. Recipients whose report can't be queued wait with the reply, which
// stands: see withoutEnded.
func (d *Dispatcher) settleFailed(o *Outcomes, failed []Attempt, outcome queue.Outcome, event accounting.Type) {
	if len(failed) == 0 {
		return
	}
	d.feed(o, failed)
	d.notify(Notification{Kind: dsn.Failed, Message: o.Message, Attempts: failed}, func(err error) {
		if d.reported(o.Message, err); err != nil {
			until := d.Now().Add(reportRetry)
			keepHosts(failed)
			for _, group := range groups(failed, sharedBy) {
				d.putOff(o, group, until, !group[0].Result.Attempted)
			}
			return
		}
		d.Events.Attempted(event, o, failed)
		d.Events.After(func() {
			d.journal(o.Message, d.Queue.Settle(o.Message.ID, attemptIndexes(failed), outcome))
		})
	})
}

// notify has a report written to the sender, and counts its recipients until that is done.
func (d *Dispatcher) notify(n Notification, done func(error)) {
	d.reporting.add(len(n.Attempts))
	d.Notifier.notify(n, func(err error) {
		defer d.reporting.done(len(n.Attempts))
		done(err)
	})
}

// reported notes whether a report could be queued. On a full disk none can, whatever it is about.
func (d *Dispatcher) reported(m *envelope.Message, err error) {
	switch {
	case err == nil:
		d.reports.Well()
	case errors.Is(err, queue.ErrDiskFull):
		d.reports.Failed("disk full", "message", m.ID, "error", err)
	case errors.Is(err, queue.ErrStorage):
		d.reports.Failed("storage", "message", m.ID, "error", err)
	default:
		d.Log.Error("report to the sender could not be made", "message", m.ID, "error", err)
	}
}

// laterReport reports whether a report that could not be queued can be later.
func laterReport(err error) bool {
	return errors.Is(err, queue.ErrDiskFull) || errors.Is(err, queue.ErrStorage) || errors.Is(err, queue.ErrClosed)
}

// reportRetry is the wait of a recipient whose report can't be queued (disk full).
const reportRetry = 5 * time.Minute

// journal logs an error of the queue. Whatever was not written is still there after a restart,
// so the recipient may be tried again; it isn't lost.
func (d *Dispatcher) journal(m *envelope.Message, err error) {
	if err != nil {
		d.Log.Error("outcome could not be written; recipients may be tried again after a restart",
			"message", m.ID, "error", err)
	}
}

// expire settles what is too old, in whatever state it was. rt is nil when it is not known.
func (d *Dispatcher) expire(m *envelope.Message, rt *route.Route, recipients []queue.Pending) {
	key := recipients[0].Key
	if rt != nil {
		key = parking.Key{Name: rt.Site}
	}
	d.settleFailed(&Outcomes{Message: m, Route: rt, key: key}, asFailed(recipients, func(last reply.Reply) reply.Reply {
		if last.Code == 0 {
			if why, ok := d.Delivery.Blocked(key.Site()); ok {
				return why
			}
			return reply.Local(451, reply.Enhanced{4, 4, 7}, "queue",
				"no delivery was attempted before the message expired")
		}
		return last
	}), queue.Expired, accounting.Expiration)
}

// gaveUp is what senders read of mail that an operator gave up.
const gaveUp = "the administrator of this relay gave up delivery"

// givenUp is the reply for what an operator gave up, by a rule or by hand: nil. Its number finds the rule in the log of
// actions; its reason is not for senders.
func givenUp(by *api.Rule) reply.Reply {
	return reply.Local(554, reply.Enhanced{5, 7, 0}, "queue", "%s", gaveUp+byRule(by))
}

// GivenUp is the reply for what an operator gave up by hand.
func GivenUp() reply.Reply { return givenUp(nil) }

func isGivenUp(r *reply.Reply) bool { return r.Local && strings.HasPrefix(r.Text, gaveUp) }

func byRule(x *api.Rule) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf(" (rule %d)", x.ID)
}

// bounceForOperator settles what an operator gave up.
func (d *Dispatcher) bounceForOperator(l *queue.Lease) { d.giveUp(l.Message, l.Recipients, nil) }

// bounceDamaged settles what this relay's disk has spoiled: there is nothing left that could be sent.
func (d *Dispatcher) bounceDamaged(l *queue.Lease) {
	d.settleFailed(&Outcomes{Message: l.Message, key: l.Recipients[0].Key},
		asFailed(l.Recipients, func(reply.Reply) reply.Reply {
			return reply.Local(554, reply.Enhanced{5, 3, 0}, "queue",
				"the content of the message was damaged on this relay's disk: please send it again")
		}), queue.Bounced, accounting.Bounce)
}

func asFailed(recipients []queue.Pending, why func(last reply.Reply) reply.Reply) []Attempt {
	as := make([]Attempt, len(recipients))
	for i, p := range recipients {
		as[i] = Attempt{p, delivery.Result{Recipient: p.Index, Reply: why(p.Last)}}
	}
	return as
}

// warn reports a delay to the sender, except for recipients that were delivered or refused for good, or are about to be
// given up. The recipients are not leased: they stay where they wait.
func (d *Dispatcher) warn(l *queue.Lease) {
	m, as := l.Message, asFailed(l.Recipients, func(last reply.Reply) reply.Reply { return last })
	switch at := d.Policy().DelayedAt(m); {
	case at.IsZero():
		d.Queue.Warned(m.ID, attemptIndexes(as))
		return
	case at.After(d.Now()):
		d.Queue.WarnAt(m.ID, attemptIndexes(as), at)
		return
	}
	late := slices.DeleteFunc(slices.Clone(as), func(a Attempt) bool {
		return !a.Pending.Last.Temporary() || d.tooOld(m, a.Pending)
	})
	d.notify(Notification{Kind: dsn.Delayed, Message: m, Attempts: late}, func(err error) {
		d.reported(m, err)
		if laterReport(err) { // any other is for good
			d.Queue.WarnLater(m.ID, attemptIndexes(as), d.Now().Add(reportRetry))
			return
		}
		d.Queue.Warned(m.ID, attemptIndexes(as))
	})
}

// tooOld reports whether a recipient that waits is about to be given up: a report of that could not be
// queued, say.
func (d *Dispatcher) tooOld(m *envelope.Message, p queue.Pending) bool {
	return !d.Now().Before(d.given(expiresAt(d.Policy(), d.Sites, m, p)))
}

// expiresAt is when a recipient that waits is given up.
func expiresAt(pol *wiring.Policy, sites *Sites, m *envelope.Message, p queue.Pending) time.Time {
	domain := routeOf(pol.Config, m, p)
	provider, known := sites.ProviderOf(p.Key, domain)
	return pol.ExpiresAt(m, m.Start(), pol.MaxAge(domain, provider, known))
}

// expires is when a message for a destination is given up.
func (d *Dispatcher) expires(m *envelope.Message, domain string, rt *route.Route) time.Time {
	return d.given(d.Policy().Expires(m, domain, rt))
}

// given is the time at which mail is given up that would be at another: a time that has passed counts once the
// queue has no doubt about the clock.
func (d *Dispatcher) given(at time.Time) time.Time {
	if now := d.Now(); !now.Before(at) {
		if trusted := d.Queue.NothingExpiresBefore(); trusted.After(now) {
			return trusted
		}
	}
	return at
}

func attemptIndexes(as []Attempt) []int {
	out := make([]int, len(as))
	for i, a := range as {
		out[i] = a.Pending.Index
	}
	return out
}
