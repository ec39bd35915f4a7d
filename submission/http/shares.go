package http

import "net/http"

// enter takes a request in, or returns the problem that refuses it: a tenant whose bodies come slowly would hold all
// connections otherwise. leave must be called at its end.
func (s *Server) enter(c *Call) (leave func(), err error) {
	if !s.shares.Take(1, c.part()) {
		return nil, &Problem{
			Status: http.StatusTooManyRequests, RetryAfter: shortPause, Close: true, Reason: "share",
			Detail: "the tenant has too many requests under way: wait for their answers",
		}
	}
	return func() { s.shares.Give(1, c.part()) }, nil
}
