package mta

import (
	"context"
	"path/filepath"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

func (r *Relay) openSuppression(cfg *config.Config, undo *undoer) error {
	store, err := boltstore.Open(filepath.Join(cfg.DataDir, "suppression.db"))
	if err != nil {
		return err
	}
	list, err := suppression.Open(context.Background(), suppression.Config{Store: store, Now: r.now, Log: r.log})
	if err != nil {
		store.Close()
		return err
	}
	r.suppression = list
	undo.add(func() { list.Close() })
	return nil
}

// suppressed answers submission: whether a recipient is refused at RCPT, and why.
func (r *Relay) suppressed(tenant string, a envelope.Address) (why string, yes bool) {
	if r.policy.Load().Config.Suppression.Mode != "refuse" {
		return "", false
	}
	e, yes := r.suppression.Keeps(tenant, a)
	if !yes {
		return "", false
	}
	return e.String(), true
}
