package http

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"example.org/mta/submission/auth"
)

// TestATenantLeavesConnectionsToOthers: a tenant whose requests last has three quarters of the connections, and another
// tenant's requests are answered meanwhile.
func TestATenantLeavesConnectionsToOthers(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	s := testServer(t, func(c *Config) {
		c.MaxConnections = 4
		c.Routes = append([]Route{{Method: "GET", Pattern: "/slow", Scope: auth.MayRead, Handle: func(c *Call) error {
			begun <- struct{}{}
			<-end
			return c.JSON(http.StatusOK, "done")
		}}}, testRoutes...)
	})
	var slow sync.WaitGroup
	for range 3 {
		slow.Go(func() {
			if w := ask(s, "GET", "/slow", "good", nil); w.Code != http.StatusOK {
				t.Errorf("one of its share: %d %s", w.Code, w.Body)
			}
		})
		<-begun
	}
	if w := ask(s, "GET", "/v1/messages/x", "good", nil); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", w.Code, w.Body)
	}
	if w := ask(s, "POST", "/v1/messages", "other", strings.NewReader("x")); w.Code != http.StatusAccepted {
		t.Errorf("another tenant: %d %s", w.Code, w.Body)
	}
	close(end)
	slow.Wait()
	if w := ask(s, "GET", "/v1/messages/x", "good", nil); w.Code != http.StatusOK || s.shares.Used() != 0 {
		t.Errorf("afterwards: %d %s, %v", w.Code, w.Body, s.shares.Used())
	}
}
