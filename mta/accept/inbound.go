package accept

import (
	"context"
	"errors"
	"time"

	"example.org/mta/bounce/inbox"
	"example.org/mta/bounce/returnpath"
	"example.org/mta/internal/envelope"
	"example.org/mta/submission"
)

// Inbound is the inbound mail of a listener.
type Inbound struct {
	Inbox     *inbox.Inbox
	Addresses *inbox.Addresses
	Forward   envelope.Address        // gets what is not understood
	Keys      func() *returnpath.Keys // in force
	Now       func() time.Time
}

// Recipient implements submission.Inbound.
func (i Inbound) Recipient(a envelope.Address) submission.Verdict {
	_, err := i.Addresses.Find(a, i.Keys(), i.Now())
	switch {
	case err == nil:
		return submission.Taken
	case errors.Is(err, inbox.ErrForeign):
		return submission.Foreign
	case errors.Is(err, inbox.ErrExpired):
		return submission.Expired
	}
	return submission.Unknown
}

// Postmaster implements submission.Inbound.
func (i Inbound) Postmaster() envelope.Address { return i.Addresses.Postmaster() }

// Take implements submission.Inbound.
func (i Inbound) Take(ctx context.Context, a *submission.Arrival) error {
	err := i.Inbox.Take(ctx, i.Addresses, i.Forward, (*inbox.Mail)(a))
	switch {
	case errors.Is(err, inbox.ErrTooLarge):
		return submission.ErrTooLarge
	case errors.Is(err, inbox.ErrLoop):
		return submission.ErrLoop
	}
	return err
}
