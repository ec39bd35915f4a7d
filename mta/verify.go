package mta

import (
	"context"

	"example.org/mta/internal/reply"
)

// domainVerifier lets submission ask the router about recipients' domains. What the router doesn't
// know in time, or knows to be trouble that may pass, is accepted: delivery sorts it out later.
type domainVerifier struct{ r *mailIn }

// Verify is what submission asks.
func (v domainVerifier) Verify(ctx context.Context, domain string) *reply.Reply {
	if refused, known := v.r.router.Verify(ctx, domain); known && refused != nil && refused.Permanent() {
		return refused
	}
	return nil
}
