package auth

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// DefaultOverlap is how long a key is good beside the one that takes its place.
const DefaultOverlap = 24 * time.Hour

// Errors of changes.
var (
	ErrExists    = errors.New("the tenant already has a key of this name")
	ErrNotFound  = errors.New("there is no such key")
	ErrAmbiguous = errors.New("several tenants have a key of this name")
	ErrInvalid   = errors.New("there can be no such key")
)

// AddKey puts a new key into a file. Its token is returned, and is nowhere else; in a dry run there is none.
func (f File) AddKey(k Key, now time.Time) (token string, added *Key, err error) {
	added = &k
	k.Created, k.Replaced = now.UTC().Truncate(time.Second), time.Time{}
	if err := k.check(now); err != nil {
		return "", nil, err
	}
	token, k.Sum = newToken()
	err = f.updateKeys(func(t *KeyTable) (*KeyTable, error) {
		if t.current[name{k.Tenant, k.Name}] != nil {
			return nil, fmt.Errorf("%w: %s of %s", ErrExists, k.Name, k.Tenant)
		}
		return t.change(nil, &k)
	})
	if err != nil {
		return "", nil, err
	}
	if f.DryRun {
		token = ""
	}
	return token, added, nil
}

// check returns why a key can't be added.
func (k *Key) check(now time.Time) error {
	err := CheckKeyTenant(k.Tenant)
	if err == nil {
		err = CheckKeyName(k.Name)
	}
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	case k.Scopes == 0 || k.Scopes&^MayAll != 0:
		return fmt.Errorf("%w: a key needs a scope: %s", ErrInvalid, MayAll)
	case k.Expired(now):
		return fmt.Errorf("%w: it would have expired at %s", ErrInvalid, k.Expires.UTC().Format(time.RFC3339))
	}
	return nil
}

// WhichKey names keys: by an id, or by a name and, where several tenants have a key of that name, the tenant.
type WhichKey struct{ Tenant, Name string }

// find gives the keys that are meant: all of a name, the replaced ones included, or the one of an id.
func (t *KeyTable) find(w WhichKey) ([]*Key, error) {
	if k := t.byID[strings.ToLower(w.Name)]; k != nil && (w.Tenant == "" || w.Tenant == k.Tenant) {
		return []*Key{k}, nil
	}
	var found []*Key
	var tenants []string
	for _, k := range t.keys {
		if k.Name != w.Name || w.Tenant != "" && w.Tenant != k.Tenant {
			continue
		}
		found = append(found, k)
		if !slices.Contains(tenants, k.Tenant) {
			tenants = append(tenants, k.Tenant)
		}
	}
	switch {
	case len(found) == 0:
		return nil, fmt.Errorf("%w: %s", ErrNotFound, shortWord(w.Name))
	case len(tenants) > 1:
		return nil, fmt.Errorf("%w: %s of %s", ErrAmbiguous, w.Name, strings.Join(tenants, ", "))
	}
	return found, nil
}

// RemoveKeys takes keys out of a file: those that are named, each of which must be there.
func (f File) RemoveKeys(which ...WhichKey) (removed []*Key, err error) {
	err = f.updateKeys(func(t *KeyTable) (*KeyTable, error) {
		for _, w := range which {
			some, err := t.find(w)
			if err != nil {
				return nil, err
			}
			removed = append(removed, some...)
		}
		return t.change(removed)
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}

// RemoveExpiredKeys takes the keys out of a file that are no longer good.
func (f File) RemoveExpiredKeys(now time.Time) (removed []*Key, err error) {
	err = f.updateKeys(func(t *KeyTable) (*KeyTable, error) {
		for _, k := range t.keys {
			if k.Expired(now) {
				removed = append(removed, k)
			}
		}
		return t.change(removed)
	})
	if err != nil {
		return nil, err
	}
	return removed, nil
}

// RotateKey puts a new key in the place of the current one of a name, with the same tenant, scopes and
// networks. The old one is good for overlap more, or until its own end; without overlap it is removed.
// The new one expires at a time; zero: after as long as the old one was made for, never when that never did.
func (f File) RotateKey(
	w WhichKey, overlap time.Duration, expires, now time.Time,
) (token string, added, old *Key, err error) {
	now = now.UTC().Truncate(time.Second)
	token, sum := newToken()
	err = f.updateKeys(func(t *KeyTable) (*KeyTable, error) {
		found, err := t.find(w)
		if err != nil {
			return nil, err
		}
		was := t.current[name{found[0].Tenant, found[0].Name}]
		if was == nil {
			return nil, fmt.Errorf("%w: %s has only keys that were replaced; add one with another name",
				ErrNotFound, w.Name)
		}
		next := *was
		next.Sum, next.Created, next.Expires = sum, now, expires
		if expires.IsZero() && !was.Expires.IsZero() {
			next.Expires = now.Add(was.Expires.Sub(was.Created))
		}
		if err := next.check(now); err != nil {
			return nil, err
		}
		ending := *was
		ending.Replaced = now
		if end := now.Add(overlap); ending.Expires.IsZero() || end.Before(ending.Expires) {
			ending.Expires = end
		}
		added, old = &next, &ending
		if overlap <= 0 {
			return t.change([]*Key{was}, &next)
		}
		return t.change([]*Key{was}, &ending, &next)
	})
	if err != nil {
		return "", nil, nil, err
	}
	if f.DryRun {
		token = ""
	}
	return token, added, old, nil
}
