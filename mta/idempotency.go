package mta

import (
	"example.org/mta/mta/config"
	"example.org/mta/queue"
	"example.org/mta/submission/idempotency"
)

// openIdempotency makes the book of requests that have a key. Its secret is in the data directory, beside the
// journal that has the keys.
func (r *Relay) openIdempotency(cfg *config.Config, _ *undoer) error {
	secret, err := r.secret(cfg, "idempotency.key", "requests that are sent again with their Idempotency-Key are taken twice").Secret()
	if err != nil {
		return err
	}
	r.repeats = idempotency.New(secret, keyedRequests{r.queue})
	return nil
}

// keyedRequests is what the queue knows of requests that have a key.
type keyedRequests struct{ q *queue.Queue }

// Keyed implements idempotency.Store.
func (k keyedRequests) Keyed(key idempotency.Key) (idempotency.Stored, bool, error) {
	known, ok, err := k.q.Keyed(key)
	return idempotency.Stored(known), ok, err
}
