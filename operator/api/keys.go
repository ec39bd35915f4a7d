package api

import (
	"context"
	"net/http"
	"time"
)

// APIKeys is what the server asks of the keys with which tenants submit by HTTP. Errors are of type *Error where
// the operator can do something about them.
type APIKeys interface {
	APIKeys(context.Context) (APIKeyList, error)
	AddAPIKey(context.Context, AddAPIKey) (NewAPIKey, error)
	RotateAPIKey(context.Context, RotateAPIKey) (NewAPIKey, error)
	RemoveAPIKeys(context.Context, RemoveAPIKeys) (APIKeyList, error)
}

// APIKey is a key without its secret.
type APIKey struct {
	ID      string    `json:"id"`               // the first 12 hexadecimal digits of the SHA-256 of the secret
	Tenant  string    `json:"tenant"`           // whose requests have it
	Name    string    `json:"name"`             // unique among the tenant's keys that are not replaced
	Scopes  []string  `json:"scopes"`           // what it allows: send, read, cancel, events, suppress
	From    []string  `json:"from"`             // the networks where it may be used; empty: anywhere
	Created time.Time `json:"created"`          // to the second
	Expires time.Time `json:"expires,omitzero"` // when it ends; absent: never
	// when a newer key took its name; absent: it is the current one
	Replaced time.Time `json:"replaced,omitzero"`
	LastUsed time.Time `json:"last_used,omitzero"`                   // to a minute or two; absent: never
	State    string    `json:"state" words:"valid,replaced,expired"` // valid; replaced, and valid until it expires; expired
}

// APIKeyList is keys in the order of their file.
type APIKeyList struct {
	Keys []APIKey `json:"keys"` // in the order of their file
}

// AddAPIKey asks for a key.
type AddAPIKey struct {
	Intent
	Tenant string `json:"tenant"` // a tenant of the configuration
	Name   string `json:"name"`   // unique for the tenant
	// what it allows: send, read, cancel, events, suppress; absent: all of them
	Scopes  []string `json:"scopes,omitempty"`
	From    []string `json:"from,omitempty"`    // the networks where it may be used; absent: anywhere
	Expires Age      `json:"expires,omitempty"` // how long it is valid; 0: for ever
}

// RotateAPIKey asks for a key in the place of another.
type RotateAPIKey struct {
	Intent
	Tenant  string `json:"tenant,omitempty"`  // needed where several have a key of the name
	Name    string `json:"name"`              // of the key, or its id
	Overlap *Age   `json:"overlap,omitempty"` // how long both are valid; nil: a day
	Expires Age    `json:"expires,omitempty"` // how long the new one is valid; 0: as long as the old one was made for
}

// RemoveAPIKeys names keys.
type RemoveAPIKeys struct {
	Intent
	Tenant string   `json:"tenant,omitempty"` // needed where several have a key of a name
	Names  []string `json:"names"`            // names or ids
}

// RemovedAPIKeys is the keys that were removed.
type RemovedAPIKeys struct {
	Effect
	APIKeyList
}

// NewAPIKey is a key with its secret, which is in no other answer, in no file and in no log.
type NewAPIKey struct {
	Effect
	Key   string `json:"key"` // the key with its secret, which is in no other answer; "": it was a dry run
	Added APIKey `json:"added"`
	// Old is the key that a rotation replaced, as it is now. Nil: none, or it is gone.
	Old *APIKey `json:"old,omitempty"`
}

func (s *Server) removeAPIKeys(r *http.Request, a RemoveAPIKeys) (RemovedAPIKeys, error) {
	if len(a.Names) == 0 {
		return RemovedAPIKeys{}, Invalid("", "names: no key is named")
	}
	l, err := s.config.APIKeys.RemoveAPIKeys(r.Context(), a)
	return RemovedAPIKeys{Effect{Count: len(l.Keys)}, l}, err
}

// APIKeys lists the keys.
func (c *Client) APIKeys(ctx context.Context) (APIKeyList, error) {
	return opAPIKeys.call(ctx, c, none{})
}

// AddAPIKey adds a key.
func (c *Client) AddAPIKey(ctx context.Context, a AddAPIKey) (NewAPIKey, error) {
	return opAddAPIKey.call(ctx, c, a)
}

// RotateAPIKey replaces a key.
func (c *Client) RotateAPIKey(ctx context.Context, a RotateAPIKey) (NewAPIKey, error) {
	return opRotateAPIKey.call(ctx, c, a)
}

// RemoveAPIKeys removes keys, and gives those that it removed.
func (c *Client) RemoveAPIKeys(ctx context.Context, a RemoveAPIKeys) (RemovedAPIKeys, error) {
	return opRemoveAPIKeys.call(ctx, c, a)
}
