package controltest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"example.org/mta/mta/control"
)

var _ control.Suppressions = (*Relay)(nil)

// Suppressions gives a page of Suppressed. The cursor is the tenant and the address of the last
// one before.
func (r *Relay) Suppressions(_ context.Context, f control.SuppressionFilter, after string, limit int) (control.SuppressionList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l control.SuppressionList
	slices.SortFunc(r.Suppressed, func(a, b control.Suppression) int { return cmp.Compare(suppressionKey(&a), suppressionKey(&b)) })
	for i := range r.Suppressed {
		s := &r.Suppressed[i]
		switch {
		case suppressionKey(s) <= after, f.Tenant != nil && *f.Tenant != s.Tenant, f.Source != "" && f.Source != s.Source,
			f.Domain != "" && !strings.HasSuffix(s.Address, "@"+f.Domain):
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

// addSuppressions adds an entry from each source.
func (r *Relay) addSuppressions() {
	r.Suppressed = []control.Suppression{
		{Address: "former@acme.example", Reason: "asked us to, ticket 4711", Source: control.SuppressedByOperator, Added: r.Now.Add(-40 * 24 * time.Hour)},
		{Address: "anna@grey.example", Tenant: "acme", Reason: "unsubscribed", Source: control.SuppressedByImport, Added: r.Now.Add(-3 * time.Hour)},
		{Address: "gone@big.example", Tenant: "acme", Reason: "550 5.1.1 no such user", Source: control.SuppressedByBounce, Added: r.Now.Add(-26 * time.Hour), Expires: r.Now.Add(89 * 24 * time.Hour)},
	}
}

func suppressionKey(s *control.Suppression) string { return s.Tenant + ":" + s.Address }

// CheckSuppressed gives those of Suppressed that are named.
func (r *Relay) CheckSuppressed(_ context.Context, a control.SuppressedAddresses) (control.SuppressionList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var l control.SuppressionList
	for i := range r.Suppressed {
		if s := &r.Suppressed[i]; names(a, s) || a.Tenant != nil && s.Tenant == "" && slices.Contains(a.Addresses, s.Address) {
			l.Suppressions = append(l.Suppressions, *s)
		}
	}
	return l, nil
}

func names(a control.SuppressedAddresses, s *control.Suppression) bool {
	return slices.Contains(a.Addresses, s.Address) && (a.Tenant == nil || *a.Tenant == s.Tenant)
}

// Suppress adds to Suppressed. A tenant called "unknown" is.
func (r *Relay) Suppress(_ context.Context, c control.Suppress) (control.Suppressed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var done control.Suppressed
	for _, s := range c.Suppressions {
		if s.Tenant == "unknown" && done.UnknownTenants == nil {
			done.UnknownTenants = []string{s.Tenant}
		}
		i := slices.IndexFunc(r.Suppressed, func(o control.Suppression) bool { return suppressionKey(&o) == suppressionKey(&s) })
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
func (r *Relay) Unsuppress(_ context.Context, a control.SuppressedAddresses) (control.Unsuppressed, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := len(r.Suppressed)
	r.Suppressed = slices.DeleteFunc(r.Suppressed, func(s control.Suppression) bool { return names(a, &s) })
	return control.Unsuppressed{Removed: before - len(r.Suppressed)}, nil
}
