package http

import (
	"net/http"
	"sync/atomic"
)

// Memory is a budget for what requests under way hold of their bodies, of all servers that share it.
type Memory struct{ limit, used atomic.Int64 }

// NewMemory makes a budget of so many octets.
func NewMemory(limit int64) *Memory {
	m := new(Memory)
	m.SetLimit(limit)
	return m
}

// SetLimit changes the budget. What is taken stays taken.
func (m *Memory) SetLimit(octets int64) { m.limit.Store(octets) }

// take reports whether n octets could be had. A nil Memory has no limit.
func (m *Memory) take(n int64) bool {
	if m == nil {
		return true
	}
	if m.used.Add(n) <= m.limit.Load() {
		return true
	}
	m.used.Add(-n)
	return false
}

func (m *Memory) give(n int64) {
	if m != nil {
		m.used.Add(-n)
	}
}

// Used returns how many octets are taken.
func (m *Memory) Used() int64 { return m.used.Load() }

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
		need = streamed
	}
	return c.holdMore(need - c.held)
}

// holdMore takes memory for what a handler makes of the body, in octets.
func (c *Call) holdMore(octets int64) error {
	if octets <= 0 {
		return nil
	}
	more := (octets + memoryStep - 1) / memoryStep * memoryStep
	if !c.server.config.Memory.take(more) {
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
	c.server.config.Memory.give(c.held)
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
