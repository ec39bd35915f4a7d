package mta

import (
	"context"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/operator/answer/submitted"
)

// answersTenants makes what answers tenants about the mail that they submitted.
func (r *mailIn) answersTenants() *submitted.Submitted {
	return submitted.New(submitted.Submitted{
		Messages: &r.queued, LogDir: r.accountingDir, Flush: r.flushAccounting, Keyed: r.messagesOfRequest,
	})
}

// accountingDir is where the accounting log is; "" while it is switched off.
func (r *stores) accountingDir() string {
	if r.accounting == nil {
		return ""
	}
	return r.policy.Load().Config.Accounting.Path
}

func (r *stores) flushAccounting(ctx context.Context) error { return r.accounting.Flush(ctx) }

// messagesOfRequest gives the ids of the messages that came with an Idempotency-Key.
func (r *mailIn) messagesOfRequest(tenant, key string) ([]envelope.ID, bool, error) {
	known, ok, err := r.repeats.Taken(tenant, key)
	var ids []envelope.ID
	for _, id := range known.IDs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, ok, err
}
