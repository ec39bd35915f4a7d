package dispatch

import (
	"sync"

	"example.org/mta/internal/parking"
	"example.org/mta/internal/route"
)

// Sites remembers the provider of each site, since the queue knows sites only, and of each domain, for mail that
// waits for something else. It is bounded: of what it has forgotten the provider is not known until it is routed
// again.
type Sites struct {
	mu     sync.Mutex // guards bySite
	bySite map[string]string
}

// maxSites is how many sites and domains are remembered.
const maxSites = 100_000

func (s *Sites) remember(rt *route.Route) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bySite == nil {
		s.bySite = make(map[string]string)
	}
	for _, name := range [...]string{rt.Site, rt.Domain} {
		if _, known := s.bySite[name]; !known && len(s.bySite) >= maxSites {
			for any := range s.bySite {
				delete(s.bySite, any) // it is remembered when it is routed again
				break
			}
		}
		s.bySite[name] = rt.Provider
	}
}

// ProviderOf gives the provider of mail that waits under a key and takes the route of a domain; false when it is
// not known whether it has one.
func (s *Sites) ProviderOf(key parking.Key, domain string) (name string, known bool) {
	if name, known = s.Provider(key); known {
		return name, true
	}
	return s.Provider(parking.Key{Name: domain})
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
