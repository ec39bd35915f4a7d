package kept

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/operator/api"
	"example.org/mta/suppression"
)

// Suppressions answers about the suppression list, and changes it; it implements api.Suppressions.
type Suppressions struct {
	List   *suppression.List
	Feeder *suppression.Feeder // of the list
	Config func() *config.Config
	Now    func() time.Time
	// Behind waits for the other nodes of a cluster, and returns which don't know of a change yet; "": all do.
	Behind func(context.Context) string
}

// awaited is how many entries a request adds at most whose end is awaited at the other nodes: those of an import come
// one after the other.
const awaited = 100

// changed is the effect of a change, when the other nodes know of it.
func (s Suppressions) changed(ctx context.Context, count int, dry bool, err error) (api.Effect, error) {
	done := api.Effect{Count: count}
	if err == nil && !dry && count > 0 {
		done.Behind = s.Behind(ctx)
	}
	return done, err
}

func (s Suppressions) Suppressions(ctx context.Context, q api.SuppressionQuery) (l api.SuppressionList, err error) {
	l.Suppressions, l.Next, err = pageOf(ctx, s.List, &q)
	return l, err
}

// query puts a filter into the list's words.
func query(f *api.SuppressionFilter) (suppression.Query, error) {
	q := suppression.Query{Tenant: f.Tenant, Source: suppression.Source(f.Source), Provider: f.Provider, Since: f.Since}
	if f.Domain != "" {
		domain, err := envelope.ToASCII(f.Domain)
		if err != nil {
			return q, api.Invalid("", "domain: %v", err)
		}
		q.Domain = domain
	}
	return q, nil
}

// pageOf gives a page of a list, and the cursor of the next one.
func pageOf(
	ctx context.Context, list *suppression.List, of *api.SuppressionQuery,
) (page []api.Suppression, next string, err error) {
	q, err := query(&of.SuppressionFilter)
	if err != nil {
		return nil, "", err
	}
	from, err := parseCursor(of.After)
	if err != nil {
		return nil, "", err
	}
	found, last, more, err := list.Page(ctx, q, from, of.Limit)
	if err != nil {
		return nil, "", err
	}
	if more {
		next = cursor(last)
	}
	return controlSuppressions(found), next, nil
}

// cursor writes a key so that it can be read again, whatever the tenant is called.
func cursor(k suppression.Key) string { return url.QueryEscape(k.Tenant) + ":" + k.Address }

func parseCursor(text string) (suppression.Key, error) {
	if text == "" {
		return suppression.Key{}, nil
	}
	escaped, address, ok := strings.Cut(text, ":")
	tenant, err := url.QueryUnescape(escaped)
	if !ok || err != nil {
		return suppression.Key{},
			api.Invalid("give --after what the page before ended with", "%q is not a valid cursor", text)
	}
	return suppression.Key{Tenant: tenant, Address: address}, nil
}

func controlSuppressions(entries []suppression.Entry) []api.Suppression {
	out := make([]api.Suppression, len(entries))
	for i, e := range entries {
		out[i] = api.Suppression{
			Address: e.Address, Tenant: e.Tenant, Reason: e.Reason,
			Source: api.SuppressionSource(e.Source), Class: e.Class, Provider: e.Provider, Added: e.Added,
			Expires: e.Expires,
		}
	}
	return out
}

func (s Suppressions) CheckSuppressed(ctx context.Context, a api.SuppressedAddresses) (api.SuppressionList, error) {
	if a.Tenant == nil {
		keys, err := s.keys(ctx, a)
		if err != nil {
			return api.SuppressionList{}, err
		}
		found, err := s.List.Get(ctx, keys)
		return api.SuppressionList{Suppressions: controlSuppressions(found)}, err
	}
	var found []suppression.Entry
	for _, text := range a.Addresses {
		if e, ok := s.List.Match(*a.Tenant, envelope.Address(text)); ok {
			found = append(found, e)
		}
	}
	return api.SuppressionList{Suppressions: controlSuppressions(found)}, nil
}

// keys gives the keys of addresses: of one tenant, or of all that have entries.
func (s Suppressions) keys(ctx context.Context, a api.SuppressedAddresses) (keys []suppression.Key, err error) {
	tenants := []string{""}
	if a.Tenant != nil {
		tenants[0] = *a.Tenant
	} else if tenants, err = s.List.Tenants(ctx); err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		for _, text := range a.Addresses {
			keys = append(keys, suppression.KeyOf(tenant, envelope.Address(text)))
		}
	}
	return keys, nil
}

