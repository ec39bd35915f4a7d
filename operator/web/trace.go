package web

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"example.org/mta/operator/api"
)

// tracePage is the form of a trace, and the place for its lines.
type tracePage struct {
	Inputs []input
	Stream string // URL, "" when nothing is asked for yet
}

var traceParams = paramsOf(new(api.TraceQuery), "watch")

func trace(r *request) (any, error) {
	q, err := r.traceQuery()
	if err != nil {
		return nil, err
	}
	var apart []string
	if r.role() < Admin {
		apart = []string{"content"}
	}
	p := tracePage{Inputs: inputs(&q, apart...)}
	if len(r.values) > 0 {
		p.Stream = cmp.Or(filterURL(r.sameOf(traceParams, "watch")), "?")
	}
	return p, nil
}

// traceQuery reads which conversations are watched. The content of messages is for admins.
func (r *request) traceQuery() (q api.TraceQuery, err error) {
	if err := r.read(&q); err != nil {
		return q, err
	}
	clients := q.Clients || q.Listener != "" || q.Client.IsValid()
	switch {
	case clients && (q.Site != "" || q.Source != "" || q.Recipient != "" || q.Content):
		return q, api.Invalid("",
			"site, source, recipient and content are for connections to hosts, not for sessions of clients")
	case q.Content && r.role() < Admin:
		return q, &api.Error{Status: http.StatusForbidden, Message: "what messages say is for admins",
			Hint: "watch without the content"}
	}
	return q, nil
}

// followTrace sends conversations as they are said.
func (s *Server) followTrace(w http.ResponseWriter, r *request) error {
	q, err := r.traceQuery()
	if err != nil {
		return err
	}
	q.Clients = q.Clients || q.Listener != "" || q.Client.IsValid()
	return s.stream(w, r, func(ctx context.Context, send func([]byte) error) error {
		return r.relay.Trace(ctx, q, nil, func(l api.TraceLine) error {
			l.Text = strings.TrimRight(l.Text, "\r\n")
			html, err := s.render(r, "trace.html", "line", l)
			if err != nil {
				return err
			}
			return send(html)
		})
	})
}
