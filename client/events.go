package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// EventQuery selects events.
type EventQuery struct {
	// After is the Next of the page before, the event_id of an event, or "now" for those that come from now on.
	// Empty: from the oldest that the relay keeps.
	After string
	Limit int           // of a page, 1 to 1,000. 0: 100
	Wait  time.Duration // for the first event, if there is none: whole seconds, up to a minute
}

// Events is a page of events of the tenant's mail.
type Events struct {
	Events []Event
	Next   string // the After of the next request
	// Unanswered are the nodes of the cluster that have not answered: their events come with later pages.
	Unanswered []int
}

// Event is what became of a message. Its record has more, which the relay's manual names.
type Event struct {
	Type           string          `json:"type"` // as Delivery
	EventID        string          `json:"event_id"`
	MessageID      string          `json:"id"`
	Recipient      string          `json:"recipient"`
	Classification string          `json:"bounce_classification"`
	Time           time.Time       `json:"event_time"`
	Record         json.RawMessage `json:"-"` // all of it
}

// Events returns the next events of the tenant's mail, whose key needs the scope events. A page can be empty: ask
// again with its Next. It tries again as Send does.
func (c *Client) Events(ctx context.Context, q EventQuery) (*Events, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	to := strings.TrimSuffix(c.URL, "/") + "/v1/events?" + q.query().Encode()
	header := http.Header{"Authorization": {"Bearer " + c.Key},
		"Accept": {"application/json, application/problem+json"}}
	t := c.newTries()
	for {
		_, answer, err := c.exchange(ctx, http.MethodGet, to, header, nil)
		if err == nil {
			return readEvents(answer)
		}
		if ctx.Err() != nil || !canHelp(err) || !t.again(ctx, err) {
			return nil, err
		}
	}
}

// query has the parameters.
func (q *EventQuery) query() url.Values {
	v := make(url.Values)
	if q.After != "" {
		v.Set("after", q.After)
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Wait != 0 {
		v.Set("wait", strconv.Itoa(int(q.Wait/time.Second)))
	}
	return v
}

func readEvents(answer []byte) (*Events, error) {
	var page struct {
		Events []json.RawMessage `json:"events"`
		Next   string            `json:"next"`

		Unanswered []int `json:"unanswered"`
	}
	if err := json.Unmarshal(answer, &page); err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	all := &Events{Next: page.Next, Unanswered: page.Unanswered}
	for _, record := range page.Events {
		e := Event{Record: record}
		if err := json.Unmarshal(record, &e); err != nil {
			return nil, fmt.Errorf("reading an event: %w", err)
		}
		all.Events = append(all.Events, e)
	}
	return all, nil
}
