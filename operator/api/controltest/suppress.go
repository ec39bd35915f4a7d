package controltest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"example.org/mta/operator/api"
)

var _ api.Suppressions = (*Relay)(nil)

// Suppressions gives a page of Suppressed. The cursor is the tenant and the address of the last
// one before.
func (r *Relay) Suppressions(_ context.Context, f api.SuppressionFilter, after string, limit int) (api.SuppressionList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l api.SuppressionList
	slices.SortFunc(r.Suppressed, func(a, b api.Suppression) int { return cmp.Compare(suppressionKey(&a), suppressionKey(&b)) })
	for i := range r.Suppressed {
		s := &r.Suppressed[i]
		if suppressionKey(s) <= after || !suits(&f, s) {
			continue
		}
		if len(l.Suppressions) == limit {
			l.Next = suppressionKey(&l.Suppressions[limit-1])
			break
		}
		l.Suppressions = append(l.Suppressions, *s)
	}
	return l, nil
}

// suits reports whether an entry fits a filter.
func suits(f *api.SuppressionFilter, s *api.Suppression) bool {
	return (f.Tenant == nil || *f.Tenant == s.Tenant) && (f.Source == "" || f.Source == s.Source) && (f.Provider == "" || f.Provider == s.Provider) &&
		(f.Domain == "" || strings.HasSuffix(s.Address, "@"+f.Domain)) && !s.Added.Before(f.Since)
}

// addSuppressions adds an entry from each source.
func (r *Relay) addSuppressions() {
	r.Suppressed = []api.Suppression{
		{Address: "former@acme.example", Reason: "asked us to, ticket 4711", Source: api.SuppressedByOperator, Added: r.Now.Add(-40 * 24 * time.Hour)},
		{Address: "anna@grey.example", Tenant: "acme", Reason: "unsubscribed", Source: api.SuppressedByImport, Added: r.Now.Add(-3 * time.Hour)},
		{Address: "gone@big.example", Tenant: "acme", Reason: "550 5.1.1 no such user", Source: api.SuppressedByBounce, Class: "InvalidRecipient", Provider: "big", Added: r.Now.Add(-26 * time.Hour), Expires: r.Now.Add(89 * 24 * time.Hour)},
	}
	r.Pending = []api.Suppression{
		{Address: "carol@huge.example", Tenant: "acme", Reason: "550 5.1.1 no such user", Source: api.SuppressedByBounce, Class: "InvalidRecipient", Provider: "huge", Added: r.Now.Add(-3 * time.Hour), Expires: r.Now.Add(90 * 24 * time.Hour)},
		{Address: "dave@huge.example", Tenant: "acme", Reason: "550 5.1.1 no such user", Source: api.SuppressedByBounce, Class: "InvalidRecipient", Provider: "huge", Added: r.Now.Add(-2 * time.Hour), Expires: r.Now.Add(90 * 24 * time.Hour)},
	}
}

func suppressionKey(s *api.Suppression) string { return s.Tenant + ":" + s.Address }

// CheckSuppressed gives those of Suppressed that are named.
func (r *Relay) CheckSuppressed(_ context.Context, a api.SuppressedAddresses) (api.SuppressionList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l api.SuppressionList
	for i := range r.Suppressed {
		if s := &r.Suppressed[i]; names(a, s) || a.Tenant != nil && s.Tenant == "" && slices.Contains(a.Addresses, s.Address) {
			l.Suppressions = append(l.Suppressions, *s)
		}
	}
	return l, nil
}

func names(a api.SuppressedAddresses, s *api.Suppression) bool {
	return slices.Contains(a.Addresses, s.Address) && (a.Tenant == nil || *a.Tenant == s.Tenant)
}

