package mta

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/mta/accept"
	"example.org/mta/mta/config"
	"example.org/mta/suppression"
)

// openUnsubscribe reads the secret of unsubscribe links. It is there even while no tenant has any: links in
// mail that was sent work on.
func (r *mailIn) openUnsubscribe(cfg *config.Config, _ *undoer) error {
	secret, err := r.data.Secret("unsubscribe-secret", "the links in mail that was sent no longer work").Octets()
	if err != nil {
		return err
	}
	links, err := suppression.NewLinks(secret)
	r.unsubscribes = accept.Unsubscribes{Links: links, List: r.suppression, Events: r.events, Log: r.log}
	return err
}

// unsubscribeLink gives the link for a recipient of a tenant's message, "" where the tenant has none. A
// postmaster gets none, since mail to it is never suppressed.
func (r *mailIn) unsubscribeLink(tenant, campaign string, a envelope.Address) string {
	t := r.policy.Load().Config.Tenant(tenant)
	if t == nil || t.Unsubscribe == "" || suppression.Exempt(a) {
		return ""
	}
	return r.unsubscribes.Links.URL(t.Unsubscribe,
		&suppression.Subscription{Tenant: tenant, Address: a, Campaign: campaign, Sent: r.now()})
}
