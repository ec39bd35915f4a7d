package mta

import (
	"context"

	"example.org/mta/bounce"
	"example.org/mta/delivery"
	"example.org/mta/dispatch/pauses"
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/operator/api"
	"example.org/mta/submission/callout"
)

// asksMailboxes reports whether a domain block wants the recipients of a domain verified.
func (r *mailIn) asksMailboxes(domain string) bool {
	return r.policy.Load().Config.VerifiesMailboxes(domain)
}

// missingMailbox lets submission ask whether a recipient's mailbox exists.
func (r *mailIn) missingMailbox(ctx context.Context, rcpt envelope.Address) (words string, missing bool) {
	a := r.callouts.Check(ctx, rcpt)
	if !a.Missing() {
		return "", false
	}
	return a.Refusal.String(), true
}

// calloutTenant is no name that a tenant can have. All call-outs are one message to the scheduler, with the
// allowance of one, so that whoever asks for a great many mailboxes takes no more connections from mail.
const (
	calloutTenant = "\x00callout"
	calloutTier   = 5
)

// maxRefusal bounds what is kept of a host's words, in octets.
const maxRefusal = 200

// askForMailbox asks the hosts of a recipient's domain whether the mailbox exists, by a message without content.
func (r *mailOut) askForMailbox(ctx context.Context, rcpt envelope.Address) callout.Answer {
	domain := rcpt.Domain()
	if r.pauses.First(pauses.Key(api.PauseEverything, ""), pauses.Key(api.PauseDomain, domain)) != "" {
		return callout.Answer{}
	}
	if refused, known := r.router.Verify(ctx, domain); !known || refused != nil {
		return callout.Answer{}
	}
	rt, _, known := r.router.Known(domain)
	if !known || rt == nil {
		return callout.Answer{}
	}
	m := &envelope.Message{Tenant: calloutTenant, Tier: calloutTier, Received: r.now(), Recipients: []envelope.Recipient{{Address: rcpt}}}
	pol := r.policy.Load()
	source, ok := pol.SourceFor(m, rt, "", r.sources.Missing)
	if !ok {
		return callout.Answer{}
	}
	expires, _ := ctx.Deadline()
	answers := make(chan callout.Answer, 1)
	job := &delivery.Job{
		Message: m, Recipients: []int{0}, Route: rt, Source: source, Demand: pol.Demand(m, rt), Expires: expires,
		MayBegin: func(int) bool { return ctx.Err() == nil },
		Done: func(_ *delivery.Job, results []delivery.Result) {
			answers <- answerOf(&results[0], r.classes.Of(&results[0].Reply, rt.Provider))
		},
	}
	if !r.delivery.Reserve(job) {
		return callout.Answer{}
	}
	r.delivery.Submit(job)
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
		return callout.Answer{Known: true, Refusal: reply.Reply{Code: said.Code, Enhanced: said.Enhanced, Text: said.Text[:min(len(said.Text), maxRefusal)]}}
	}
	return callout.Answer{}
}
