package dispatch

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accounting"
)

// Events is where events are written down for the operator.
type Events interface {
	// Accepting is called before a message is committed, and then Received or Refused.
	Accepting(m *envelope.Message)
	Received(m *envelope.Message)
	Refused(m *envelope.Message)
	// Attempted is called with what became of recipients of one message, by one event.
	Attempted(kind accounting.Type, o *Outcomes, as []Attempt)
	// After calls f when all that was written down before is on stable storage, or can't be: an outcome
	// whose record a crash could lose must not be in the queue's journal. It doesn't block, nor may f.
	After(f func())
}
