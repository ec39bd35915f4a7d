package api

import (
	"context"
	"time"
)

// Recent is the latest outcomes of a site's mail, the newest first. Those of a site to which nothing was sent for long
// may be forgotten, and all are after a restart.
type Recent struct {
	Site string `json:"site"` // its name
	// of recipients, whatever they were, the newest first; 50 at most
	Outcomes []RecentOutcome `json:"outcomes"`
	// those that failed, for now or for good, the newest first; 10 at most
	Errors []RecentOutcome `json:"errors"`
}

// RecentOutcome is what became of a recipient at one attempt.
type RecentOutcome struct {
	Time      time.Time `json:"time"`                                               // when it ended
	Outcome   string    `json:"outcome" words:"delivered,deferred,bounced,expired"` // what became of the recipient
	Message   string    `json:"message"`                                            // the id of the message
	Source    string    `json:"source,omitempty"`                                   // from which it was sent
	Host      string    `json:"host,omitempty"`                                     // the name of the exchanger
	Address   string    `json:"address,omitempty"`                                  // "ip:port" of the host
	Session   string    `json:"session,omitempty"`                                  // the connection's, as in logs
	Class     string    `json:"class,omitempty"`                                    // of the reply; left out for one that has none
	Attempted bool      `json:"attempted"`                                          // false: it failed before anything was sent
	Reply     Reply     `json:"reply"`
}

// The outcomes of an attempt.
const (
	OutcomeDelivered = "delivered"
	OutcomeDeferred  = "deferred"
	OutcomeBounced   = "bounced"
	OutcomeExpired   = "expired"
)

// OutcomeNames are all of them.
var OutcomeNames = []string{OutcomeDelivered, OutcomeDeferred, OutcomeBounced, OutcomeExpired}

// Recent gives the latest outcomes of a site's mail, by the name of the site or of a domain that it serves.
func (c *Client) Recent(ctx context.Context, site string) (Recent, error) {
	return opRecent.call(ctx, c, none{}, site)
}
