package dispatch

import (
	"fmt"
	"testing"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
)

// TestProvidersAreBounded: a site too many costs another one its place, and not all of them theirs.
func TestProvidersAreBounded(t *testing.T) {
	var s Sites
	remember := func(i int) {
		s.remember(&route.Route{Site: fmt.Sprint("mx", i), Provider: "big"})
	}
	for i := range maxSites + 1000 {
		remember(i)
	}
	remember(maxSites + 999) // again
	if len(s.bySite) != maxSites {
		t.Errorf("%d sites are remembered, want %d", len(s.bySite), maxSites)
	}
	if provider, known := s.Provider(parking.Key{Name: fmt.Sprint("mx", maxSites+999)}); !known || provider != "big" {
		t.Errorf("the last one is of %q", provider)
	}
}
