package http

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"example.org/mta/internal/bubble"
)

// someEvents are those of tests: the tenant and the question come back as an event.
type someEvents struct{}

func (someEvents) Pull(ctx context.Context, tenant string, q EventQuery) (EventPage, error) {
	switch q.After {
	case "bad":
		return EventPage{}, ErrNoEvent
	case "busy":
		return EventPage{}, ErrWaiting
	case "broken":
		return EventPage{}, errors.New("secret of the log")
	case "nothing":
		select {
		case <-q.Hurry:
		case <-time.After(q.Wait):
		case <-ctx.Done():
			return EventPage{}, ctx.Err()
		}
		return EventPage{Next: "n"}, nil
	}
	event, _ := json.Marshal(map[string]any{"tenant": tenant, "after": q.After, "limit": q.Limit, "wait": q.Wait.String()})
	return EventPage{Events: []json.RawMessage{event}, Next: "n"}, nil
}

func TestEvents(t *testing.T) {
	s := wholeServer(t)
	for query, want := range map[string]string{
		"":                            `{"events":[{"after":"","limit":100,"tenant":"acme","wait":"0s"}],"next":"n"}`,
		"?after=x&limit=7&wait=60":    `{"events":[{"after":"x","limit":7,"tenant":"acme","wait":"1m0s"}],"next":"n"}`,
		"?after=nothing":              `{"events":[],"next":"n"}`,
		"?limit=0":                    "limit: send a whole number, 1 to 1000",
		"?limit=1001":                 "limit: send",
		"?wait=61":                    "wait: send whole seconds, 0 to 60",
		"?wait=-1":                    "wait: send",
		"?wait=9223372036854775807":   "wait: send",
		"?wait=x":                     "wait: send",
		"?after=bad":                  "after: send",
		"?after=busy":                 "too many requests wait",
		"?after=broken":               "try again",
		"?tenant=other":               "there is no parameter",
		"?after=x&after=y":            "send it once",
		"?after=x&limit=7&tenant=any": "there is no parameter",
	} {
		w := ask(s, "GET", "/v1/events"+query, "good", nil)
		answer := w.Body.String()
		switch {
		case !strings.Contains(answer, want):
			t.Errorf("%s: %d %s, want %s", query, w.Code, answer, want)
		case strings.Contains(answer, "secret"):
			t.Errorf("%s: %s", query, answer)
		case want[0] == '{' && w.Code != http.StatusOK:
			t.Errorf("%s: %d", query, w.Code)
		}
	}
}

// TestEventsEndWithTheServer: requests that wait are answered when the relay stops, and don't hold it up.
func TestEventsEndWithTheServer(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		s := wholeServer(t)
		answered := make(chan int)
		go func() { answered <- ask(s, "GET", "/v1/events?after=nothing&wait=60", "good", nil).Code }()
		synctest.Wait()
		began := time.Now()
		go s.Shutdown(context.Background())
		if code := <-answered; code != http.StatusOK || time.Since(began) > time.Second {
			t.Errorf("%d after %v", code, time.Since(began))
		}
		synctest.Wait()
	})
}
