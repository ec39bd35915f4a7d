package operate

import (
	"context"
	"net/url"
	"slices"
	"strings"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/control"
	"example.org/mta/suppression"
)

// suppressions answers the control API's questions about the suppression list.
type suppressions struct{ r *Relay }

// Suppressions implements control.Suppressions.
func (s suppressions) Suppressions(ctx context.Context, f control.SuppressionFilter, after string, limit int) (control.SuppressionList, error) {
	q := suppression.Query{Tenant: f.Tenant, Source: suppression.Source(f.Source)}
	if f.Domain != "" {
		domain, err := envelope.ToASCII(f.Domain)
		if err != nil {
			return control.SuppressionList{}, control.Invalid("", "domain: %v", err)
		}
		q.Domain = domain
	}
	from, err := parseCursor(after)
	if err != nil {
		return control.SuppressionList{}, err
	}
	page, last, more, err := s.r.Suppressed.Page(ctx, q, from, limit)
	if err != nil {
		return control.SuppressionList{}, err
	}
	l := control.SuppressionList{Suppressions: controlSuppressions(page)}
	if more {
		l.Next = cursor(last)
	}
	return l, nil
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
		return suppression.Key{}, control.Invalid("give --after what the page before ended with", "cursor %q is none", text)
	}
	return suppression.Key{Tenant: tenant, Address: address}, nil
}

func controlSuppressions(entries []suppression.Entry) []control.Suppression {
	out := make([]control.Suppression, len(entries))
	for i, e := range entries {
		out[i] = control.Suppression{
			Address: e.Address, Tenant: e.Tenant, Reason: e.Reason,
			Source: control.SuppressionSource(e.Source), Added: e.Added, Expires: e.Expires,
		}
	}
	return out
}

// CheckSuppressed implements control.Suppressions.
func (s suppressions) CheckSuppressed(ctx context.Context, a control.SuppressedAddresses) (control.SuppressionList, error) {
	if a.Tenant == nil {
		keys, err := s.keys(ctx, a)
		if err != nil {
			return control.SuppressionList{}, err
		}
		found, err := s.r.Suppressed.Get(ctx, keys)
		return control.SuppressionList{Suppressions: controlSuppressions(found)}, err
	}
	var found []suppression.Entry
	for _, text := range a.Addresses {
		if e, ok := s.r.Suppressed.Match(*a.Tenant, envelope.Address(text)); ok {
			found = append(found, e)
		}
	}
	return control.SuppressionList{Suppressions: controlSuppressions(found)}, nil
}

// keys gives the keys of addresses: of one tenant, or of all that have entries.
func (s suppressions) keys(ctx context.Context, a control.SuppressedAddresses) (keys []suppression.Key, err error) {
	tenants := []string{""}
	if a.Tenant != nil {
		tenants[0] = *a.Tenant
	} else if tenants, err = s.r.Suppressed.Tenants(ctx); err != nil {
		return nil, err
	}
	for _, tenant := range tenants {
		for _, text := range a.Addresses {
			keys = append(keys, suppression.KeyOf(tenant, envelope.Address(text)))
		}
	}
	return keys, nil
}

// Suppress implements control.Suppressions.
func (s suppressions) Suppress(ctx context.Context, c control.Suppress) (control.Suppressed, error) {
	entries := make([]suppression.Entry, len(c.Suppressions))
	for i, e := range c.Suppressions {
		entries[i] = suppression.Entry{
			Key: suppression.KeyOf(e.Tenant, envelope.Address(e.Address)), Reason: e.Reason,
			Source: suppression.Source(e.Source), Added: e.Added, Expires: e.Expires,
		}
	}
	done, err := s.r.Suppressed.Add(ctx, entries)
	return control.Suppressed{
		Added: done.New, Changed: done.Changed, Unchanged: done.Unchanged, UnknownTenants: s.unknownTenants(entries),
	}, err
}

// unknownTenants gives those of entries that are not in the configuration. That is no error: a list
// may be read before the tenant is written. But it may be a slip of the pen, too.
func (s suppressions) unknownTenants(entries []suppression.Entry) (names []string) {
	cfg := s.r.Policy().Config
	for _, e := range entries {
		if e.Tenant != "" && cfg.Tenant(e.Tenant) == nil && !slices.Contains(names, e.Tenant) {
			names = append(names, e.Tenant)
		}
	}
	return names
}

// Unsuppress implements control.Suppressions.
func (s suppressions) Unsuppress(ctx context.Context, a control.SuppressedAddresses) (control.Unsuppressed, error) {
	keys, err := s.keys(ctx, a)
	if err != nil {
		return control.Unsuppressed{}, err
	}
	n, err := s.r.Suppressed.Remove(ctx, keys)
	return control.Unsuppressed{Removed: n}, err
}
