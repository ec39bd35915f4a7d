package mta

import (
	"net"
	"strings"
	"testing"
	"time"

	"example.org/mta/lab/sink"
)

// TestPoolsAndRoutesByDomain: the recipient's domain decides before the sender's, and that before the tenant.
func TestPoolsAndRoutesByDomain(t *testing.T) {
	_, port := smarthost(t)
	w := newWorld(t, sink.Config{}, strings.ReplaceAll(`
		defaults { smtp_port = PORT }
		source "out" { address = "127.0.0.1" }
		source "slow" { address = "127.0.0.2" }
		source "brand" { address = "127.0.0.3" }
		pool "default" { shared = ["out"] }
		pool "slow" { shared = ["slow"] }
		pool "brand" { shared = ["brand"] }
		domain "*" { route = ["smtp://127.0.0.1:1"] }
		domain "box.example" {
			route = []
			pool  = "slow"
		}
		domain "direct.example" { route = [] }
		sender_domain "client.example" {
			pool  = "brand"
			route = ["smtp://127.0.0.1:SMART"]
		}`, "SMART", port))
	_, smart, _ := net.SplitHostPort(net.JoinHostPort("127.0.0.1", port))
	for to, want := range map[string][2]string{"bob@box.example": {"slow", "mx.box.example"}, "carl@any.example": {"brand", "127.0.0.1:" + smart}} {
		id := w.accepted("", to, time.Time{})
		if rec := w.await(to, "Delivery"); rec.EgressPool != want[0] || rec.EgressSource != want[0] || rec.Site != want[1] {
			t.Errorf("%s: %s left from %s of %s for %s, want %v", to, id, rec.EgressSource, rec.EgressPool, rec.Site, want)
		}
	}
}
