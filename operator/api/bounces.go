package api

import (
	"context"
	"time"
)

// Bounces is what the server asks of the relay about refusals.
type Bounces interface {
	// UnknownReplies gives the replies that no rule knows, of a provider or, with nil, of all.
	UnknownReplies(ctx context.Context, provider *string) (UnknownList, error)
}

// UnknownList is what no rule for classes knows.
type UnknownList struct {
	Since   time.Time        `json:"since"`   // when the relay was started, and counting began
	Unknown []UnknownReplies `json:"unknown"` // by provider, the most first
}

// UnknownReplies are those of a provider.
type UnknownReplies struct {
	Provider string          `json:"provider"` // empty: of sites without one
	Count    int64           `json:"count"`    // of all, those without a sample too
	Samples  []UnknownSample `json:"samples"`  // the most frequent first
}

// UnknownSample is a reply, and how often the provider gave it, numbers and addresses aside.
type UnknownSample struct {
	Reply   Reply     `json:"reply"`             // the latest
	Message string    `json:"message,omitempty"` // the latest message that it refused
	Count   int64     `json:"count"`             // how often
	First   time.Time `json:"first"`             // the first time
	Last    time.Time `json:"last"`              // the latest time
}

type unknownQuery struct {
	Provider *string `q:"provider" help:"of this <provider> alone; empty: of sites without one"`
}

// UnknownReplies gives the replies that no rule knows, of a provider or, with nil, of all.
func (c *Client) UnknownReplies(ctx context.Context, provider *string) (UnknownList, error) {
	return opUnknownReplies.call(ctx, c, unknownQuery{provider})
}
