package submitted

import (
	"context"
	"encoding/json"
	"errors"

	"example.org/mta/mta/events"
	"example.org/mta/submission/http"
)

// Events gives tenants their events over HTTP.
type Events struct{ Puller *events.Puller }

// Pull implements http.Events.
func (t Events) Pull(ctx context.Context, tenant string, q http.EventQuery) (http.EventPage, error) {
	p, err := t.Puller.Pull(ctx,
		events.Pull{Tenant: tenant, After: q.After, Limit: q.Limit, Wait: q.Wait, Hurry: q.Hurry})
	switch {
	case errors.Is(err, events.ErrAfter):
		err = http.ErrNoEvent
	case errors.Is(err, events.ErrWaiting):
		err = http.ErrWaiting
	}
	page := http.EventPage{Events: make([]json.RawMessage, len(p.Events)), Next: p.Next}
	for i, e := range p.Events {
		page.Events[i] = e
	}
	return page, err
}
