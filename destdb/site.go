package destdb

import (
	"time"

	"example.org/mta/internal/parking"
)

// Site is the set of hosts that serve a domain, as one budget.
type Site struct {
	Name string

	// Allowed is how many connections slow start has come to: 1 at first, more with good replies.
	Allowed float64
	// Usual is the rate at which the site takes mail when there is some, from one source, in messages a
	// second: what draining after an outage begins with. 0 is not known.
	Usual float64
	// DrainBegan is when the outage ended whose backlog is draining, zero when none is; DrainRate is how
	// far the rate from one source has come, in messages a second.
	DrainBegan time.Time
	DrainRate  float64
	// LastGood is when the site last took a message.
	LastGood time.Time
	// Actions are in force or were of late, oldest first.
	Actions []Action

	live int
	used time.Time
}

// Live counts the connections that were opened for the site's mail, from all sources.
func (s *Site) Live() int { return s.live }

// Action is something that this relay did by itself, on account of a reply.
type Action struct {
	What   string    `json:"what"`             // suspended, slowed, fewer connections
	Source string    `json:"source,omitempty"` // the source that it is about; "" is all
	Reason string    `json:"reason"`           // the reply, and the rule that it met
	Begin  time.Time `json:"begin"`
	End    time.Time `json:"end"`
	Slow   *Slow     `json:"slow,omitempty"` // of a slow-down
	// Waits is what mail waits for meanwhile, by the reply; Unclassed where an operator acted.
	Waits parking.Reason `json:"waits,omitempty"`
}

// Slow is how a slow-down limits mail: at first to a rate and some connections, each 0 for no limit. After some time
// without another refusal both double, and again and again, until the slow-down ends. A refusal takes one doubling
// back.
type Slow struct {
	Rate        float64       `json:"rate,omitempty"` // messages a second
	Connections int           `json:"connections,omitempty"`
	Hold        time.Duration `json:"hold"`              // from the last refusal to the next doubling
	Last        time.Time     `json:"last"`              // the last refusal
	Doubled     int           `json:"doubled,omitempty"` // how often it had doubled by then
}

const (
	slowDoublings = 8 // to 256 times the rate, where there is no limit any more
	slowSteps     = 5 // the doublings after the first come in a fifth of Hold
)

// End is when the slow-down ends, unless there is another refusal.
func (s *Slow) End() time.Time {
	return s.Last.Add(s.Hold + time.Duration(slowDoublings-s.Doubled)*s.Hold/slowSteps)
}

// Doublings is how often it has doubled by now.
func (s *Slow) Doublings(now time.Time) int {
	over := now.Sub(s.Last) - s.Hold
	if over < 0 {
		return s.Doubled
	}
	return min(s.Doubled+1+int(over/max(s.Hold/slowSteps, 1)), slowDoublings)
}

// Allows is the rate, in messages a second, and the connections that it allows now; 0: no limit.
func (s *Slow) Allows(now time.Time) (rate float64, connections int) {
	n := s.Doublings(now)
	return s.Rate * float64(int(1)<<n), s.Connections << n
}

// AddTo gives actions with a among them, in place of those like it that end no later: a command
// that is given again and again must not pile them up.
func (a Action) AddTo(actions []Action) []Action {
	all := make([]Action, 0, len(actions)+1)
	for _, other := range actions {
		if other.What != a.What || other.Source != a.Source || other.End.After(a.End) {
			all = append(all, other)
		}
	}
	return append(all, a)
}

// Site gives the site of that name, making it if need be.
func (db *DB) Site(name string) *Site {
	s := db.sites[name]
	if s == nil {
		s = &Site{Name: name, Allowed: 1}
		db.sites[name] = s
		db.sitesInOrder.insert(s)
	}
	return s
}

// Touched notes that s was changed.
func (db *DB) Touched(s *Site, now time.Time) {
	s.used = now
	db.touch(s.key())
}

func (db *DB) dropSite(s *Site) {
	delete(db.sites, s.Name)
	db.sitesInOrder.remove(s.Name)
	db.touch(s.key())
}

func (s *Site) key() Key { return Key{Site: s.Name} }
