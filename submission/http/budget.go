package http

import (
	"net/http"

	"example.org/mta/internal/fair"
)

// Memory is a budget for what requests under way hold of their bodies, of all servers that share it. Tenants share
// it, too.
type Memory = fair.Pool[string]

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory { return fair.NewPool[string](limit) }

// part is a tenant's part of a pool.
func (c *Call) part() fair.Part[string] {
	return fair.Part[string]{Key: c.Identity.Tenant, Times: fair.Usual}
}

// What a request takes of the budget.
const (
	copies     = 4 // of each octet: the body, its strings, its decoded files, and what is built of them
	memoryStep = 64 << 10
	streamed   = 1 << 20 // of a body that is taken in bounded memory
)

// hold takes memory for so many octets of the body.
func (c *Call) hold(octets int64) error {
	need := copies * octets
	if c.streams {
		need = min(streamed, copies*c.body.most)
	}
	return c.holdMore(need - c.held)
}

// holdMore takes memory for what a handler makes of the body, in octets.
func (c *Call) holdMore(octets int64) error {
	if octets <= 0 {
		return nil
	}
	more := (octets + memoryStep - 1) / memoryStep * memoryStep
	if !c.server.config.Memory.Take(more, c.part()) {
		return &Problem{
			Status: http.StatusServiceUnavailable, RetryAfter: shortPause, Close: true, Reason: "memory",
			Detail: "too many large requests are under way: try again",
		}
	}
	c.held += more
	return nil
}

// release gives back what the request took.
func (c *Call) release() {
	c.server.config.Memory.Give(c.held, c.part())
	c.held = 0
}

// room decides, before the body is read, whether the request has a place.
func (s *Server) room(c *Call) error {
	if c.body.done {
		return nil
	}
	if err := c.body.check(); err != nil {
		return err
	}
	c.streams = c.Route.Streamed != nil && c.Route.Streamed(c.Request)
	return c.hold(max(c.Request.ContentLength, 1))
}
