package mta

import (
	"cmp"
	"context"

	"example.org/mta/dispatch/rules"
	"example.org/mta/internal/reply"
)

// domainVerifier lets submission ask the router about recipients' domains. What the router doesn't
// know in time, or knows to be trouble that may pass, is accepted: delivery sorts it out later.
type domainVerifier struct{ r *mailIn }

// Verify is what submission asks.
func (v domainVerifier) Verify(ctx context.Context, domain string) *reply.Reply {
	route := cmp.Or(v.r.rules.RouteOf(rules.Mail{Domain: domain}), domain)
	if refused, known := v.r.router.Verify(ctx, route); known && refused != nil && refused.Permanent() {
		return refused
	}
	return nil
}
