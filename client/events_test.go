package client

import (
	"errors"
	"testing"
	"time"
)

func TestEvents(t *testing.T) {
	c, r, waits := start(t, answer{status: 503, header: map[string]string{"Retry-After": "3"}}, answer{200, nil, `{"events":[
		{"type":"Bounce","id":"1","recipient":"ann@example.com","event_id":"n-1","bounce_classification":"InvalidRecipient","event_time":"2026-03-01T12:00:01.5Z","x":1}],"next":"n-1-next"}`})
	page, err := c.Events(t.Context(), EventQuery{After: "a b", Limit: 7, Wait: 30 * time.Second})
	if err != nil || len(page.Events) != 1 || page.Next != "n-1-next" {
		t.Fatalf("%+v, %v", page, err)
	}
	e := page.Events[0]
	if e.Type != "Bounce" || e.EventID != "n-1" || e.MessageID != "1" || e.Recipient != "ann@example.com" || e.Classification != "InvalidRecipient" || e.Time.Nanosecond() != 5e8 || len(e.Record) == 0 {
		t.Errorf("%+v", e)
	}
	if got := r.asked[1].URL.String(); got != "/v1/events?after=a+b&limit=7&wait=30" || r.asked[1].Header.Get("Authorization") != "Bearer mta_secret" || len(*waits) != 1 {
		t.Errorf("asked %s with %v after %v", got, r.asked[1].Header, *waits)
	}
	c, _, _ = start(t, answer{400, nil, `{"detail":"after: send an event_id"}`})
	var bad *Error
	if _, err := c.Events(t.Context(), EventQuery{After: "x"}); !errors.As(err, &bad) || bad.Status != 400 {
		t.Errorf("a bad after: %v", err)
	}
	c.Key = ""
	if _, err := c.Events(t.Context(), EventQuery{}); err == nil {
		t.Error("a client without a key asks")
	}
}
