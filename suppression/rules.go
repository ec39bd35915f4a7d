package suppression

import (
	"time"

	"example.org/mta/bounce"
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
