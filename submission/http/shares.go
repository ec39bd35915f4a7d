package http

import (
	"net/http"
	"sync"
)

// shares bounds the requests of each tenant that are under way at a time: a tenant whose bodies come slowly would hold
// all connections otherwise.
type shares struct {
	most int // three quarters of the connections

	mu sync.Mutex
	by map[string]int // requests under way, by tenant
}

// enter takes a request in, or returns the problem that refuses it. leave must be called at its end.
func (s *shares) enter(tenant string) (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[tenant] >= s.most {
		return nil, &Problem{
			Status: http.StatusTooManyRequests, RetryAfter: shortPause, Close: true, Reason: "share",
			Detail: "the tenant has too many requests under way: wait for their answers",
		}
	}
	if s.by == nil {
		s.by = make(map[string]int)
	}
	s.by[tenant]++
	return func() { s.leave(tenant) }, nil
}

func (s *shares) leave(tenant string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[tenant]--; s.by[tenant] == 0 {
		delete(s.by, tenant)
	}
}
