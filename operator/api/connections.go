package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
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

// Tracer is what the server asks of those who watch SMTP conversations.
type Tracer interface {
	// Trace calls each with what is said, as it is said, until ctx ends; it returns the error of
	// each when there is one. flush is called once when the watch has begun, and whenever there is
	// nothing more for the moment. What each can't keep up with is left out and counted in Lost.
	Trace(ctx context.Context, q TraceQuery, each func(TraceLine) error, flush func()) error
}

// TraceQuery says which conversations are watched. All that is set must fit. Site and source choose
// connections, whole from now on; tenant and recipient choose transactions, without what else is
// said on their connections.
type TraceQuery struct {
	Site      string `q:"site" help:"connections opened for this <site>"`
	Source    string `q:"source" help:"connections from this <source>"`
	Tenant    string `q:"tenant" help:"messages of this <tenant>"`
	Recipient string `q:"recipient" hint:"address or @domain" help:"transactions with this recipient's <address>, or one at @domain"`
	Content   bool   `q:"content" label:"Content of messages" help:"show the content of messages"`

	// With Clients only Tenant counts of what is above.
	Clients  bool         `q:"clients" label:"Sessions of clients" help:"sessions of clients instead of connections to hosts"`
	Listener string       `q:"listener" help:"sessions of clients of this <listener>"`
	Client   netip.Prefix `q:"client" hint:"192.0.2.0/24" help:"sessions of clients from this <address> or network"`
}

// TraceLine is one line of a conversation, or a piece of a message.
type TraceLine struct {
	Time    time.Time `json:"time"`              // when it was said
	Session string    `json:"session,omitempty"` // of the connection, as in the accounting log
	Host    string    `json:"host,omitempty"`    // "mx.example[192.0.2.1]:25"
	Site    string    `json:"site,omitempty"`    // for which the connection was opened
	Source  string    `json:"source,omitempty"`  // whose connection
	// whose session, as "192.0.2.1:40000"; then there are no host, site and source
	Client    string `json:"client,omitempty"`
	Listener  string `json:"listener,omitempty"`  // that the client came to
	Message   string `json:"message,omitempty"`   // id, when the line belongs to a transaction
	Tenant    string `json:"tenant,omitempty"`    // of the message
	Direction string `json:"direction,omitempty"` // ">" what this relay says, "<" what the other side does
	Text      string `json:"text,omitempty"`      // credentials are masked; invalid UTF-8 is replaced
	Content   bool   `json:"content,omitempty"`   // Text is a piece of the message, line ends included
	Lost      int    `json:"lost,omitempty"`      // so many lines before this one were left out
}

// maxTraceLine bounds a line of the stream: a piece of content with all its characters escaped.
const maxTraceLine = 4 << 20

func (s *Server) trace(w http.ResponseWriter, r *http.Request, t TraceQuery) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.streams, cancel)()
	out := &recordWriter{w: w}
	err := s.config.Tracer.Trace(ctx, t, func(l TraceLine) error {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		return out.write(text)
	}, out.flush)
	if err != nil && ctx.Err() == nil && !out.begun {
		return err
	}
	out.begin()
	return nil
}

// Trace calls each with what is said in conversations that fit. It returns nil when the relay
// stops, and the error of ctx when that ends. begun, if not nil, is called when the watch has
// begun.
func (c *Client) Trace(ctx context.Context, q TraceQuery, begun func(), each func(TraceLine) error) error {
	answer, err := OpTrace.open(ctx, c, q)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if begun != nil {
		begun()
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, maxTraceLine)
	for lines.Scan() {
		var l TraceLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("reading the trace: %w", err)
		}
		if err := each(l); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("reading the trace: %w", err)
	}
	return nil
}
