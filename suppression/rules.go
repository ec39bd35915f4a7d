package suppression

import (
	"time"

	"example.org/mta/bounce"
	"example.org/mta/internal/envelope"
)

// FeedSettings say what puts an address on the list.
type FeedSettings struct {
	Bounces bool                  // refusals and reports do, by Classes
	Classes map[bounce.Class]Rule // those without a rule never do
	Flood   Flood
}

// Rule says when refusals of a class put an address on the list.
type Rule struct {
	// After is how many days with a refusal it takes, within Within and with no delivery in between. 1: at once.
	After  int
	Within time.Duration // from 1 to 60 days (maxDays)
	Keep   time.Duration // how long the entry stays; 0: for ever
}

const day = 24 * time.Hour

// atOnce reports whether one refusal is enough: the class says that there is no mailbox.
func (r *Rule) atOnce() bool { return r.After <= 1 }

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
