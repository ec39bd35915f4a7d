package mta

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/fair"
	"example.org/mta/internal/faultlog"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/request"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// mostSuppressions is how many addresses a tenant may add to the list itself, by HTTP. Each takes 0.5 kB of the disk, with
// the second copy, and up to 1.6 kB with a long reason.
const mostSuppressions = 500_000

func (r *stores) openSuppression(cfg *config.Config, undo *undoer) error {
	store, err := boltstore.Open(filepath.Join(cfg.DataDir, "suppression.db"), r.data.Number(boltstore.Format), r.now, r.log)
	if err != nil {
		return err
	}
	list, err := suppression.Open(context.Background(), suppression.Config{Store: store, MostOwn: mostSuppressions, Now: r.now, Log: r.log})
	if err != nil {
		store.Close()
		return err
	}
	r.suppression, r.listed = list, store
	undo.add(func() { list.Close() })
	aside, err := suppression.Open(context.Background(), suppression.Config{Store: store.Pending(), Now: r.now, Log: r.log})
	if err != nil {
		return err
	}
	r.feeder, err = suppression.NewFeeder(context.Background(), suppression.FeederConfig{
		List: list, Pending: aside, Counters: store.Counters(), Providers: store.Providers(), Complained: r.warm.Complained,
		Settings: func() *suppression.FeedSettings { return r.policy.Load().Feed }, Now: r.now, Log: r.log,
	})
	if err != nil {
		aside.Close()
		return fmt.Errorf("opening suppression list: %w", err)
	}
	undo.add(func() { r.feeder.Close() })
	return nil
}

// flood returns which providers are doubted and how many addresses are set aside for that, "" when there are none.
func (r *stores) flood() string {
	pending := r.feeder.Stats().Pending
	var all []string
	for _, d := range r.feeder.Doubted() {
		when := "since " + d.Since.UTC().Format("2006-01-02 15:04 UTC")
		if !d.Until.IsZero() {
			when = fmt.Sprintf("from %s to %s", d.Since.UTC().Format("2006-01-02 15:04"), d.Until.UTC().Format("2006-01-02 15:04 UTC"))
		}
		all = append(all, fmt.Sprintf("%s called %d of %d recipients unknown %s, usually %.1f %%", d.Provider, d.Unknown, d.Known+d.Unknown, when, 100*d.Usual))
	}
	if pending > 0 {
		all = append(all, fmt.Sprintf("addresses set aside until you accept or drop them: %d ('mta suppress pending')", pending))
	}
	return faultlog.Few(all)
}

// suppressed answers submission: whether a recipient is refused at RCPT, and why.
func (r *mailIn) suppressed(tenant string, a envelope.Address) (why string, yes bool) {
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
type tenantSuppressions struct {
	list     *suppression.List
	searches *fair.Turns // which the list is looked through in
}

// List implements http.Suppressions.
func (t tenantSuppressions) List(ctx context.Context, tenant, domain, after string, limit int) (page []http.Suppression, last string, more bool, err error) {
	turn, err := t.searches.Begin(ctx, tenant)
	if err != nil {
		return nil, "", false, err
	}
	defer turn.End()
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
	done, err := t.list.AddOwn(ctx, list)
	if errors.Is(err, suppression.ErrTooMany) {
		err = http.TooManySuppressions(mostSuppressions)
	}
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
