package queue

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/queue/schedule"
	"example.org/mta/queue/store"
	"example.org/mta/queue/view"
)

// The words of package view, which shows what is in a queue.
type (
	Filter         = view.Filter
	Page           = view.Page
	Order          = view.Order
	Listing        = view.Listing
	Item           = view.Item
	ItemRecipient  = view.ItemRecipient
	Count          = view.Count
	KeySummary     = view.KeySummary
	Naming         = view.Naming
	RecipientState = view.RecipientState
	Row            = view.Row
	Tally          = view.Tally
	Counts         = view.Counts
	TenantLine     = view.TenantLine
	Usage          = schedule.Usage
	LineCount      = schedule.Count
	State          = view.State
	Action         = view.Action
)

// AgeLimits are the upper ends of the classes in Count.Ages.
var AgeLimits = view.AgeLimits

// The orders of a listing, the states of a recipient, and what an operator does to recipients: see package view.
const (
	OldestFirst = view.OldestFirst
	NewestFirst = view.NewestFirst
	NextAttempt = view.NextAttempt

	StateDue        = view.StateDue
	StateDeferred   = view.StateDeferred
	StateParked     = view.StateParked
	StateHeld       = view.StateHeld
	StateLeased     = view.StateLeased
	StateEnding     = view.StateEnding
	StateUnreadable = view.StateUnreadable

	Hold               = view.Hold
	Unhold             = view.Unhold
	RetryNow           = view.RetryNow
	Bounce             = view.Bounce
	Remove             = view.Remove
	RetryScheduled     = view.RetryScheduled
	RetryHeld          = view.RetryHeld
	RetryHeldScheduled = view.RetryHeldScheduled
	Cancel             = view.Cancel
	Transfer           = view.Transfer
)

// looks is the queue as its view sees it.
type looks struct{ q *Queue }

func (l looks) Envelope(id uint64, ahead *store.ReadAhead) (*envelope.Message, error) {
	return l.q.envelopeOf(id, ahead)
}

func (l looks) LastAttempt(r *store.ReplyReader, id uint64, rcpt uint16) (Attempt, bool, error) {
	return l.q.lastAttempt(r, id, rcpt)
}

func (l looks) ReportDamage(err error, consequence string) { l.q.reportDamage(err, consequence) }
