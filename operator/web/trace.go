package web

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"example.org/mta/operator/api"
)

// tracePage is the form of a trace, and the place for its lines.
type tracePage struct {
	Site, Source, Tenant, Recipient, Listener, Client string
	Clients, Content                                  bool
	Stream                                            string // URL, "" when nothing is asked for yet
}

var traceParams = []string{"site", "source", "tenant", "recipient", "clients", "listener", "client", "content", "watch"}

func trace(r *request) (any, error) {
	if _, err := r.traceQuery(); err != nil {
		return nil, err
	}
	p := tracePage{
		Site: r.get("site"), Source: r.get("source"), Tenant: r.get("tenant"), Recipient: r.get("recipient"), Listener: r.get("listener"), Client: r.get("client"),
		Clients: r.flag("clients"), Content: r.flag("content"),
	}
	if len(r.values) > 0 {
		p.Stream = filterURL(r.sameOf(slices.DeleteFunc(slices.Clone(traceParams), func(name string) bool { return name == "watch" })))
		if p.Stream == "" {
			p.Stream = "?"
		}
	}
	return p, nil
}

// traceQuery reads which conversations are watched. What messages say is for admins.
func (r *request) traceQuery() (api.TraceQuery, error) {
	q := api.TraceQuery{
		Site: r.get("site"), Source: r.get("source"), Tenant: r.get("tenant"), Recipient: r.get("recipient"), Listener: r.get("listener"),
		Clients: r.flag("clients"), Content: r.flag("content"),
	}
	if text := r.get("client"); text != "" {
		network, err := api.ParseNetwork(text)
		if err != nil {
			return q, api.Invalid("", "client: %v", err)
		}
		q.Client = network
	}
	q.Clients = q.Clients || q.Listener != "" || q.Client.IsValid()
	switch {
	case q.Clients && (q.Site != "" || q.Source != "" || q.Recipient != "" || q.Content):
		return q, api.Invalid("", "site, source, recipient and content are for connections to hosts, not for sessions of clients")
	case q.Content && r.role() < Admin:
		return q, &api.Error{Status: http.StatusForbidden, Message: "what messages say is for admins", Hint: "watch without the content"}
	}
	return q, nil
}

// followTrace sends conversations as they are said.
func (s *Server) followTrace(w http.ResponseWriter, r *request) error {
	q, err := r.traceQuery()
	if err != nil {
		return err
	}
	return s.stream(w, r, func(ctx context.Context, send func([]byte) error) error {
		return r.relay.Trace(ctx, q, nil, func(l api.TraceLine) error {
			html, err := s.render(r.role(), "trace.html", "line", traceLine{l, strings.TrimRight(l.Text, "\r\n")})
			if err != nil {
				return err
			}
			return send(html)
		})
	})
}

// traceLine is a line of a conversation without its end.
type traceLine struct {
	api.TraceLine
	Said string
}

// With is the other side of the conversation.
func (l traceLine) With() string {
	if l.Client != "" {
		return "client " + l.Client + " at " + l.Listener
	}
	return l.Host
}

// From is who says it, in a word.
func (l traceLine) From() string {
	switch {
	case l.Direction == ">":
		return "relay"
	case l.Client != "":
		return "client"
	}
	return "host"
}
