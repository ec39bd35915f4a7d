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
