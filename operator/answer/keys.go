package answer

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"example.org/mta/internal/secretfile"
	"example.org/mta/operator/api"
	"example.org/mta/submission/keys"
)

// apiKeys answers the control API's questions about API keys, from the keys file.
type apiKeys struct{ r *Relay }

// file is the keys file of the configuration in force.
func (a apiKeys) file() (string, error) {
	if path := a.r.Policy().Config.Keys.File; path != "" {
		return path, nil
	}
	return "", api.Invalid(`add keys { file = "/etc/mta/keys" } to the configuration`, "there is no keys file")
}

// APIKeys implements api.APIKeys.
func (a apiKeys) APIKeys(context.Context) (api.APIKeyList, error) {
	path, err := a.file()
	if err != nil {
		return api.APIKeyList{}, err
	}
	table, err := keys.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return api.APIKeyList{}, nil
	}
	if err != nil {
		return api.APIKeyList{}, keyError(err)
	}
	return a.list(table.Keys()), nil
}

func (a apiKeys) list(some []*keys.Key) (l api.APIKeyList) {
	for _, k := range some {
		l.Keys = append(l.Keys, a.key(k))
	}
	return l
}

func (a apiKeys) key(k *keys.Key) api.APIKey {
	out := ControlKey(k, a.r.Now())
	if book := a.r.Keys(); book != nil {
		out.LastUsed = book.LastUse(out.ID)
	}
	return out
}

// ControlKey gives a key in the API's words.
func ControlKey(k *keys.Key, now time.Time) api.APIKey {
	from := []string{}
	for _, p := range k.From {
		from = append(from, p.String())
	}
	return api.APIKey{ID: k.ID(), Tenant: k.Tenant, Name: k.Name, Scopes: k.Scopes.Names(), From: from, Created: k.Created, Expires: k.Expires, Replaced: k.Replaced, State: k.State(now)}
}

// AddAPIKey implements api.APIKeys.
func (a apiKeys) AddAPIKey(_ context.Context, add api.AddAPIKey) (api.NewAPIKey, error) {
	path, err := a.file()
	if err != nil {
		return api.NewAPIKey{}, err
	}
	if err := checkNamed(a.r.Policy().Config, "tenant", add.Tenant); err != nil {
		return api.NewAPIKey{}, err
	}
	now := a.r.Now()
	k := keys.Key{Tenant: add.Tenant, Name: add.Name, Scopes: keys.All}
	if len(add.Scopes) > 0 {
		if k.Scopes, err = keys.ParseScopes(add.Scopes); err != nil {
			return api.NewAPIKey{}, api.Invalid("", "scopes: %v", err)
		}
	}
	if k.From, err = keys.ParseNetworks(add.From); err != nil {
		return api.NewAPIKey{}, api.Invalid("", "from: %v", err)
	}
	if add.Expires > 0 {
		k.Expires = now.Add(time.Duration(add.Expires))
	}
	if add.DryRun {
		added, err := keys.PreviewAdd(path, k, now)
		if err != nil {
			return api.NewAPIKey{}, keyError(err)
		}
		return api.NewAPIKey{Added: a.key(added)}, nil
	}
	token, added, err := keys.Add(path, k, now)
	if err != nil {
		return api.NewAPIKey{}, keyError(err)
	}
	a.reread()
	return api.NewAPIKey{Key: token, Added: a.key(added)}, nil
}

// RotateAPIKey implements api.APIKeys.
func (a apiKeys) RotateAPIKey(_ context.Context, o api.RotateAPIKey) (api.NewAPIKey, error) {
	path, err := a.file()
	if err != nil {
		return api.NewAPIKey{}, err
	}
	now, overlap := a.r.Now(), keys.DefaultOverlap
	if o.Overlap != nil {
		overlap = time.Duration(*o.Overlap)
	}
	var end time.Time
	if o.Expires > 0 {
		end = now.Add(time.Duration(o.Expires))
	}
	which := keys.Which{Tenant: o.Tenant, Name: o.Name}
	var (
		token      string
		added, old *keys.Key
	)
	if o.DryRun {
		added, old, err = keys.PreviewRotate(path, which, overlap, end, now)
	} else {
		token, added, old, err = keys.Rotate(path, which, overlap, end, now)
	}
	if err != nil {
		return api.NewAPIKey{}, keyError(err)
	}
	if !o.DryRun {
		a.reread()
	}
	done := api.NewAPIKey{Key: token, Added: a.key(added)}
	if overlap > 0 {
		was := a.key(old)
		done.Old = &was
	}
	return done, nil
}

// RemoveAPIKeys implements api.APIKeys.
func (a apiKeys) RemoveAPIKeys(_ context.Context, o api.RemoveAPIKeys) (api.APIKeyList, error) {
	path, err := a.file()
	if err != nil {
		return api.APIKeyList{}, err
	}
	var which []keys.Which
	for _, name := range o.Names {
		which = append(which, keys.Which{Tenant: o.Tenant, Name: name})
	}
	remove := keys.Remove
	if o.DryRun {
		remove = keys.PreviewRemove
	}
	removed, err := remove(path, which...)
	if err != nil {
		return api.APIKeyList{}, keyError(err)
	}
	if !o.DryRun {
		a.reread()
	}
	return a.list(removed), nil
}

// reread brings a change of the keys file into force.
func (a apiKeys) reread() {
	if book := a.r.Keys(); book != nil {
		book.Reread()
	}
}

// keyError puts an error about the keys file into the API's words.
func keyError(err error) error {
	var mode *secretfile.ModeError
	switch {
	case errors.As(err, &mode):
		return api.Unavailable(mode.Remedy(), "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return api.Unavailable("run 'mta key' as the owner of the file, or let the relay's user write it and its directory", "%v", err)
	case errors.Is(err, keys.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return api.NotFound("the keys: mta key list", "%v", err)
	case errors.Is(err, keys.ErrAmbiguous):
		return api.Invalid("name the tenant, or give the id of the key", "%v", err)
	case errors.Is(err, keys.ErrExists):
		return api.Invalid("rotate it, or choose another name", "%v", err)
	case errors.Is(err, keys.ErrInvalid):
		return api.Invalid("", "%v", err)
	}
	return err
}
