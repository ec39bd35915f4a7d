package mta

import (
	"example.org/mta/mta/config"
	"example.org/mta/operator/answer/messages"
	"example.org/mta/submission/intake"
)

// openIdempotency makes the book of requests that have a key. Its secret is in the data directory, beside the
// journal that has the keys.
func (r *mailIn) openIdempotency(cfg *config.Config, _ *undoer) error {
	secret, err := r.data.Secret("idempotency.key",
		"requests that are sent again with their Idempotency-Key are taken twice").Secret()
	if err != nil {
		return err
	}
	store := messages.KeyStore{Queue: r.queue}
	r.repeats = intake.NewRepeats(secret, store)
	moved, err := store.Secrets()
	r.repeats.Moved(moved)
	return err
}
