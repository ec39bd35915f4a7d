package intake

import (
	"context"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
)

// Verifier says whether recipients' domains can take mail at all.
type Verifier interface {
	// Verify gives the reply by which mail for a domain is refused, for good; nil when the domain
	// takes mail, or when that is not known by the time that ctx ends: delivery sorts it out then.
	// Domain is in A-label form, or an address literal in brackets.
	Verify(ctx context.Context, domain string) *reply.Reply
}

// How long a client is kept waiting for the answers about its recipients: for each, and for all of a
// message together, so that 1,000 recipients at dead name servers don't add up to half an hour.
const (
	verifyPatience     = 2 * time.Second
	verifyAllPatience  = 10 * time.Second
	verifyLeastPatient = time.Nanosecond // what is known by then needs no waiting
)

// callPatience is how long the answer of a mailbox's host is waited for.
const callPatience = 5 * time.Second

// verify asks whether a recipient's domain can take mail, and whether the mailbox exists, as far as the
// configuration wants that, and gives the reply that refuses it, or nil.
func (m *Message) verify(ctx context.Context, rcpt envelope.Address) *reply.Reply {
	cfg := &m.desk.cfg
	if cfg.Recipients.Verify && cfg.Recipients.Verifier != nil {
		var r *reply.Reply
		m.verifyWithin(ctx, verifyPatience, func(ctx context.Context) {
			r = cfg.Recipients.Verifier.Verify(ctx, rcpt.Domain())
		})
		if r != nil && r.Permanent() {
			return r
		}
	}
	if cfg.Recipients.AsksMailboxes == nil || !cfg.Recipients.AsksMailboxes(rcpt.Domain()) {
		return nil
	}
	words, missing := "", false
	m.verifyWithin(ctx, callPatience, func(ctx context.Context) {
		words, missing = cfg.Recipients.MissingMailbox(ctx, rcpt)
	})
	if !missing {
		return nil
	}
	return noMailbox.Refusal(reply.Printable(words))
}

// verifyWithin asks with a bounded patience, of which all recipients of a message share verifyAllPatience.
func (m *Message) verifyWithin(ctx context.Context, patience time.Duration, ask func(context.Context)) {
	patience = max(min(patience, verifyAllPatience-m.verifying), verifyLeastPatient)
	ctx, done := context.WithTimeout(ctx, patience)
	defer done()
	began := time.Now()
	ask(ctx)
	m.verifying += time.Since(began)
}

// suppressed gives the reply that refuses a recipient no mail is to be sent to, nil when there is
// nothing against it. Reports (null sender) are let through: who can't be told of a failure never
// hears of it.
func (m *Message) suppressed(rcpt envelope.Address) *reply.Reply {
	cfg := &m.desk.cfg
	if cfg.Recipients.Suppressed == nil || m.Sender.Null() {
		return nil
	}
	why, listed := cfg.Recipients.Suppressed(m.account.tenant, rcpt)
	if !listed {
		return nil
	}
	if m.client.APIKey != "" {
		return suppressedByKey.Refusal(reply.Printable(why))
	}
	return suppressedRcpt.Refusal(reply.Printable(why), forShell(rcpt))
}

// forShell gives an address as it can be pasted into a command line; a word that stands for it
// when it has anything that a shell or a reply line would not take as it is.
func forShell(a envelope.Address) string {
	for _, c := range []byte(a) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
			strings.IndexByte("@.-_+=", c) >= 0) {
			return "ADDRESS"
		}
	}
	return string(a)
}
