package mta

import (
	"context"

	"example.org/mta/internal/envelope"
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
