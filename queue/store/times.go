package store

import (
	"time"

	"example.org/mta/internal/envelope"
)

// Plan is when a message is released, as its record has it: no attempt is made before. The zero
// plan is that of a message which is due when it is accepted.
//
// The plan is part of the accepted record, so that there is no instant at which a message is
// durable and its plan is not.
type Plan struct {
	Release uint32 // seconds since 1970
	spread  uint32 // seconds: each recipient has its own time from release to so much later
}

// PlanOf gives the plan of an envelope. A fraction of a second counts as a whole one: nothing is
// released early.
func PlanOf(m *envelope.Message) Plan {
	if m.Release.IsZero() {
		return Plan{}
	}
	return Plan{SecondsOf(m.Release), uint32(min(max(m.Spread, 0), envelope.MaxSpread) / time.Second)}
}

// Scheduled reports whether there is a plan.
func (p Plan) Scheduled() bool { return p.Release != 0 }

// Due is when a recipient is released, 0 without a plan. It is worked out from the id, so that it
// need not be stored for each recipient.
func (p Plan) Due(id uint64, rcpt int) uint32 {
	if !p.Scheduled() {
		return 0
	}
	return p.Release + envelope.ID(id).Jitter(rcpt, p.spread)
}

// Start is when the last recipient is released.
func (p Plan) Start() uint32 { return p.Release + p.spread }

// ReleaseTime is when the first recipient is released.
func (p Plan) ReleaseTime() time.Time { return time.Unix(int64(p.Release), 0).UTC() }

// ExpiryOf is when a message is given up whatever its age, in seconds since 1970; 0: never.
func ExpiryOf(m *envelope.Message) uint32 {
	if m.Expires.IsZero() {
		return 0
	}
	return SecondsOf(m.Expires)
}

// SecondsSince1970 rounds down; the zero time is 0.
func SecondsSince1970(t time.Time) uint32 {
	if t.IsZero() {
		return 0
	}
	return uint32(min(max(t.Unix(), 0), 1<<32-1))
}

// SecondsOf rounds up, so that nothing is due before its time.
func SecondsOf(t time.Time) uint32 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return uint32(min(max(s, 1), 1<<32-1))
}
