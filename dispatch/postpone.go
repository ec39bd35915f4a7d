package dispatch

import (
	"time"

	"example.org/mta/delivery"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/queue"
	"example.org/mta/router"
)

// unroutable settles recipients for which the router found no route of a name. A temporary failure
// defers them by the schedule of the domain.
func (d *Dispatcher) unroutable(m *envelope.Message, recipients []queue.Pending, domain string, why reply.Reply) {
	domain = router.DomainOf(domain)
	if recipients = d.withoutStopped(m, nil, recipients, time.Time{}); len(recipients) == 0 {
		return
	}
	if o := d.untried(m, nil, domain, recipients, why); o != nil {
		d.settle(o)
	}
}

// sourceRetry is the shortest wait of mail whose sources are all missing, or that can't be signed.
const sourceRetry = 5 * time.Minute

// postpone defers recipients because of a fault of this relay: all their sources are missing, or the message
// can't be signed. That counts as no attempt. The next one comes soon, at times that differ, and not by
// the schedule, which is made for remote hosts: the address may be back at any moment.
func (d *Dispatcher) postpone(m *envelope.Message, rt *route.Route, recipients []queue.Pending, why reply.Reply) {
	o := d.untried(m, rt, rt.Domain, recipients, why)
	if o == nil {
		return
	}
	d.settleFailed(o, o.expired, queue.Expired, accounting.Expiration)
	if len(o.deferred) == 0 {
		return
	}
	d.Events.Attempted(accounting.TransientFailure, o, o.deferred)
	again := d.inTime(o, d.Now().Add(sourceRetry+time.Duration(d.Chance()*float64(sourceRetry))))
	d.Events.After(func() { d.putOff(o, o.deferred, again, true) })
}

// untried returns the outcomes of recipients that could not be handed to delivery. rt is nil without a route.
// After Stop it returns those that failed temporarily to the queue, and nil.
func (d *Dispatcher) untried(m *envelope.Message, rt *route.Route, domain string, recipients []queue.Pending,
	why reply.Reply) *Outcomes {
	if d.stopping.Load() && why.Temporary() {
		d.Queue.Return(m.ID, indexes(recipients))
		return nil
	}
	o := Outcomes{Message: m, Route: rt, key: parking.Key{Name: domain}}
	if rt != nil {
		o.key.Name = rt.Site
	}
	late := !d.Now().Before(d.expires(m, domain, rt))
	for _, p := range recipients {
		o.sort(Attempt{p, delivery.Result{Recipient: p.Index, Reply: why}}, late, len(recipients))
	}
	return &o
}
