package delivery

// Usage is what is under way, by source and by provider.
type Usage struct {
	Sources, Providers map[string]Load
}

// Load is what is under way in a scope.
type Load struct {
	Connections int // those that are being opened included
	Waiting     int // transactions that no connection has
	Running     int // transactions on connections
}

// Usage counts what is under way. Deliveries wait for it, some nanoseconds for each lane and limit.
func (s *Scheduler) Usage() Usage {
	u := Usage{Sources: make(map[string]Load), Providers: make(map[string]Load)}
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, b := range s.budgets {
		switch key.kind {
		case scopeSource:
			u.Sources[key.source] = Load{Connections: b.live}
		case scopeProvider:
			u.Providers[key.name] = Load{Connections: b.live}
		}
	}
	for key, l := range s.lanes {
		u.Sources[key.source] = u.Sources[key.source].with(l)
		if p := l.route.Provider; p != "" {
			u.Providers[p] = u.Providers[p].with(l)
		}
	}
	return u
}

func (u Load) with(l *lane) Load {
	u.Waiting += l.waiting.n
	u.Running += l.running
	return u
}

// Party is a kind of name that connections are counted for.
type Party scopeKind

// Parties.
const (
	PartySource   = Party(scopeSource)
	PartyProvider = Party(scopeProvider)
	PartySite     = Party(scopeSite)
)

// LiveOf counts the connections of some names of a kind, those that are being opened included. Unlike Usage it
// looks at nothing else.
func (s *Scheduler) LiveOf(of Party, names []string) []int {
	counts := make([]int, len(names))
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, name := range names {
		key := budgetKey{kind: scopeKind(of), name: name}
		if of == PartySource {
			key = budgetKey{kind: scopeSource, source: name}
		}
		if b := s.budgets[key]; b != nil {
			counts[i] = b.live
		}
	}
	return counts
}
