package api

import (
	"context"
	"time"

	"example.org/mta/internal/envelope"
)

// ExplainQuery says what is to be explained: Domain or ID.
type ExplainQuery struct {
	Domain string `q:"domain" help:"of a recipient; this or id"` // in A-label form
	Tenant string `q:"tenant" help:"mail of this <tenant> for the domain"`
	ID     string `q:"id" help:"of a message in the queue"`
}

// Explanation is why mail waits, or what would happen to it.
type Explanation struct {
	Message      *ExplainedMessage `json:"message,omitempty"` // when one was asked about
	Destinations []Destination     `json:"destinations"`      // the one that was asked about, or those of the message
}

// MaxExplained bounds the recipients of an explanation: each can take a look-up.
const MaxExplained = 10

// ExplainedMessage is what becomes of a message.
type ExplainedMessage struct {
	ID         string               `json:"id"`               // of the message
	Sender     string               `json:"sender"`           // empty: the null sender
	Tenant     string               `json:"tenant,omitempty"` // on whose behalf
	Source     string               `json:"source"`           // that its transactions use
	Received   time.Time            `json:"received"`         // when it was accepted
	Recipients []ExplainedRecipient `json:"recipients"`       // those in the queue
	More       int                  `json:"more,omitempty"`   // recipients in the queue that were left out
}

// ExplainedRecipient is a recipient and why it is still here.
type ExplainedRecipient struct {
	Status RecipientStatus `json:"status"`
	Why    string          `json:"why"`            // one sentence
	Until  time.Time       `json:"until,omitzero"` // when that ends, where it is known
}

// Destination is all that decides what becomes of mail for a domain.
type Destination struct {
	Domain string    `json:"domain"`         // A-label form
	Now    string    `json:"now"`            // one sentence: what happens to mail for it now
	Until  time.Time `json:"until,omitzero"` // when that ends, where it is known

	Steps        []string  `json:"steps"`                  // how the route was found
	Failure      *Reply    `json:"failure,omitempty"`      // why there is no route
	RouteExpires time.Time `json:"route_expires,omitzero"` // until when the route holds
	Site         string    `json:"site,omitempty"`         // the hosts as one budget
	Provider     string    `json:"provider,omitempty"`     // operator of the site
	TLS          string    `json:"tls,omitempty"`          // what is demanded of connections: opportunistic, required, verified, off
	TLSOrigin    string    `json:"tls_origin,omitempty"`   // what made it so
	TLSPolicies  []string  `json:"tls_policies,omitempty"` // that the domain and its hosts publish
	// MTASTS is the domain's policy, nil when it has none.
	MTASTS *STSPolicy `json:"mta_sts,omitempty"`
	Auth   bool       `json:"auth,omitempty"` // credentials are sent

	Hosts []TierHost `json:"hosts"` // in the order in which they are tried
	Pool  string     `json:"pool"`  // of sources
	// of other tenants, whose mail for the domain takes other sources; absent for a message
	OtherPools []OtherPool         `json:"other_pools,omitempty"`
	Sources    []DestinationSource `json:"sources"` // of the pool, or the one that the message has
	Limits     []Limit             `json:"limits"`  // in force

	Connections int          `json:"connections"`       // of the site
	SlowStart   int          `json:"slow_start"`        // connections that it has earned
	Actions     []SiteAction `json:"actions,omitempty"` // in force
	Lanes       []Lane       `json:"lanes,omitempty"`   // the mail within delivery, by source
	Queued      QueuedCounts `json:"queued"`
	Ceiling     Ceiling      `json:"ceiling"`
}

// OtherPool is a pool of sources, and the tenants whose mail takes it.
type OtherPool struct {
	Name    string   `json:"name"`    // of the pool
	Tenants []string `json:"tenants"` // by name
}

// TierHost is a host in its place in a route.
type TierHost struct {
	Tier int  `json:"tier"` // 1 is tried first
	Host Host `json:"host"`
}

