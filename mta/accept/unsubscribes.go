package accept

import (
	"context"
	"errors"
	"log/slog"

	"example.org/mta/internal/envelope"
	"example.org/mta/suppression"
)

// Unsubscribes are the links by which recipients unsubscribe: they put them on the suppression list.
type Unsubscribes struct {
	Links  *suppression.Links
	List   *suppression.List
	Events interface {
		Unsubscribed(s *suppression.Subscription, request string)
	}
	Log *slog.Logger
}

// Subscription implements http.Unsubscribes.
func (u *Unsubscribes) Subscription(token string) (tenant string, a envelope.Address, ok bool) {
	s, ok := u.Links.Read(token)
	return s.Tenant, s.Address, ok
}

// Unsubscribe implements http.Unsubscribes. It goes on when the client leaves: the recipient has asked for it.
func (u *Unsubscribes) Unsubscribe(ctx context.Context, token, request string) error {
	s, ok := u.Links.Read(token)
	if !ok {
		return errors.New("the token is not valid")
	}
	fresh, err := u.End(context.WithoutCancel(ctx), &s, request)
	if err == nil && fresh {
		u.Events.Unsubscribed(&s, request)
	}
	return err
}

// End puts the recipient on the suppression list for good. It reports false when the recipient was there. An entry that
// the tenant added does not count, since the tenant can change it.
func (u *Unsubscribes) End(ctx context.Context, s *suppression.Subscription, request string) (fresh bool, err error) {
	key := suppression.KeyOf(s.Tenant, s.Address)
	there, err := u.List.Get(ctx, []suppression.Key{key})
	if err != nil {
		return false, err
	}
	if len(there) > 0 && there[0].Expires.IsZero() && !there[0].Source.ByHost() &&
		there[0].Source != suppression.Tenant {
		return false, nil
	}
	reason := "the recipient unsubscribed"
	if s.Campaign != "" {
		reason += " from " + s.Campaign
	}
	entry := suppression.Entry{Key: key, Reason: reason, Source: suppression.Unsubscribe}
	if _, err := u.List.Add(ctx, []suppression.Entry{entry}); err != nil {
		return false, err
	}
	u.Log.Info("recipient unsubscribed", "tenant", s.Tenant, "recipient", s.Address, "campaign", s.Campaign,
		"request", request)
	return true, nil
}
