package http

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/submission/request"
)

// Problem is an answer that reports an error (RFC 9457). As an error of a handler it is written for
// it; all other errors become a 500 without their text, and a line in the log.
type Problem struct {
	Type   string // a URI reference; "": about:blank
	Title  string // "": the text of the status
	Status int
	Detail string // what is wrong in this case, and the remedy
	Faults request.Faults
	// Extra are members beside the standard's, such as the messages that were accepted before the error.
	Extra map[string]any
	// RetryAfter is how long the client should wait before another try, rounded up to seconds. 0: unset.
	RetryAfter time.Duration
	Header     http.Header // further fields of the answer
	Close      bool        // the connection ends with the answer
	Cause      error       // for the log; the client doesn't see it
	Reason     string      // a label of the metrics; "": the status alone

	hold func(context.Context) // keeps the client waiting for the answer; nil: it gets it at once
}

// Error returns the status and the detail.
func (p *Problem) Error() string {
	s := fmt.Sprintf("%d %s", p.Status, p.title())
	if p.Detail != "" {
		s += ": " + p.Detail
	}
	if p.Cause != nil {
		s += ": " + p.Cause.Error()
	}
	return s
}

// Unwrap returns the cause.
func (p *Problem) Unwrap() error { return p.Cause }

// Problemf makes a problem of a status and its detail.
func Problemf(status int, format string, args ...any) *Problem {
	return &Problem{Status: status, Detail: fmt.Sprintf(format, args...)}
}

func (p *Problem) title() string {
	if p.Title != "" {
		return p.Title
	}
	return http.StatusText(p.Status)
}

// MarshalJSON gives the form of RFC 9457, 3.
func (p *Problem) MarshalJSON() ([]byte, error) {
	out := make(map[string]any, 5+len(p.Extra))
	maps.Copy(out, p.Extra)
	out["status"], out["title"], out["type"] = p.Status, p.title(), "about:blank"
	if p.Type != "" {
		out["type"] = p.Type
	}
	if p.Detail != "" {
		out["detail"] = p.Detail
	}
	if len(p.Faults) > 0 {
		faults := make([]fault, len(p.Faults))
		for i, f := range p.Faults {
			faults[i] = fault(f)
		}
		out["faults"] = faults
	}
	return plainJSON(out)
}

// plainJSON leaves <, > and & as they are: no browser takes it for HTML.
func plainJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// fault is something wrong with a request.
type fault struct {
	Pointer string `json:"pointer"` // to the place in the request (RFC 6901)
	Detail  string `json:"detail"`
	Remedy  string `json:"remedy,omitempty"`
}

// asProblem makes the answer of an error: a Problem is one, Faults of the request are a 400.
func asProblem(err error) *Problem {
	var p *Problem
	var faults request.Faults
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &faults):
		return &Problem{Status: http.StatusBadRequest, Title: "The request is not valid",
			Detail: "nothing was accepted", Faults: faults}
	}
	return &Problem{Status: http.StatusInternalServerError,
		Detail: "the log of the relay has the cause under this request's id", Cause: err}
}

// Form is how errors look below a path, for the clients of other services.
type Form struct {
	Path string // and all that is below it: "/v3"
	// Write writes an error. The fields of the problem are in the header already.
	Write func(c *Call, p *Problem)
}

func (f *Form) has(path string) bool {
	rest, ok := strings.CutPrefix(path, f.Path)
	return ok && (rest == "" || rest[0] == '/')
}

// write sends the problem.
func (p *Problem) write(w http.ResponseWriter) {
	body, err := plainJSON(p)
	if err != nil { // an Extra that JSON can't have
		body = []byte(`{"status":500}`)
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(p.Status)
	w.Write(body)
}

// fields puts into the header what belongs to the problem, whatever form its body has.
func (p *Problem) fields(h http.Header) {
	maps.Copy(h, p.Header)
	if p.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(seconds(p.RetryAfter)))
	}
	if p.Close {
		h.Set("Connection", "close")
	}
}

// refusals say how an answer of intake that concerns a whole message looks to an HTTP client. The first row
// counts that fits; docs/http.md has the table. Trouble of the relay is never a 4xx.
var refusals = []struct {
	code     int
	enhanced reply.Enhanced // zero: any
	status   int
	wait     time.Duration // until another try
	reason   string
}{
	{450, reply.Enhanced{4, 7, 1}, http.StatusTooManyRequests, 10 * time.Second, "quota"},
	{451, reply.Enhanced{4, 3, 2}, http.StatusServiceUnavailable, time.Minute, "overload"},
	{421, reply.Enhanced{4, 3, 2}, http.StatusServiceUnavailable, time.Minute, "overload"},
	{452, reply.Enhanced{4, 3, 1}, http.StatusServiceUnavailable, 30 * time.Second, "storage"},
	{552, reply.Enhanced{5, 3, 4}, http.StatusRequestEntityTooLarge, 0, "too_large"},
	{550, reply.Enhanced{5, 7, 1}, http.StatusForbidden, 0, "sender"},
}

// problemOf is the answer to a request whose messages were refused with a reply.
func problemOf(r *reply.Reply) *Problem {
	p := &Problem{Status: http.StatusUnprocessableEntity, Detail: r.Text, Reason: "refused",
		Extra: map[string]any{"code": r.Status().String()}}
	if r.Temporary() {
		p.Status, p.RetryAfter, p.Reason = http.StatusServiceUnavailable, 30*time.Second, "relay"
	}
	for _, row := range refusals {
		if row.code == r.Code && (row.enhanced == reply.Enhanced{} || row.enhanced == r.Enhanced) {
			p.Status, p.RetryAfter, p.Reason = row.status, row.wait, row.reason
			break
		}
	}
	return p
}
