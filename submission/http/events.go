package http

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"example.org/mta/submission/auth"
)

// Events gives tenants what became of their mail.
type Events interface {
	// Pull returns the tenant's own events, and those of nobody else.
	Pull(ctx context.Context, tenant string, q EventQuery) (EventPage, error)
}

// Errors of Events.
var (
	// ErrNoEvent is returned for an After that is none.
	ErrNoEvent = errors.New("no such event")
	// ErrWaiting is returned when too many wait already.
	ErrWaiting = errors.New("too many wait for events")
)

// EventQuery selects events.
type EventQuery struct {
	// After is an event's id, the Next of a page, "now", "@" and a time (RFC 3339) for the events since then, or "" for
	// the oldest.
	After string
	Limit int
	Brief bool            // little is looked through: a page can be empty sooner
	Wait  time.Duration   // for the first event, if there is none
	Hurry <-chan struct{} // closed when nobody should wait any more
}

// EventPage is a part of a tenant's events.
type EventPage struct {
	Events []json.RawMessage `json:"events"` // the oldest first
	Next   string            `json:"next"`   // the parameter after of the next request
	// nodes of the cluster that have not answered: their events come with later pages
	Unanswered []int `json:"unanswered,omitempty"`
}

const (
	eventsShown        = 100
	eventsMost         = 1000
	longestWaitSeconds = 60
)

func (s *Server) eventRoutes() []Route {
	if s.config.Events == nil {
		return nil
	}
	return []Route{{Method: http.MethodGet, Pattern: "/v1/events", Scope: auth.MayReadEvents, Handle: s.listEvents}}
}

func (s *Server) listEvents(c *Call) error {
	q, err := c.eventQuery()
	if err != nil {
		return err
	}
	q.Hurry = s.leaving
	page, err := s.config.Events.Pull(c.Context(), c.Identity.Tenant, q)
	switch {
	case errors.Is(err, ErrNoEvent):
		return Problemf(http.StatusBadRequest,
			"after: send an event_id of this relay, the next of a page, now, or @ and a time (RFC 3339)")
	case errors.Is(err, ErrWaiting):
		return &Problem{Status: http.StatusTooManyRequests,
			Detail: "too many requests wait for events: send fewer at a time, or without wait", RetryAfter: shortPause}
	case errors.Is(err, context.Canceled):
		return err
	case err != nil:
		return &Problem{Status: http.StatusServiceUnavailable, Detail: "events can't be read at present: try again",
			RetryAfter: shortPause, Cause: err}
	}
	if page.Events == nil {
		page.Events = []json.RawMessage{} // never null
	}
	return c.JSON(http.StatusOK, page)
}

// eventQuery reads the parameters.
func (c *Call) eventQuery() (EventQuery, error) {
	q := EventQuery{Limit: eventsShown}
	values, err := c.parameters("after", "limit", "wait")
	if err != nil {
		return q, err
	}
	q.After = values["after"]
	if text, given := values["limit"]; given {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > eventsMost {
			return q, Problemf(http.StatusBadRequest, "limit: send a whole number, 1 to %d", eventsMost)
		}
	}
	if text, given := values["wait"]; given {
		seconds, err := strconv.Atoi(text)
		if err != nil || seconds < 0 || seconds > longestWaitSeconds {
			return q, Problemf(http.StatusBadRequest, "wait: send whole seconds, 0 to %d", longestWaitSeconds)
		}
		q.Wait = time.Duration(seconds) * time.Second
	}
	return q, nil
}
