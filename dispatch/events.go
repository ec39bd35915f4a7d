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
	// Attempted is called before the outcome is noted in the queue, whose journal then has both or neither
	// (queue.Config.Records).
	Attempted(kind accounting.Type, o *Outcomes, a Attempt)
}
