package http

import (
	"net/http"
	"time"

	"example.org/mta/internal/reply"
)

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
