package admit

import (
	"sync"
	"time"

	"example.org/mta/admission"
)

// shares knows how much tenants have offered over the last minute, by tier: one that offers far more
// than the others must not crowd them out because its cohort is better in this hour.
type shares struct {
	mu       sync.Mutex
	now, old [admission.Tiers]offers // old is what now was half a minute ago
	since    time.Time               // that now is counted
}

// offers counts the messages of a tier by tenant.
type offers struct {
	by  map[string]int
	all int
}

const (
	halfTime    = 30 * time.Second
	mostOfferer = 10_000 // tenants in each tier that are counted apart
	farMore     = 2      // times what the others offer on average
)

// count adds a message, and reports whether its tenant offers far more than the others.
func (s *shares) count(now time.Time, tier int, tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := now.Sub(s.since); d < 0 || d >= halfTime {
		if s.old, s.now, s.since = s.now, [admission.Tiers]offers{}, now; d >= 2*halfTime {
			s.old = [admission.Tiers]offers{}
		}
	}
	o := &s.now[tier]
	if o.by == nil {
		o.by = make(map[string]int)
	}
	if o.all++; len(o.by) < mostOfferer || o.by[tenant] > 0 {
		o.by[tenant]++
	}
	return s.heavy(tier, tenant)
}

// greedy reports whether a tenant offers far more than the others.
func (s *shares) greedy(tier int, tenant string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heavy(tier, tenant)
}

func (s *shares) heavy(tier int, tenant string) bool {
	now, old := &s.now[tier], &s.old[tier]
	others := max(len(now.by), len(old.by)) - 1
	its := now.by[tenant] + old.by[tenant]
	return others > 0 && its*others > farMore*(now.all+old.all-its)
}
