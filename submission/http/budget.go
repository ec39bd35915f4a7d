package http

import (
	"net/http"
	"sync"
)

// Memory is a budget for what requests under way hold of their bodies, of all servers that share it. A tenant has
// three quarters of it at most, so that no tenant's requests refuse those of all others.
type Memory struct {
	mu    sync.Mutex
	limit int64
	used  int64
	by    map[string]int64 // used, by tenant
}

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory { return &Memory{limit: limit, by: make(map[string]int64)} }

// SetLimit changes the budget. What is taken stays taken.
func (m *Memory) SetLimit(octets int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = octets
}

// take reports whether a tenant could have n octets. A nil Memory has no limit.
func (m *Memory) take(tenant string, n int64) bool {
	if m == nil {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used+n > m.limit || m.by[tenant]+n > m.limit/4*3 {
		return false
	}
	m.used += n
	m.by[tenant] += n
	return true
}

func (m *Memory) give(tenant string, n int64) {
	if m == nil || n == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.used -= n
	if m.by[tenant] -= n; m.by[tenant] == 0 {
		delete(m.by, tenant)
	}
}

// Used returns how many octets are taken.
func (m *Memory) Used() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
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
	if !c.server.config.Memory.take(c.Identity.Tenant, more) {
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
	c.server.config.Memory.give(c.Identity.Tenant, c.held)
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
