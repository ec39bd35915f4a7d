package suppression

import (
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
)

// Event is what became known about a recipient. The caller is sure whom it is about.
type Event struct {
	Kind     Source           // Bounce: the host's reply to RCPT, or the last one before the message expired
	Tenant   string           // whose mail it was; "": nobody's in particular
	Address  envelope.Address // the recipient's, as the message had it
	Class    bounce.Class     // of a Bounce or a Report
	Provider string           // who serves the address: the name of a provider block; "" when it has none
	Site     string           // the address's site, "" when unknown
	Reason   string           // for people: the host's words, say
	At       time.Time        // when it was said; zero: now

	// Of a Complaint: the message, whose complaints by one recipient count once, and how it left.
	Message envelope.ID
	Source  string    // the source that it left from; "" when unknown
	Sent    time.Time // when it was delivered; zero when unknown
}

// provider is the name under which the recipient's host is judged.
func (e *Event) provider() string {
	if e.Provider != "" {
		return e.Provider
	}
	return e.Site
}
