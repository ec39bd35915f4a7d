package dispatch

import (
	"context"
	"time"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/mta/wiring"
	"example.org/mta/submission/callout"
)

// calloutTenant is no name that a tenant can have. All call-outs are one message to the scheduler, with the
// allowance of one, so that whoever asks for a great many mailboxes takes no more connections from mail.
const (
	calloutTenant = "\x00callout"
	calloutTier   = 5
)

// maxRefusal bounds what is kept of a host's words, in octets.
const maxRefusal = 200

// Mailboxes asks hosts whether they have a mailbox.
type Mailboxes struct {
	Router interface {
		Router
		Verify(ctx context.Context, domain string) (refused *reply.Reply, known bool)
	}
	Delivery Delivery
	Policy   func() *wiring.Policy // in force
	Missing  func(source string) bool
	Rules    *rules.Rules
	Classes  *bounce.Classifier // of replies
	Now      func() time.Time
}

// Ask asks the hosts of a recipient's domain whether the mailbox exists, by a message without content.
func (b *Mailboxes) Ask(ctx context.Context, rcpt envelope.Address) callout.Answer {
	domain := rcpt.Domain()
	if b.Rules.Stops(rules.Mail{Domain: domain}, true) != nil {
		return callout.Answer{}
	}
	if refused, known := b.Router.Verify(ctx, domain); !known || refused != nil {
		return callout.Answer{}
	}
	rt, _, known := b.Router.Known(domain)
	if !known || rt == nil {
		return callout.Answer{}
	}
	m := &envelope.Message{Tenant: calloutTenant, Tier: calloutTier, Received: b.Now(),
		Recipients: []envelope.Recipient{{Address: rcpt}}}
	pol := b.Policy()
	source, ok := pol.SourceFor(m, rt, "", b.Missing)
	if !ok {
		return callout.Answer{}
	}
	expires, _ := ctx.Deadline()
	answers := make(chan callout.Answer, 1)
	job := &delivery.Job{
		Message: m, Recipients: []int{0}, Route: rt, Source: source, Demand: pol.Demand(m, rt), Expires: expires,
		MayBegin: func(int) bool { return ctx.Err() == nil },
		Done: func(_ *delivery.Job, results []delivery.Result) {
			answers <- answerOf(&results[0], b.Classes.Of(&results[0].Reply, rt.Provider))
		},
	}
	if !b.Delivery.Reserve(job) {
		return callout.Answer{}
	}
	b.Delivery.Submit(job)
	select {
	case a := <-answers:
		return a
	case <-ctx.Done():
		return callout.Answer{}
	}
}

// answerOf reads what a host has said. Only its reply to RCPT is about the mailbox, and of those only what is
// about no more than the recipient: a host that refuses this relay knows nothing.
func answerOf(res *delivery.Result, class bounce.Class) callout.Answer {
	said := &res.Reply
	if !res.Attempted || said.Local || said.Command != "RCPT" {
		return callout.Answer{}
	}
	switch {
	case said.OK():
		return callout.Answer{Known: true}
	case said.Permanent() && class == bounce.InvalidRecipient:
		return callout.Answer{Known: true,
			Refusal: reply.Reply{Code: said.Code, Enhanced: said.Enhanced,
				Text: said.Text[:min(len(said.Text), maxRefusal)]}}
	}
	return callout.Answer{}
}
