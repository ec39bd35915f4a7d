package mta

import (
	"example.org/mta/internal/dkim"
	"example.org/mta/mta/config"
)

// unsignable returns why a message must not be accepted: a dkim block would have to sign it, and can't, so that it
// would wait until it expires.
func (r *mailIn) unsignable(tenant string, header []byte) error {
	cfg := r.policy.Load().Config
	if !cfg.Signs(tenant) {
		return nil
	}
	if authors, err := dkim.From(header); err != nil && config.Waits(cfg.DKIMFor(tenant, authors...)) {
		return err
	}
	return nil
}
