package web

import (
	"net/http"
	"net/netip"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// search goes to the page of what somebody has typed: an id of a message, an address, a domain, a site, an
// IP address, a session.
func (s *Server) search(w http.ResponseWriter, r *request) error {
	q := strings.TrimSpace(r.get("q"))
	if q == "" {
		return api.Invalid("", "type an id, an address, a domain, a site, an IP address or a session")
	}
	if len(q) > 320 {
		return api.Invalid("", "nothing that can be looked for is longer than 320 octets")
	}
	http.Redirect(w, r.http, s.found(q), http.StatusSeeOther)
	return nil
}

func (s *Server) found(q string) string {
	if id, err := envelope.ParseID(q); err == nil {
		return s.url("/messages/" + id.String())
	}
	if _, err := netip.ParseAddr(strings.Trim(q, "[]")); err == nil {
		return s.url("/hosts", "name", strings.Trim(q, "[]"))
	}
	if strings.Contains(q, "@") {
		return s.url("/queue", "recipient", q)
	}
	return s.url("/sites", "q", q)
}
