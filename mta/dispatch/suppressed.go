package dispatch

import (
	"fmt"
	"slices"
	"strings"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/replyclass"
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

// feed puts on the list the addresses that a remote host has just said don't exist.
func (d *Dispatcher) feed(o *Outcomes) {
	s := d.Suppression
	if s == nil || len(o.bounced) == 0 {
		return
	}
	c := &d.Policy().Config.Suppression
	if !c.Feed {
		return
	}
	for _, a := range o.bounced {
		address := o.Message.Recipients[a.Pending.Index].Address
		if suppression.Exempt(address) || !unknownMailbox(&a.Result.Reply, c.FeedStatus) {
			continue
		}
		now := d.Now()
		e := suppression.Entry{Key: suppression.KeyOf(o.Message.Tenant, address), Reason: quoteReply(&a.Result.Reply), Source: suppression.Bounce, Added: now}
		if c.FeedKeep > 0 {
			e.Expires = now.Add(c.FeedKeep)
		}
		s.Feed(e)
		d.Log.Info("address is suppressed, since a remote host says that there is no such mailbox",
			"address", e.Address, "tenant", e.Tenant, "message", o.Message.ID, "reply", e.Reason)
	}
}

// unknownMailbox reports whether a reply says of a recipient, and of nothing else, that there is
// no such mailbox. It must be the remote host's own, to RCPT: what comes after the content can be
// about the content, or about another of its recipients. A host that refuses us, for a block list or
// a policy, knows nothing of the address, whatever status it gives.
func unknownMailbox(r *reply.Reply, statuses []string) bool {
	return !r.Local && r.Permanent() && r.Command == "RCPT" && slices.Contains(statuses, r.Enhanced.String()) && !replyclass.Of(*r).AboutUs()
}

func quoteReply(r *reply.Reply) string {
	return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, strings.Join(strings.Fields(r.Text), " "))
}
