package mta

import (
	"context"
	"fmt"

	"example.org/mta/internal/envelope"
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
	r.links, err = suppression.NewLinks(secret)
	return err
}

// unsubscribeLink gives the link for a recipient of a tenant's message, "" where the tenant has none. A
// postmaster gets none, since mail to it is never suppressed.
func (r *mailIn) unsubscribeLink(tenant, campaign string, a envelope.Address) string {
	t := r.policy.Load().Config.Tenant(tenant)
	if t == nil || t.Unsubscribe == "" || suppression.Exempt(a) {
		return ""
	}
	return r.links.URL(t.Unsubscribe, &suppression.Subscription{Tenant: tenant, Address: a, Campaign: campaign, Sent: r.now()})
}

// unsubscribed are the links as the api blocks' servers know them.
type unsubscribed struct{ r *mailIn }

// Subscription implements http.Unsubscribes.
func (u unsubscribed) Subscription(token string) (tenant string, a envelope.Address, ok bool) {
	s, ok := u.r.links.Read(token)
	return s.Tenant, s.Address, ok
}

// Unsubscribe implements http.Unsubscribes. It goes on when the client leaves: the recipient has asked for it.
func (u unsubscribed) Unsubscribe(ctx context.Context, token, request string) error {
	s, ok := u.r.links.Read(token)
	if !ok {
		return fmt.Errorf("the token is not valid")
	}
	fresh, err := u.r.endSubscription(context.WithoutCancel(ctx), &s, request)
	if err == nil && fresh {
		u.r.events.Unsubscribed(&s, request)
	}
	return err
}

// endSubscription puts the recipient on the suppression list for good. It reports false when the recipient was there. An
// entry that the tenant added does not count, since the tenant can change it.
func (r *mailIn) endSubscription(ctx context.Context, s *suppression.Subscription, request string) (fresh bool, err error) {
	key := suppression.KeyOf(s.Tenant, s.Address)
	there, err := r.suppression.Get(ctx, []suppression.Key{key})
	if err != nil {
		return false, err
	}
	if len(there) > 0 && there[0].Expires.IsZero() && !there[0].Source.ByHost() && there[0].Source != suppression.Tenant {
		return false, nil
	}
	reason := "the recipient unsubscribed"
	if s.Campaign != "" {
		reason += " from " + s.Campaign
	}
	if _, err := r.suppression.Add(ctx, []suppression.Entry{{Key: key, Reason: reason, Source: suppression.Unsubscribe}}); err != nil {
		return false, err
	}
	r.log.Info("recipient unsubscribed", "tenant", s.Tenant, "recipient", s.Address, "campaign", s.Campaign, "request", request)
	return true, nil
}
