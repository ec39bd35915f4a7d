package intake

import (
	"strings"
	"testing"
	"time"
)

// The exemptions come back after a clock was set back, and the tenants that need none are forgotten.
func TestExemptionsKeep(t *testing.T) {
	var e exemptions
	now := time.Unix(1e9, 0)
	for range exemptRate.Burst {
		e.take(now, "a")
	}
	if e.take(now, "a") || !e.take(now.Add(-24*time.Hour), "a") {
		t.Error("after a clock was set back a tenant has no exemption")
	}
	for i := range 3 * maxPaces {
		e.take(now.Add(time.Duration(i)*time.Minute), strings.Repeat("x", i))
	}
	if len(e.paces) > maxPaces {
		t.Errorf("%d tenants are kept", len(e.paces))
	}
}
