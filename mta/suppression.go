package mta

import (
	"context"
	"fmt"
	"path/filepath"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/submitted"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

func (r *stores) openSuppression(cfg *config.Config, undo *undoer) error {
	store, err := boltstore.Open(filepath.Join(cfg.DataDir, "suppression.db"),
		r.data.Number(boltstore.Format), r.now, r.log)
	if err != nil {
		return err
	}
	list, err := suppression.Open(context.Background(),
		suppression.Config{Store: store, MostOwn: submitted.MostSuppressions, Note: r.known.Of("suppression"),
			Now: r.now, Log: r.log})
	if err != nil {
		store.Close()
		return err
	}
	r.suppression, r.listed = list, store
	undo.add(func() { list.Close() })
	if err := r.known.Add("suppression", suppression.Shared{List: list}, store.Damage() != nil); err != nil {
		return err
	}
	aside, err := suppression.Open(context.Background(),
		suppression.Config{Store: store.Pending(), Now: r.now, Log: r.log})
	if err != nil {
		return err
	}
	r.feeder, err = suppression.NewFeeder(context.Background(), suppression.FeederConfig{
		List: list, Pending: aside, Counters: store.Counters(), Providers: store.Providers(),
		Complained: r.warm.Complained,
		Settings:   func() *suppression.FeedSettings { return r.policy.Load().Feed }, Now: r.now, Log: r.log,
	})
	if err != nil {
		aside.Close()
		return fmt.Errorf("opening suppression list: %w", err)
	}
	undo.add(func() { r.feeder.Close() })
	return nil
}

// suppressed answers submission: whether a recipient is refused at RCPT, and why.
func (r *mailIn) suppressed(tenant string, a envelope.Address) (why string, yes bool) {
	if r.policy.Load().Config.Suppression.Mode != "refuse" {
		return "", false
	}
	e, yes := r.suppression.Keeps(tenant, a)
	if !yes {
		return "", false
	}
	return e.String(), true
}
