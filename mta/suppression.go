package mta

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/replyclass"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// suppressor joins the suppression list with what asks it, by the configuration in force:
// submission at RCPT, the dispatcher before mail is sent, and the outcomes that feed it.
type suppressor struct {
	*suppression.List
	policy func() *wiring.Policy
}

func (r *Relay) openSuppression(cfg *config.Config, undo *undoer) error {
	store, err := boltstore.Open(filepath.Join(cfg.DataDir, "suppression.db"))
	if err != nil {
		return err
	}
	list, err := suppression.Open(context.Background(), suppression.Config{Store: store, Now: r.now, Log: r.log})
	if err != nil {
		store.Close()
		return err
	}
	r.suppression = &suppressor{list, r.policy.Load}
	undo.add(func() { list.Close() })
	return nil
}

func (s *suppressor) settings() *config.Suppression { return &s.policy().Config.Suppression }

// match finds what keeps a tenant's mail from an address, unless that is never kept from any.
func (s *suppressor) match(tenant string, a envelope.Address) (suppression.Entry, bool) {
	if suppression.Exempt(a) {
		return suppression.Entry{}, false
	}
	return s.Match(tenant, a)
}

// refuses is asked by submission: why a recipient is refused, if it is.
func (s *suppressor) refuses(tenant string, a envelope.Address) (why string, yes bool) {
	if s.settings().Mode != "refuse" {
		return "", false
	}
	e, yes := s.match(tenant, a)
	if !yes {
		return "", false
	}
	return since(&e), true
}

// keeps is what an operator is told of mail in the queue: since when and why it is kept from an
// address, "" when it is not.
func (s *suppressor) keeps(it *queue.Item, a envelope.Address) string {
	if it.Sender.Null() || s.settings().Mode == "off" {
		return ""
	}
	e, yes := s.match(it.Tenant, a)
	if !yes {
		return ""
	}
	return since(&e)
}

// since says in a line since when an entry is there, and why.
func since(e *suppression.Entry) string {
	why := e.Reason
	if why == "" {
		why = "by " + string(e.Source)
	}
	return "since " + e.Added.UTC().Format(time.DateOnly) + ": " + why
}

// suppressed bounces those of a lease's recipients that have come on the list since they were
// taken, and gives the lease with the others; nil when that is nobody. Reports to senders go on.
func (d *dispatcher) suppressed(l *queue.Lease) *queue.Lease {
	s := d.suppression
	if s == nil || l.Message.Sender.Null() || s.settings().Mode == "off" {
		return l
	}
	var listed []attempt
	var others []queue.Pending
	for i, p := range l.Recipients {
		e, yes := s.match(l.Message.Tenant, l.Message.Recipients[p.Index].Address)
		switch {
		case yes:
			if listed == nil {
				others = append(others, l.Recipients[:i]...)
			}
			why := reply.Local(550, reply.Enhanced{5, 1, 1}, "queue", "%s", "address is suppressed "+since(&e))
			listed = append(listed, asFailed([]queue.Pending{p}, func(reply.Reply) reply.Reply { return why })...)
		case listed != nil:
			others = append(others, p)
		}
	}
	if listed == nil {
		return l
	}
	d.settleFailed(&outcomes{message: l.Message, key: listed[0].pending.Key}, listed, queue.Bounced, eventBounce)
	if len(others) == 0 {
		return nil
	}
	return &queue.Lease{Why: l.Why, Message: l.Message, Recipients: others}
}

// feed puts on the list the addresses that a remote host has just said don't exist.
func (d *dispatcher) feed(o *outcomes) {
	s := d.suppression
	if s == nil || len(o.bounced) == 0 {
		return
	}
	c := s.settings()
	if !c.Feed {
		return
	}
	for _, a := range o.bounced {
		address := o.message.Recipients[a.pending.Index].Address
		if suppression.Exempt(address) || !unknownMailbox(&a.result.Reply, c.FeedStatus) {
			continue
		}
		now := d.now()
		e := suppression.Entry{Key: suppression.KeyOf(o.message.Tenant, address), Reason: quoteReply(&a.result.Reply), Source: suppression.Bounce, Added: now}
		if c.FeedKeep > 0 {
			e.Expires = now.Add(c.FeedKeep)
		}
		s.Feed(e)
		d.log.Info("address is suppressed, since a remote host says that there is no such mailbox",
			"address", e.Address, "tenant", e.Tenant, "message", o.message.ID, "reply", e.Reason)
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
