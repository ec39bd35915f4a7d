package dispatch

import (
	"sync"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
)

// Sites remembers the provider of each site, since the queue knows sites only. It is bounded: of
// what it has forgotten the provider is not known until it is routed again.
type Sites struct {
	mu     sync.Mutex // guards bySite
	bySite map[string]string
}

// maxSites is how many sites are remembered.
const maxSites = 100_000

func (s *Sites) remember(rt *route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySite == nil {
		s.bySite = make(map[string]string)
	}
	if _, known := s.bySite[rt.Site]; !known && len(s.bySite) >= maxSites {
		for any := range s.bySite {
			delete(s.bySite, any) // it is remembered when it is routed again
			break
		}
	}
	s.bySite[rt.Site] = rt.Provider
}

// Provider gives the provider of what waits under a key, that of a site or of a warm-up; false when it is
// not known whether it has one.
func (s *Sites) Provider(key parking.Key) (name string, known bool) {
	if key.Kind == parking.Tokens {
		return key.Provider, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	name, known = s.bySite[key.Site()]
	return name, known
}
