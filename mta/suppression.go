package mta

import (
	"context"
	"path/filepath"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

func (r *Relay) openSuppression(cfg *config.Config, undo *undoer) error {
	store, err := boltstore.Open(filepath.Join(cfg.DataDir, "suppression.db"))
	if err != nil {
		return err
	}
	list, err := suppression.Open(context.Background(), suppression.Config{Store: store, Now: r.now, Log: r.log})
	if err != nil {
		store.Close()
		return err
	}
	r.suppression = list
	undo.add(func() { list.Close() })
	return nil
}

// suppressed answers submission: whether a recipient is refused at RCPT, and why.
func (r *Relay) suppressed(tenant string, a envelope.Address) (why string, yes bool) {
	if r.policy.Load().Config.Suppression.Mode != "refuse" {
		return "", false
	}
	e, yes := r.suppression.Keeps(tenant, a)
	if !yes {
		return "", false
	}
	return e.String(), true
}

// tenantSuppressions is the suppression list as tenants see it over HTTP.
type tenantSuppressions struct{ list *suppression.List }

// List implements http.Suppressions.
func (t tenantSuppressions) List(ctx context.Context, tenant, domain, after string, limit int) (page []http.Suppression, last string, more bool, err error) {
	found, key, more, err := t.list.Page(ctx, suppression.Query{Tenant: &tenant, Domain: domain}, suppression.Key{Tenant: tenant, Address: after}, limit)
	for _, e := range found {
		page = append(page, tenantSuppression(e))
	}
	return page, key.Address, more, err
}

// Match implements http.Suppressions.
func (t tenantSuppressions) Match(tenant string, a envelope.Address) (http.Suppression, bool) {
	e, found := t.list.Keeps(tenant, a)
	return tenantSuppression(e), found
}

func tenantSuppression(e suppression.Entry) http.Suppression {
	return http.Suppression{Address: e.Address, Reason: e.Reason, Source: string(e.Source), AddedAt: e.Added, ExpiresAt: e.Expires, Shared: e.Key.Tenant == ""}
}

// Add implements http.Suppressions.
func (t tenantSuppressions) Add(ctx context.Context, tenant string, entries []request.Suppression) (http.SuppressionsAdded, error) {
	list := make([]suppression.Entry, len(entries))
	for i, e := range entries {
		list[i] = suppression.Entry{Key: suppression.KeyOf(tenant, e.Address), Reason: e.Reason, Source: suppression.Tenant, Expires: e.ExpiresAt}
	}
	done, err := t.list.Add(ctx, list)
	return http.SuppressionsAdded{Added: done.New, Changed: done.Changed, Unchanged: done.Unchanged}, err
}

// Remove implements http.Suppressions.
func (t tenantSuppressions) Remove(ctx context.Context, tenant string, addresses []envelope.Address) (int, error) {
	list := make([]suppression.Key, len(addresses))
	for i, a := range addresses {
		list[i] = suppression.KeyOf(tenant, a)
	}
	return t.list.Remove(ctx, list)
}