func (s Suppressions) Suppress(ctx context.Context, c api.Suppress) (api.Suppressed, error) {
	entries := make([]suppression.Entry, len(c.Suppressions))
	for i, e := range c.Suppressions {
		if !e.Expires.IsZero() && !e.Expires.After(s.Now()) {
			expires := e.Expires.Format(time.RFC3339)
			return api.Suppressed{}, api.Invalid("", "%s: expires at %s, which has passed", e.Address, expires)
		} else if max(e.Expires.UTC().Year(), e.Added.UTC().Year()) > 9999 { // no list could show it, see RFC 3339
			return api.Suppressed{}, api.Invalid("", "%s: a time is after the year 9999 in UTC", e.Address)
		}
		entries[i] = suppression.Entry{
			Key: suppression.KeyOf(e.Tenant, envelope.Address(e.Address)), Reason: cmp.Or(e.Reason, api.ReasonOf(ctx)),
			Source: suppression.Source(e.Source), Class: e.Class, Provider: e.Provider, Added: e.Added,
			Expires: e.Expires,
		}
	}
	add := s.List.Add
	if c.DryRun {
		add = s.List.Preview
	}
	done, err := add(ctx, entries)
	effect, err := s.changed(ctx, done.New+done.Changed, c.DryRun || len(entries) > awaited, err)
	return api.Suppressed{
		Effect: effect, Added: done.New, Changed: done.Changed,
		Unchanged: done.Unchanged, UnknownTenants: s.unknownTenants(entries),
	}, err
}

// unknownTenants gives those of entries that are not in the configuration. That is not an error: a list
// may be read before the tenant is written. But it may be a slip of the pen, too.
func (s Suppressions) unknownTenants(entries []suppression.Entry) (names []string) {
	cfg := s.Config()
	for _, e := range entries {
		if e.Tenant != "" && cfg.Tenant(e.Tenant) == nil && !slices.Contains(names, e.Tenant) {
			names = append(names, e.Tenant)
		}
	}
	return names
}

func (s Suppressions) Unsuppress(ctx context.Context, a api.Unsuppress) (api.Unsuppressed, error) {
	keys, err := s.keys(ctx, a.SuppressedAddresses)
	if err != nil {
		return api.Unsuppressed{}, err
	}
	if a.DryRun {
		found, err := s.List.Get(ctx, keys)
		return s.unsuppressed(ctx, len(found), true, err)
	}
	n, err := s.List.Remove(ctx, keys)
	return s.unsuppressed(ctx, n, false, err)
}

func (s Suppressions) unsuppressed(ctx context.Context, n int, dry bool, err error) (api.Unsuppressed, error) {
	effect, err := s.changed(ctx, n, dry, err)
	return api.Unsuppressed{Effect: effect, Removed: n}, err
}

func (s Suppressions) UnsuppressMatching(ctx context.Context, sel api.SuppressionSelection) (api.Unsuppressed, error) {
	if sel.Since.IsZero() && sel.Source == "" && sel.Provider == "" && sel.Domain == "" {
		hint := "name since, source, provider or domain"
		return api.Unsuppressed{}, api.Invalid(hint, "that would remove all entries")
	}
	n, err := s.selected(ctx, sel, s.List,
		func(ctx context.Context, q suppression.Query, agree func(int) error) (int, error) {
			return s.List.Take(ctx, q, agree, nil)
		})
	return s.unsuppressed(ctx, n, sel.DryRun, err)
}

// selected does something to the entries of a list that are selected, or only counts them.
func (s Suppressions) selected(ctx context.Context, sel api.SuppressionSelection, list *suppression.List,
	do func(context.Context, suppression.Query, func(int) error) (int, error)) (int, error) {
	q, err := query(&sel.SuppressionFilter)
	if err != nil {
		return 0, err
	}
	if sel.DryRun {
		return list.Count(ctx, q)
	}
	var agree func(int) error
	if sel.Expect != nil {
		agree = func(n int) error { return api.Recount(n, *sel.Expect) }
	}
	return do(ctx, q, agree)
}

func (s Suppressions) PendingSuppressions(ctx context.Context, q api.SuppressionQuery) (l api.PendingList, err error) {
	l.Suppressions, l.Next, err = pageOf(ctx, s.Feeder.Pending, &q)
	for _, d := range s.Feeder.Doubted() {
		if q.Provider == "" || q.Provider == d.Provider {
			l.Providers = append(l.Providers, api.DoubtedProvider(d))
		}
	}
	return l, err
}

func (s Suppressions) AcceptPending(ctx context.Context, sel api.SuppressionSelection) (api.PendingDecided, error) {
	n, err := s.selected(ctx, sel, s.Feeder.Pending, s.Feeder.Accept)
	effect, err := s.changed(ctx, n, sel.DryRun, err)
	return api.PendingDecided{Effect: effect, Entries: n}, err
}

func (s Suppressions) DropPending(ctx context.Context, sel api.SuppressionSelection) (api.PendingDecided, error) {
	n, err := s.selected(ctx, sel, s.Feeder.Pending, s.Feeder.Drop)
	return api.PendingDecided{Effect: api.Effect{Count: n}, Entries: n}, err
}
