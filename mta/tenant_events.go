package mta

import (
	"context"
	"encoding/json"
	"errors"

	"example.org/mta/mta/events"
	submissionhttp "example.org/mta/submission/http"
)

// tenantEvents gives tenants their events over HTTP.
type tenantEvents struct{ puller *events.Puller }

// Pull implements submissionhttp.Events.
func (t tenantEvents) Pull(ctx context.Context, tenant string, q submissionhttp.EventQuery) (submissionhttp.EventPage, error) {
	p, err := t.puller.Pull(ctx, events.Pull{Tenant: tenant, After: q.After, Limit: q.Limit, Wait: q.Wait, Hurry: q.Hurry})
	switch {
	case errors.Is(err, events.ErrAfter):
		err = submissionhttp.ErrNoEvent
	case errors.Is(err, events.ErrWaiting):
		err = submissionhttp.ErrWaiting
	}
	page := submissionhttp.EventPage{Events: make([]json.RawMessage, len(p.Events)), Next: p.Next}
	for i, e := range p.Events {
		page.Events[i] = e
	}
	return page, err
}
