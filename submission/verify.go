package submission

import (
	"context"
	"time"

	"example.org/mta/internal/reply"
)

// Verifier says whether recipients' domains can take mail at all.
type Verifier interface {
	// Verify gives the reply by which mail for a domain is refused, for good; nil when the domain
	// takes mail, or when that is not known by the time that ctx ends: delivery sorts it out then.
	// Domain is in A-label form, or an address literal in brackets.
	Verify(ctx context.Context, domain string) *reply.Reply
}

// How long a client is kept waiting for the answers to its RCPTs: for each, and for all of a
// transaction together, so that 1,000 recipients at dead name servers don't add up to half an hour.
const (
	verifyPatience     = 2 * time.Second
	verifyAllPatience  = 10 * time.Second
	verifyLeastPatient = time.Nanosecond // what is known by then needs no waiting
)

// verify asks whether a recipient's domain can take mail, and gives the reply that refuses it, or
// nil.
func (c *conn) verify(domain string) *reply.Reply {
	cfg := &c.srv.cfg
	if !cfg.VerifyRecipients || cfg.Verifier == nil {
		return nil
	}
	patience := max(min(verifyPatience, verifyAllPatience-c.tx.verifying), verifyLeastPatient)
	ctx, done := context.WithTimeout(c.srv.ctx, patience)
	defer done()
	began := time.Now()
	r := cfg.Verifier.Verify(ctx, domain)
	c.tx.verifying += time.Since(began)
	if r != nil && r.Permanent() {
		return r
	}
	return nil
}
