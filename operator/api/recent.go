package api

import (
	"context"
	"time"
)

// Recent is the latest outcomes of a site's mail, the newest first. Those of a site to which nothing was sent for long
// may be forgotten, and all are after a restart.
type Recent struct {
	Site     string          `json:"site"`
	Outcomes []RecentOutcome `json:"outcomes"` // of recipients, whatever they were; 50 at most
	Errors   []RecentOutcome `json:"errors"`   // those that failed, for now or for good; 10 at most
}

// RecentOutcome is what became of a recipient at one attempt.
type RecentOutcome struct {
	Time      time.Time `json:"time"`
	Outcome   string    `json:"outcome"` // delivered, deferred, bounced or expired
	Message   string    `json:"message"` // its id
	Source    string    `json:"source,omitempty"`
	Host      string    `json:"host,omitempty"`    // the exchanger's name
	Address   string    `json:"address,omitempty"` // "ip:port" of the host
	Session   string    `json:"session,omitempty"` // the connection's, as in logs
	Class     string    `json:"class,omitempty"`   // of the reply; left out for one that has none
	Attempted bool      `json:"attempted"`         // false: it failed before anything was sent
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
