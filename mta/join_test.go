package mta

import (
	"fmt"
	"testing"

	"mta/internal/route"
)

// TestSiteDomainsAreBounded: a site too many costs another one its place, and not all of them theirs.
func TestSiteDomainsAreBounded(t *testing.T) {
	var s siteDomains
	remember := func(i int) {
		s.remember(&route.Route{Site: fmt.Sprint("mx", i), Domain: fmt.Sprint("d", i), Provider: "big"})
	}
	for i := range maxSites + 1000 {
		remember(i)
	}
	remember(maxSites + 999) // again
	if len(s.bySite) != maxSites {
		t.Errorf("%d sites are remembered, want %d", len(s.bySite), maxSites)
	}
	if domain, provider := s.of(fmt.Sprint("mx", maxSites+999)); domain != fmt.Sprint("d", maxSites+999) || provider != "big" {
		t.Errorf("the last one is of %q, %q", domain, provider)
	}
}
