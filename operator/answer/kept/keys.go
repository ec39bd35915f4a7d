package kept

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"example.org/mta/internal/smallfile"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/blocks"
	"example.org/mta/operator/api"
	"example.org/mta/submission/auth"
)

// Keys answers about API keys, and changes them, in the keys file; it implements api.APIKeys.
type Keys struct {
	Config func() *config.Config // in force
	Now    func() time.Time
	Book   func() *auth.Keys // in force; nil without a keys file
	// Behind waits for the other nodes of a cluster, and returns which don't know of a change yet; "": all do.
	Behind func(context.Context) string
}

// shared are the keys that the nodes of a cluster share; nil without any.
func (a Keys) shared() *auth.SharedKeys {
	if book := a.Book(); book != nil {
		return book.Shared()
	}
	return nil
}

// file is the keys file of the configuration in force.
func (a Keys) file() (string, error) {
	if path := a.Config().Keys.File; path != "" {
		return path, nil
	}
	return "", api.Invalid(`add keys { file = "/etc/mta/keys" } to the configuration`, "there is no keys file")
}

func (a Keys) APIKeys(context.Context) (api.APIKeyList, error) {
	path, err := a.file()
	if err != nil {
		return api.APIKeyList{}, err
	}
	table, err := auth.LoadKeys(path)
	if errors.Is(err, fs.ErrNotExist) {
		return a.list(a.shared().Over(nil)), nil
	}
	if err != nil {
		return api.APIKeyList{}, keyError(err)
	}
	return a.list(a.shared().Over(table.Keys())), nil
}

func (a Keys) list(some []*auth.Key) (l api.APIKeyList) {
	for _, k := range some {
		l.Keys = append(l.Keys, a.key(k))
	}
	return l
}

func (a Keys) key(k *auth.Key) api.APIKey {
	out := APIKey(k, a.Now())
	if book := a.Book(); book != nil {
		out.LastUsed = book.LastUse(out.ID)
	}
	return out
}

// APIKey returns a key in the API's words.
func APIKey(k *auth.Key, now time.Time) api.APIKey {
	from := []string{}
	for _, p := range k.From {
		from = append(from, p.String())
	}
	return api.APIKey{ID: k.ID(), Tenant: k.Tenant, Name: k.Name, Scopes: k.Scopes.Names(), From: from,
		Created: k.Created, Expires: k.Expires, Replaced: k.Replaced, State: k.State(now)}
}

// keys are those of the file, or of the cluster.
func (a Keys) keys(path string, dry bool) auth.File {
	return auth.File{Path: path, DryRun: dry, Keys: a.shared()}
}

func (a Keys) AddAPIKey(ctx context.Context, add api.AddAPIKey) (api.NewAPIKey, error) {
	path, err := a.file()
	if err != nil {
		return api.NewAPIKey{}, err
	}
	if err := blocks.Check(a.Config(), "tenant", add.Tenant); err != nil {
		return api.NewAPIKey{}, err
	}
	now := a.Now()
	k := auth.Key{Tenant: add.Tenant, Name: add.Name, Scopes: auth.MayAll}
	if len(add.Scopes) > 0 {
		if k.Scopes, err = auth.ParseScopes(add.Scopes); err != nil {
			return api.NewAPIKey{}, api.Invalid("", "scopes: %v", err)
		}
	}
	if k.From, err = auth.ParseNetworks(add.From); err != nil {
		return api.NewAPIKey{}, api.Invalid("", "from: %v", err)
	}
	if add.Expires > 0 {
		k.Expires = now.Add(time.Duration(add.Expires))
	}
	token, added, err := a.keys(path, add.DryRun).AddKey(k, now)
	if err != nil {
		return api.NewAPIKey{}, keyError(err)
	}
	return api.NewAPIKey{Effect: a.changed(ctx, add.DryRun, 1), Key: token, Added: a.key(added)}, nil
}

func (a Keys) RotateAPIKey(ctx context.Context, o api.RotateAPIKey) (api.NewAPIKey, error) {
	path, err := a.file()
	if err != nil {
		return api.NewAPIKey{}, err
	}
	now, overlap := a.Now(), auth.DefaultOverlap
	if o.Overlap != nil {
		overlap = time.Duration(*o.Overlap)
	}
	var end time.Time
	if o.Expires > 0 {
		end = now.Add(time.Duration(o.Expires))
	}
	which := auth.WhichKey{Tenant: o.Tenant, Name: o.Name}
	token, added, old, err := a.keys(path, o.DryRun).RotateKey(which, overlap, end, now)
	if err != nil {
		return api.NewAPIKey{}, keyError(err)
	}
	done := api.NewAPIKey{Effect: a.changed(ctx, o.DryRun, 1), Key: token, Added: a.key(added)}
	if overlap > 0 {
		was := a.key(old)
		done.Old = &was
	}
	return done, nil
}

func (a Keys) RemoveAPIKeys(ctx context.Context, o api.RemoveAPIKeys) (api.RemovedAPIKeys, error) {
	path, err := a.file()
	if err != nil {
		return api.RemovedAPIKeys{}, err
	}
	var which []auth.WhichKey
	for _, name := range o.Names {
		which = append(which, auth.WhichKey{Tenant: o.Tenant, Name: name})
	}
	removed, err := a.keys(path, o.DryRun).RemoveKeys(which...)
	if err != nil {
		return api.RemovedAPIKeys{}, keyError(err)
	}
	return api.RemovedAPIKeys{Effect: a.changed(ctx, o.DryRun, len(removed)), APIKeyList: a.list(removed)}, nil
}

// changed brings a change of keys into force, unless it was a dry run.
func (a Keys) changed(ctx context.Context, dry bool, count int) api.Effect {
	done := api.Effect{Count: count}
	if book := a.Book(); book != nil && !dry {
		book.Reread()
	}
	if a.shared().On() && !dry {
		done.Behind = a.Behind(ctx)
	}
	return done
}

// keyError puts an error about the keys file into the API's words.
func keyError(err error) error {
	var mode *smallfile.ModeError
	switch {
	case errors.As(err, &mode):
		return api.Unavailable(mode.Remedy(), "%v", err)
	case errors.Is(err, fs.ErrPermission):
		return api.Unavailable(
			"run 'mta key' as the owner of the file, or let the relay's user write it and its directory", "%v", err)
	case errors.Is(err, auth.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return api.NotFound("the keys: mta key list", "%v", err)
	case errors.Is(err, auth.ErrAmbiguous):
		return api.Invalid("name the tenant, or give the id of the key", "%v", err)
	case errors.Is(err, auth.ErrExists):
		return api.Invalid("rotate it, or choose another name", "%v", err)
	case errors.Is(err, auth.ErrInvalid):
		return api.Invalid("", "%v", err)
	}
	return err
}
