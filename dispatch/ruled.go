package dispatch

import (
	"strings"
	"time"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/parking"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/route"
	"example.org/mta/mta/accounting"
	"example.org/mta/operator/api"
	"example.org/mta/queue"
)

// withoutStopped bounces, holds or parks the recipients of a message that operators' rules keep, and gives the others.
// Without a route, nothing is parked: it can't leave.
func (d *Dispatcher) withoutStopped(m *envelope.Message, rt *route.Route, recipients []queue.Pending,
	expires time.Time) []queue.Pending {
	if d.Rules.Current() == nil {
		return recipients
	}
	var rest []queue.Pending
	stopped := make(map[*api.Rule][]queue.Pending)
	pol := d.Policy()
	for _, r := range recipients {
		by := d.Rules.Stops(rules.MailOf(m, m.Recipients[r.Index].Address.Domain(), pol, rt), wasTried(&r))
		own := m.Sender == "" && m.Protocol == envelope.LocalProtocol // a report, which would be lost without another
		if by == nil || rt == nil && by.Action == api.RuleSuspend || own && by.Action == api.RuleBounce {
			rest = append(rest, r)
		} else {
			stopped[by] = append(stopped[by], r)
		}
	}
	for by, some := range stopped {
		switch by.Action {
		case api.RuleBounce:
			d.giveUp(m, some, by)
		case api.RuleHold:
			d.journal(m, d.Queue.Hold(m.ID, indexes(some), queue.Attempt{Reply: heldBack(by), Untried: true}))
		default:
			d.parkSuspended(m, some, rules.Key(by.Selection), expires)
		}
	}
	return rest
}

// heldBack is the last reply of recipients that a rule has held, until their first attempt: they are held once.
func heldBack(by *api.Rule) reply.Reply {
	return reply.Local(451, reply.Enhanced{4, 7, 0}, "hold", "%s", held+byRule(by))
}

const held = "the administrator of this relay held the message"

// wasTried reports whether a recipient is not new: it was attempted, or was held by a rule, and released.
func wasTried(p *queue.Pending) bool { return p.Attempts > 0 || isHeld(&p.Last) }

func isHeld(r *reply.Reply) bool { return r.Local && strings.HasPrefix(r.Text, held) }

// giveUp settles recipients that an operator has bounced, by a rule or by hand: nil. No host has a part in it, so the
// record names none.
func (d *Dispatcher) giveUp(m *envelope.Message, recipients []queue.Pending, by *api.Rule) {
	failed := asFailed(recipients, func(reply.Reply) reply.Reply { return givenUp(by) })
	d.settleFailed(&Outcomes{Message: m, key: recipients[0].Key}, failed, queue.Bounced, accounting.AdminBounce)
}

// parkSuspended lets recipients wait for the end of a rule.
func (d *Dispatcher) parkSuspended(m *envelope.Message, recipients []queue.Pending, key parking.Key,
	expires time.Time) {
	d.Queue.Park(m.ID, indexes(recipients), parking.Line{Key: key}, expires)
	if !d.Rules.Has(key) { // it has ended meanwhile, and nobody would say so again
		d.Resume(key)
	}
}

// unparkSuspended takes up some of the mail that waited for the end of a rule. It reports whether there may
// be more. What must wait on goes to the end of the line.
func (d *Dispatcher) unparkSuspended(key parking.Key) (more bool) {
	leases := d.Queue.Take(parking.Line{Key: key}, d.resumes(key))
	for _, l := range leases {
		d.handle(l)
	}
	return len(leases) > 0
}

// resumes returns how many messages to take up next that wait for a rule: of one in force, as many as waited when
// [Dispatcher.Resume] was called.
func (d *Dispatcher) resumes(key parking.Key) int {
	d.resumed.Lock()
	defer d.resumed.Unlock()
	n := unparkAtOnce
	if d.Rules.Has(key) {
		n = min(n, d.resumed.left[key])
		if d.resumed.left[key] -= n; d.resumed.left[key] > 0 {
			return n
		}
	}
	delete(d.resumed.left, key)
	return n
}
