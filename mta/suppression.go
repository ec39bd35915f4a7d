package mta

import (
	"context"
	"path/filepath"

	"example.org/mta/internal/envelope"
	"example.org/mta/mta/config"
	"example.org/mta/mta/wiring"
	"example.org/mta/queue"
	"example.org/mta/suppression"
	"example.org/mta/suppression/boltstore"
)

// suppressor joins the suppression list with what asks it, by the configuration in force:
// submission at RCPT, the dispatcher before mail is sent, and the outcomes that feed it.
type suppressor struct {
	*suppression.List
	policy func() *wiring.Policy
}

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
	r.suppression = &suppressor{list, r.policy.Load}
	undo.add(func() { list.Close() })
	return nil
}

func (s *suppressor) settings() *config.Suppression { return &s.policy().Config.Suppression }

// refuses is asked by submission: why a recipient is refused, if it is.
func (s *suppressor) refuses(tenant string, a envelope.Address) (why string, yes bool) {
	if s.settings().Mode != "refuse" {
		return "", false
	}
	e, yes := s.Keeps(tenant, a)
	if !yes {
		return "", false
	}
	return e.String(), true
}

// keeps is what an operator is told of mail in the queue: since when and why it is kept from an
// address, "" when it is not.
func (s *suppressor) keeps(it *queue.Item, a envelope.Address) string {
	if it.Sender.Null() || s.settings().Mode == "off" {
		return ""
	}
	e, yes := s.Keeps(it.Tenant, a)
	if !yes {
		return ""
	}
	return e.String()
}
