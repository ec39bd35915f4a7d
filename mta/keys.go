package mta

import (
	"example.org/mta/mta/config"
	"example.org/mta/submission/auth"
)

// openKeys begins to check API keys, when the configuration has a keys file.
func (r *mailIn) openKeys(cfg *config.Config, undo *undoer) error {
	r.keys.Store(r.newKeys(cfg))
	undo.add(func() { r.closeKeys() })
	return nil
}

// newKeys gives the keys of a configuration: those that there are, when their file is the same; nil without
// a file.
func (r *mailIn) newKeys(cfg *config.Config) *auth.Keys {
	if there := r.keys.Load(); there != nil && r.policy.Load().Config.Keys.File == cfg.Keys.File {
		return there
	}
	if cfg.Keys.File == "" {
		return nil
	}
	return auth.OpenKeys(auth.KeyConfig{
		File: cfg.Keys.File, Use: cfg.KeysUsed(), Now: r.now, Log: r.log,
		Tenant: func(name string) bool { return r.policy.Load().Config.Tenant(name) != nil },
	})
}

// swapKeys brings the keys of a new configuration into force.
func (r *mailIn) swapKeys(next *auth.Keys) {
	if was := r.keys.Swap(next); was != nil && was != next {
		was.Close()
	}
}

func (r *mailIn) closeKeys() error {
	if book := r.keys.Load(); book != nil {
		book.Close()
	}
	return nil
}