// Suppress adds to Suppressed. A tenant called "unknown" is.
func (r *Relay) Suppress(_ context.Context, c api.Suppress) (api.Suppressed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var done api.Suppressed
	if c.DryRun {
		was := slices.Clone(r.Suppressed)
		defer func() { r.Suppressed = was }()
	}
	for _, s := range c.Suppressions {
		if s.Tenant == "unknown" && done.UnknownTenants == nil {
			done.UnknownTenants = []string{s.Tenant}
		}
		i := slices.IndexFunc(r.Suppressed, func(o api.Suppression) bool { return suppressionKey(&o) == suppressionKey(&s) })
		if i >= 0 && s.Added.IsZero() {
			if s.Added = r.Suppressed[i].Added; s != r.Suppressed[i] {
				s.Added = r.Now
			}
		}
		s.Added = cmp.Or(s.Added, r.Now)
		switch {
		case i < 0:
			r.Suppressed = append(r.Suppressed, s)
			done.Added++
		case r.Suppressed[i] == s:
			done.Unchanged++
		default:
			r.Suppressed[i] = s
			done.Changed++
		}
	}
	return done, nil
}

// Unsuppress removes from Suppressed.
func (r *Relay) Unsuppress(_ context.Context, a api.Unsuppress) (api.Unsuppressed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(r.Suppressed), func(s api.Suppression) bool { return names(a.SuppressedAddresses, &s) })
	n := len(r.Suppressed) - len(left)
	if !a.DryRun {
		r.Suppressed = left
	}
	return api.Unsuppressed{Removed: n}, nil
}

// UnsuppressMatching removes from Suppressed.
func (r *Relay) UnsuppressMatching(ctx context.Context, sel api.SuppressionSelection) (api.Unsuppressed, error) {
	err := expected(sel.Intent, func(dry api.Intent) (int, error) {
		would := sel
		would.Intent = dry
		done, err := r.UnsuppressMatching(ctx, would)
		return done.Removed, err
	})
	if err != nil {
		return api.Unsuppressed{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.Unsuppressed{Removed: len(take(&r.Suppressed, &sel))}, nil
}

// take removes what is selected, and gives it.
func take(from *[]api.Suppression, sel *api.SuppressionSelection) (taken []api.Suppression) {
	var others []api.Suppression
	for _, s := range *from {
		if suits(&sel.SuppressionFilter, &s) {
			taken = append(taken, s)
		} else {
			others = append(others, s)
		}
	}
	if !sel.DryRun {
		*from = others
	}
	return taken
}

// PendingSuppressions gives Pending, whole, and that provider "huge" is doubted while it has entries.
func (r *Relay) PendingSuppressions(_ context.Context, f api.SuppressionFilter, _ string, _ int) (api.PendingList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l api.PendingList
	for i := range r.Pending {
		if suits(&f, &r.Pending[i]) {
			l.Suppressions = append(l.Suppressions, r.Pending[i])
		}
	}
	if len(l.Suppressions) > 0 {
		l.Providers = []api.DoubtedProvider{{Provider: "huge", Since: r.Now.Add(-3 * time.Hour), Until: r.Now.Add(-time.Hour), Known: 20, Unknown: 480, Usual: 0.012}}
	}
	return l, nil
}

// AcceptPending moves from Pending to Suppressed.
func (r *Relay) AcceptPending(ctx context.Context, sel api.SuppressionSelection) (api.PendingDecided, error) {
	err := expected(sel.Intent, func(dry api.Intent) (int, error) {
		would := sel
		would.Intent = dry
		done, err := r.AcceptPending(ctx, would)
		return done.Entries, err
	})
	if err != nil {
		return api.PendingDecided{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := take(&r.Pending, &sel)
	if !sel.DryRun {
		r.Suppressed = append(r.Suppressed, taken...)
	}
	return api.PendingDecided{Entries: len(taken)}, nil
}

// DropPending removes from Pending.
func (r *Relay) DropPending(ctx context.Context, sel api.SuppressionSelection) (api.PendingDecided, error) {
	err := expected(sel.Intent, func(dry api.Intent) (int, error) {
		would := sel
		would.Intent = dry
		done, err := r.DropPending(ctx, would)
		return done.Entries, err
	})
	if err != nil {
		return api.PendingDecided{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.PendingDecided{Entries: len(take(&r.Pending, &sel))}, nil
}

// expected counts what a request would change, where it expects a number, and refuses another one.
func expected(in api.Intent, count func(dry api.Intent) (int, error)) error {
	if in.Expect == nil || in.DryRun {
		return nil
	}
	n, err := count(api.Intent{DryRun: true})
	if err == nil {
		err = api.Recount(n, *in.Expect)
	}
	return err
}