// DestinationSource is an address that mail for a destination can leave from.
type DestinationSource struct {
	Name    string `json:"name"`              // of the source
	Address string `json:"address,omitempty"` // "": the system chooses
	EHLO    string `json:"ehlo"`              // what it calls itself
	Reaches int    `json:"reaches"`           // hosts of the route, by the families of their addresses
	Warmup  string `json:"warmup,omitempty"`  // where its warm-up stands; absent when it has none
}

// Limit is a setting in force and the block of the configuration that made it.
type Limit struct {
	Setting string `json:"setting"`       // its name in the configuration
	Value   string `json:"value"`         // in force
	Scope   string `json:"scope"`         // what it bounds: "site mx.example"
	Origin  string `json:"origin"`        // `provider "google" (mta.conf:31)`, or "default"
	Now     string `json:"now,omitempty"` // how much of it is used
}

// Lane is the mail from one source to one site within delivery, counted in transactions.
type Lane struct {
	Source  string    `json:"source"`         // whose
	Waiting int       `json:"waiting"`        // no connection has them
	Running int       `json:"running"`        // on connections
	Opening int       `json:"opening"`        // connections on their way
	Why     string    `json:"why,omitempty"`  // what the first that waits waits for
	Until   time.Time `json:"until,omitzero"` // when that ends, where it is known
	// whose rate why is: other tenants' mail goes past it; left out: it holds for all
	Tenant    string    `json:"tenant,omitempty"`
	Oldest    time.Time `json:"oldest,omitzero"`     // since when the oldest waits
	Drain     string    `json:"drain,omitempty"`     // the rate to which it is held after an outage
	DrainEnds time.Time `json:"drain_ends,omitzero"` // about when what piled up in an outage will be gone
}

// QueuedCounts are recipients in the queue. One that nobody has looked at yet is not known by its
// site: those are in Unsorted, for all destinations together.
type QueuedCounts struct {
	// parked in the queue: delivery has enough mail for the site, or the route is being looked up
	Parked   int `json:"parked"`
	Active   int `json:"active"`   // handed to delivery: they wait there, or are on connections
	Due      int `json:"due"`      // next in line for an attempt
	Deferred int `json:"deferred"` // wait for their time
	Held     int `json:"held"`     // stopped by an operator
	Unsorted int `json:"unsorted"` // of all destinations: not looked at yet
	// waiting for the warm-ups of the pool's sources, for all domains of the provider together
	Warmup int `json:"warmup"`
	// wait for the end of the pause that keeps the mail back, all of those that it keeps together
	Paused   int    `json:"paused"`
	PausedBy string `json:"paused_by,omitempty"` // that pause, as "domain example.net"
}

// Ceiling is the most messages a second that the limits let through.
type Ceiling struct {
	PerSecond float64  `json:"per_second"`       // meaningless without Binds; 0 with it: nothing leaves now
	Binds     string   `json:"binds,omitempty"`  // the limit that binds; "": no rate is limited
	Others    []string `json:"others,omitempty"` // limits on the rate that do not bind
}

// Check makes the domain and the id those of the queue.
func (q *ExplainQuery) Check() error {
	if (q.Domain == "") == (q.ID == "") {
		return Invalid("", "explain: want either a domain or the id of a message")
	}
	if q.ID != "" {
		id, err := envelope.ParseID(q.ID)
		if err != nil {
			return Invalid("", "%v", err)
		}
		q.ID = id.String()
		return nil
	}
	domain, err := envelope.ToASCII(q.Domain)
	if err != nil {
		return Invalid("", "domain %q: %v", q.Domain, err)
	}
	q.Domain = domain
	return nil
}

// Explain returns why mail waits, or what would happen to it.
func (c *Client) Explain(ctx context.Context, q ExplainQuery) (Explanation, error) {
	return opExplain.call(ctx, c, q)
}
