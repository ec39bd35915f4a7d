package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Error is an answer that reports an error (RFC 9457).
type Error struct {
	Status    int           `json:"status"`
	Type      string        `json:"type"`
	Title     string        `json:"title"`
	Detail    string        `json:"detail"`
	Faults    []Fault       `json:"faults"`
	Messages  []SentMessage `json:"messages"` // what was accepted before the error, or refused
	RequestID string        `json:"-"`        // for who looks into the relay's log
	// RetryAfter is the wait that the relay asks for, 0 if it doesn't.
	RetryAfter time.Duration `json:"-"`

	token string
}

// Fault is something wrong with a request.
type Fault struct {
	Pointer string `json:"pointer"` // to the place (RFC 6901)
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy"`
}

// newError reads an answer.
func newError(resp *http.Response, body []byte) *Error {
	e := &Error{}
	if json.Unmarshal(body, e) != nil { // something between us and the relay has answered
		e.Detail = strings.TrimSpace(strings.ToValidUTF8(string(body[:min(len(body), 200)]), ""))
	}
	e.Status, e.RequestID = resp.StatusCode, resp.Header.Get("X-Request-Id")
	if e.Title == "" {
		e.Title = http.StatusText(e.Status)
	}
	e.RetryAfter, e.token = retryAfter(resp.Header, time.Now()), resp.Header.Get(queueToken)
	return e
}

// Error has the status, the detail and the faults.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.Status, e.Title)
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	for _, f := range e.Faults {
		fmt.Fprintf(&b, "; %s: %s", f.Pointer, f.Detail)
		if f.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", f.Remedy)
		}
	}
	return b.String()
}

// Temporary reports whether the same request can succeed later: the relay or something before it has
// failure, a limit is reached, or the first request with this key is under way.
func (e *Error) Temporary() bool {
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return e.Status >= 500 && e.Status != http.StatusNotImplemented && e.Status != http.StatusHTTPVersionNotSupported
}
