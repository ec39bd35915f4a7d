package dispatch

import (
	"fmt"
	"strings"

	"example.org/mta/bounce"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/accounting"
	"example.org/mta/queue"
	"example.org/mta/suppression"
)

// suppressed bounces those of a lease's recipients that have come on the list since they were
// taken, and gives the lease with the others; nil when that is nobody. Reports to senders go on.
func (d *Dispatcher) suppressed(l *queue.Lease) *queue.Lease {
	s := d.Suppression
	if s == nil || l.Message.Sender.Null() || d.Policy().Config.Suppression.Mode == "off" {
		return l
	}
	var listed []Attempt
	var others []queue.Pending
	for i, p := range l.Recipients {
		e, yes := s.Keeps(l.Message.Tenant, l.Message.Recipients[p.Index].Address)
		switch {
		case yes:
			if listed == nil {
				others = append(others, l.Recipients[:i]...)
			}
			why := reply.Local(550, reply.Enhanced{5, 1, 1}, "queue", "%s", "address is suppressed "+e.String())
			listed = append(listed, asFailed([]queue.Pending{p}, func(reply.Reply) reply.Reply { return why })...)
		case listed != nil:
			others = append(others, p)
		}
	}
	if listed == nil {
		return l
	}
	d.settleFailed(&Outcomes{Message: l.Message, key: listed[0].Pending.Key}, listed, queue.Bounced, accounting.Bounce)
	if len(others) == 0 {
		return nil
	}
	return &queue.Lease{Why: l.Why, Message: l.Message, Recipients: others}
}

// feed reports to the suppression list what hosts said of the recipients that have failed.
func (d *Dispatcher) feed(o *Outcomes, failed []Attempt) {
	if d.Feeder == nil {
		return
	}
	provider := d.providerOf(o)
	for _, a := range failed {
		r := &a.Result.Reply
		class, ok := aboutRecipient(r, d.Classes.Of(r, provider))
		if !ok {
			continue
		}
		e := suppression.Event{Kind: suppression.Bounce, Tenant: o.Message.Tenant,
			Address: o.Message.Recipients[a.Pending.Index].Address, Class: class,
			Provider: provider, Site: o.Site(), Reason: quoteReply(r), At: d.Now(), Message: o.Message.ID}
		d.Feeder.Report(e)
	}
}

// providerOf gives the provider of the site that was tried, "" when it has none.
func (d *Dispatcher) providerOf(o *Outcomes) string {
	if o.Route != nil {
		return o.Route.Provider
	}
	provider, _ := d.Sites.Provider(o.key)
	return provider
}

// aboutRecipient gives the class of a reply that is about a recipient and nothing else. It must be the remote
// host's own, to RCPT: what comes after the content can be about the content, or about another of its
// recipients. A host that refuses us, for a block list or a policy, knows nothing of the address, whatever status it
// gives; and one that doesn't find an address for now may find it later.
func aboutRecipient(r *reply.Reply, class bounce.Class) (bounce.Class, bool) {
	if r.Local || r.Command != "RCPT" {
		return bounce.None, false
	}
	return class, class.Hard() && r.Permanent() || class.AboutRecipient() && !class.Hard()
}

// taken reports to the suppression list which recipients hosts took.
func (d *Dispatcher) taken(o *Outcomes) {
	if d.Feeder == nil || o.Route == nil {
		return
	}
	for i := range o.delivered {
		a := &o.delivered[i]
		d.Feeder.Delivered(o.Message.Tenant, o.Message.Recipients[a.Pending.Index].Address,
			o.Route.Provider, o.Route.Site)
	}
}

func quoteReply(r *reply.Reply) string {
	return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, strings.Join(strings.Fields(r.Text), " "))
}
