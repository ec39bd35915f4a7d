package operate

import (
	"context"
	"errors"
	"testing"

	"example.org/mta/submission/http"
)

// TestATenantLeavesSearchesToOthers: it searches the log once at a time.
func TestATenantLeavesSearchesToOthers(t *testing.T) {
	s := NewSubmitted(Submitted{})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	end, err := s.turn(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.turn(gone, "acme"); !errors.Is(err, http.ErrBusy) {
		t.Errorf("a second search of a tenant: %v", err)
	}
	other, err := s.turn(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // what waited in vain keeps nothing
		if _, err := s.turn(gone, "third"); !errors.Is(err, http.ErrBusy) {
			t.Errorf("more searches than there may be: %v", err)
		}
	}
	other()
	for _, tenant := range []string{"third", "other"} {
		again, err := s.turn(t.Context(), tenant)
		if err != nil {
			t.Fatal(err)
		}
		again()
	}
	end()
}
