package mta

import (
	"errors"
	"fmt"
	"io/fs"

	"example.org/mta/internal/secretfile"
	"example.org/mta/mta/config"
	"example.org/mta/submission/keys"
)

// openKeys begins to check API keys, when the configuration has a keys file.
func (r *Relay) openKeys(cfg *config.Config, undo *undoer) error {
	r.keys.Store(r.newKeys(cfg))
	undo.add(func() { r.closeKeys() })
	return nil
}

// newKeys gives the keys of a configuration: those that there are, when their file is the same; nil without
// a file.
func (r *Relay) newKeys(cfg *config.Config) *keys.Book {
	if there := r.keys.Load(); there != nil && r.policy.Load().Config.Keys.File == cfg.Keys.File {
		return there
	}
	if cfg.Keys.File == "" {
		return nil
	}
	return keys.Open(keys.Config{
		File: cfg.Keys.File, Use: cfg.KeysUsed(), Now: r.now, Log: r.log,
		Tenant: func(name string) bool { return r.policy.Load().Config.Tenant(name) != nil },
	})
}

// swapKeys brings the keys of a new configuration into force.
func (r *Relay) swapKeys(next *keys.Book) {
	if was := r.keys.Swap(next); was != nil && was != next {
		was.Close()
	}
}

func (r *Relay) closeKeys() error {
	if book := r.keys.Load(); book != nil {
		book.Close()
	}
	return nil
}

// keysWarnings returns what is wrong with the keys file. The relay starts all the same, so that it can be
// fixed while mail goes on.
func keysWarnings(cfg *config.Config) (out []string) {
	path := cfg.Keys.File
	if path == "" {
		return nil
	}
	at := place("keys", cfg.Keys.Origin("file"))
	table, err := keys.Load(path)
	var mode *secretfile.ModeError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return []string{fmt.Sprintf("%s: %s is not there, so that nobody can submit by HTTP: 'mta key add' makes it", at, path)}
	case errors.As(err, &mode):
		return []string{fmt.Sprintf("%s: %v, so that nobody can submit by HTTP: %s", at, err, mode.Remedy())}
	case err != nil:
		return []string{fmt.Sprintf("%s: nobody can submit by HTTP: %v", at, err)}
	}
	for _, k := range table.Keys() {
		if cfg.Tenant(k.Tenant) == nil {
			out = append(out, fmt.Sprintf("%s: API key %q of %s is of the tenant %q, which has no block: its requests are refused", at, k.Name, path, k.Tenant))
		}
	}
	return out
}

// keysTenants lists the tenants of API keys.
func keysTenants(cfg *config.Config) (names []string) {
	if cfg.Keys.File == "" {
		return nil
	}
	table, err := keys.Load(cfg.Keys.File)
	if err != nil {
		return nil // complained of elsewhere
	}
	for _, k := range table.Keys() {
		names = append(names, k.Tenant)
	}
	return names
}
