package controltest

import (
	"context"
	"slices"

	"example.org/mta/operator/api"
)

// APIKeys lists KnownKeys.
func (r *Relay) APIKeys(context.Context) (api.APIKeyList, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.APIKeyList{Keys: slices.Clone(r.KnownKeys)}, nil
}

// AddAPIKey adds to KnownKeys.
func (r *Relay) AddAPIKey(_ context.Context, a api.AddAPIKey) (api.NewAPIKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := api.APIKey{ID: "0123456789abcdef", Tenant: a.Tenant, Name: a.Name, Scopes: []string{"send"}, From: []string{}, Created: r.Now, State: "valid"}
	if a.DryRun {
		return api.NewAPIKey{Added: k}, nil
	}
	r.KnownKeys = append(r.KnownKeys, k)
	return api.NewAPIKey{Key: "mta_secret", Added: k}, nil
}

// RotateAPIKey gives a key of KnownKeys another id.
func (r *Relay) RotateAPIKey(_ context.Context, a api.RotateAPIKey) (api.NewAPIKey, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.KnownKeys, func(k api.APIKey) bool { return k.Name == a.Name })
	if i < 0 {
		return api.NewAPIKey{}, api.NotFound("the keys: mta key list", "there is no such key: %s", a.Name)
	}
	old := r.KnownKeys[i]
	k := old
	k.ID = "fedcba9876543210"
	if a.DryRun {
		return api.NewAPIKey{Added: k, Old: &old}, nil
	}
	r.KnownKeys[i] = k
	return api.NewAPIKey{Key: "mta_secret", Added: k, Old: &old}, nil
}

// RemoveAPIKeys takes keys out of KnownKeys.
func (r *Relay) RemoveAPIKeys(_ context.Context, a api.RemoveAPIKeys) (l api.APIKeyList, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var left []api.APIKey
	for _, k := range r.KnownKeys {
		if slices.Contains(a.Names, k.Name) {
			l.Keys = append(l.Keys, k)
		} else {
			left = append(left, k)
		}
	}
	if len(l.Keys) == 0 {
		return l, api.NotFound("the keys: mta key list", "there is no such key: %s", a.Names[0])
	}
	if !a.DryRun {
		r.KnownKeys = left
	}
	return l, nil
}
