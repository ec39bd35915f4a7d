package submitted

import (
	"context"
	"errors"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
	"example.org/mta/suppression"
)

// MostSuppressions is how many addresses a tenant may add to the list itself, by HTTP. Each takes 0.5 kB of the disk,
// with the second copy, and up to 1.6 kB with a long reason.
const MostSuppressions = 500_000

// Suppressions is the suppression list as tenants see it over HTTP.
type Suppressions struct {
	Own      *suppression.List
	Searches *fair.Turns // which the list is looked through in
}

// List implements http.Suppressions.
func (t Suppressions) List(ctx context.Context, tenant, domain, after string,
	limit int) (page []http.Suppression, last string, more bool, err error) {
	turn, err := t.Searches.Begin(ctx, tenant)
	if err != nil {
		return nil, "", false, err
	}
	defer turn.End()
	found, key, more, err := t.Own.Page(ctx, suppression.Query{Tenant: &tenant, Domain: domain},
		suppression.Key{Tenant: tenant, Address: after}, limit)
	for _, e := range found {
		page = append(page, tenantSuppression(e))
	}
	return page, key.Address, more, err
}

// Match implements http.Suppressions.
func (t Suppressions) Match(tenant string, a envelope.Address) (http.Suppression, bool) {
	e, found := t.Own.Keeps(tenant, a)
	return tenantSuppression(e), found
}

func tenantSuppression(e suppression.Entry) http.Suppression {
	return http.Suppression{Address: e.Address, Reason: e.Reason, Source: string(e.Source), AddedAt: e.Added,
		ExpiresAt: e.Expires, Shared: e.Key.Tenant == ""}
}

// Add implements http.Suppressions.
func (t Suppressions) Add(ctx context.Context, tenant string,
	entries []request.Suppression) (http.SuppressionsAdded, error) {
	list := make([]suppression.Entry, len(entries))
	for i, e := range entries {
		list[i] = suppression.Entry{Key: suppression.KeyOf(tenant, e.Address), Reason: e.Reason,
			Source: suppression.Tenant, Expires: e.ExpiresAt}
	}
	done, err := t.Own.AddOwn(ctx, list)
	if errors.Is(err, suppression.ErrTooMany) {
		err = http.TooManySuppressions(MostSuppressions)
	}
	return http.SuppressionsAdded{Added: done.New, Changed: done.Changed, Unchanged: done.Unchanged}, err
}

// Remove implements http.Suppressions.
func (t Suppressions) Remove(ctx context.Context, tenant string, addresses []envelope.Address) (int, error) {
	list := make([]suppression.Key, len(addresses))
	for i, a := range addresses {
		list[i] = suppression.KeyOf(tenant, a)
	}
	return t.Own.Remove(ctx, list)
}
