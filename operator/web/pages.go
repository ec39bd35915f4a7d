package web

import (
	"net/http"
	"net/netip"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/api"
)

// term is a word and its meaning.
type term struct{ Name, Meaning string }

// words are those that pages use, as the manual does.
var words = []term{
	{"message, recipient",
		"A message is accepted once. Each of its recipients has a state, and leaves the queue when it is delivered, " +
			"bounced, expired or removed."},
	{"tenant, campaign", "The customer or application whose mail it is; a finer label that the mail itself has."},
	{"site, host, provider",
		"The hosts that serve a domain, with one budget; one address of a mail exchanger; several sites with one " +
			"budget."},
	{"source, pool", "A local address from which mail leaves; the sources that mail of some tenants may take."},
	{"suspend, resume",
		"Nothing is sent to a site or host for a time. Operators do it, and the relay itself on account of replies."},
	{"rule, pause",
		"Mail that fits is bounced, held, suspended (a pause), rerouted or slowed, until the rule is ended or for a " +
			"time; the stricter of two rules wins."},
	{"hold, release", "Recipients that fit a filter are not tried until they are released."},
	{"retry", "Recipients are tried now, whatever was the time of their next attempt."},
	{"bounce, remove", "Recipients are given up: with a report to the sender, or without."},
	{"warm-up", "A new source sends little on its first days and more on each that goes well, by the stages of its " +
		"plan."},
	{"suppression", "Addresses that no mail is sent to, for one tenant or for everybody."},
	{"class", "What a refusal is about, such as InvalidRecipient or RateLimited, whatever words a host uses."},
	{"dry run", "Each action is counted before it asks for a confirmation. If the count has changed when it is " +
		"confirmed, it asks again."},
}

func help(*request) (any, error) {
	return map[string]any{"Words": words, "States": envelope.States}, nil
}

// configurationPage is the configuration in force, and what a reload would change.
type configurationPage struct {
	File       string // "": the built-in defaults
	Text       string
	api.Reload        // what would change
	Fault      string // why the file can't be loaded
}

func configuration(r *request) (any, error) {
	s, err := api.OpStatus.Call(r.ctx, r.relay, api.None{})
	if err != nil {
		return nil, err
	}
	p := configurationPage{File: s.Config}
	if p.Text, err = r.relay.EffectiveConfig(r.ctx); err != nil {
		return nil, err
	}
	if p.Reload, err = api.OpConfigChanges.Call(r.ctx, r.relay, api.None{}); err != nil {
		if relayGone(err) {
			return nil, err
		}
		p.Fault = err.Error()
	}
	return p, nil
}

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
		return s.url("/queue", "recipient", q, "order", string(api.NewestFirst))
	}
	return s.url("/sites", "q", q)
}
