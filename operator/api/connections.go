package api

import (
	"context"
	"net/netip"
	"time"
)

// OpenConnections is what the server asks about the connections of the relay, with clients and with remote hosts.
// Errors are of type *Error where the operator can do something about them.
type OpenConnections interface {
	// Connections gives a page of those that fit, incoming ones first and the oldest first among each.
	Connections(context.Context, ConnectionFilter) (ConnectionList, error)
	// CloseConnections ends those that are named without loss of mail, see CloseConnections.
	CloseConnections(context.Context, CloseConnections) (ClosedConnections, error)
}

// Direction is who has opened a connection.
type Direction string

// The directions.
const (
	Incoming Direction = "in"  // a client
	Outgoing Direction = "out" // this relay
)

// Directions are both of them.
var Directions = []Direction{Incoming, Outgoing}

// ConnectionState is what a connection does.
type ConnectionState string

// The states of a connection.
const (
	ConnectionOpening ConnectionState = "opening" // it isn't ready for mail yet
	ConnectionBusy    ConnectionState = "busy"    // it has a transaction or a request
	ConnectionIdle    ConnectionState = "idle"    // it waits for one
	ConnectionClosing ConnectionState = "closing" // it takes no more
)

// ConnectionStates are all of them.
var ConnectionStates = []ConnectionState{ConnectionOpening, ConnectionBusy, ConnectionIdle, ConnectionClosing}

// ConnectionFilter says which connections are meant, and which page of them. All that is set must fit; the zero
// ConnectionFilter fits all.
type ConnectionFilter struct {
	Direction Direction       `q:"direction" options:"incoming,outgoing" help:"only those of clients (<in>) or to remote hosts (out)"`
	State     ConnectionState `q:"state" help:"connections in this <state>: opening, busy, idle or closing"`
	Site      string          `q:"site" help:"outgoing ones for this <site>"`
	Source    string          `q:"source" help:"outgoing ones from this <source>"`
	Listener  string          `q:"listener" help:"incoming ones to this <listener> or api block"`
	Tenant    string          `q:"tenant" help:"incoming ones of this <tenant>, outgoing ones that were opened for its mail"`
	Peer      netip.Prefix    `q:"peer" hint:"192.0.2.0/24" help:"those whose other end has this <address>, or one in a network such as 192.0.2.0/24"`
	Paging
}

// Connection is one that is open, or being opened.
type Connection struct {
	ID        string    `json:"id"`        // the session's, as in logs and accounting records
	Direction Direction `json:"direction"` // who has opened it: a client (in) or this relay (out)
	// opening: not ready for mail yet; busy: it has a transaction or a request; idle: it waits for one; closing: it
	// takes no more
	State    ConnectionState `json:"state"`
	Protocol string          `json:"protocol" words:"SMTP,HTTP"` // SMTP or HTTP
	Peer     string          `json:"peer"`                       // "ip:port" of the other end
	// the name of the exchanger; what a client calls itself
	PeerName string `json:"peer_name,omitempty"`
	// on whose behalf the client submits; for whose mail an outgoing connection was opened
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"` // who has logged in

	Listener string `json:"listener,omitempty"` // of an incoming one: its listener or api block
	Site     string `json:"site,omitempty"`     // of an outgoing one: the site for which it was opened
	Provider string `json:"provider,omitempty"` // of that site
	Source   string `json:"source,omitempty"`   // of an outgoing one
	Backlog  int    `json:"backlog,omitempty"`  // of an outgoing one: transactions that it has
	// of an outgoing one: how far commands run ahead: lock-step, pipelining, chunking
	Mode string `json:"mode,omitempty"`
	// of an outgoing one: transactions that make use of the wire at a time
	Window int `json:"window,omitempty"`

	TLS       *HostTLS  `json:"tls,omitempty"`        // left out for clear text
	Since     time.Time `json:"since"`                // when it was begun
	IdleSince time.Time `json:"idle_since,omitzero"`  // since when it waits; left out while it is busy
	Messages  int       `json:"messages"`             // transactions or requests so far
	LastReply *Reply    `json:"last_reply,omitempty"` // of the host; or to the client
}

// ConnectionList is a page of connections.
type ConnectionList struct {
	Connections []Connection `json:"connections"`    // incoming ones first, the oldest of each direction first
	Total       int          `json:"total"`          // how many fit, on all pages
	Next        string       `json:"next,omitempty"` // cursor of the next page; left out on the last
}

// CloseConnections says which connections end. A client is answered 421 before its next command, and a message that is
// coming in is taken first. An outgoing connection finishes the transactions that have begun; the others wait
// for another one. A connection that is being opened is given up.
type CloseConnections struct {
	Intent
	IDs []string `json:"ids" q:"id"` // the ids of connections
}

// ClosedConnections is what a CloseConnections did, or with DryRun would do.
type ClosedConnections struct {
	Effect
	Connections int `json:"connections"`    // that end
	Busy        int `json:"busy,omitempty"` // of those, the ones that end when what they have begun is finished
}

// Check refuses a CloseConnections of nothing.
func (c *CloseConnections) Check() error { return someNamed("close", "connection", c.IDs) }
