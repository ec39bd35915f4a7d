package delivery

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/route"
)

// Whereabouts is where the recipients of one message are within the scheduler, for 'mta explain'.
type Whereabouts struct {
	Waiting  []WaitingPart // that no connection has
	Carriers []Carrier     // connections that have the others, or are being opened for the message
}

// WaitingPart is recipients of a message that wait for a connection together.
type WaitingPart struct {
	Site, Source string
	Recipients   []int // indexes into Message.Recipients; must be left alone
	Since        time.Time
	// Why is what the lane's first mail waits for, which all behind it wait for too; Until as in
	// LaneInfo.
	Why   string
	Until time.Time
}

// Carrier is a connection that has parts of a message.
type Carrier struct {
	Host    route.Host
	Source  string
	Session string // names the connection in logs
	Opening bool   // it has none yet
	Parts   int    // of this message
	Backlog int    // of all messages
}

// Whereabouts finds a message. It says false when the scheduler has nothing of it.
func (s *Scheduler) Whereabouts(id envelope.ID) (w Whereabouts, known bool) {
	all := s.WhereaboutsOf([]envelope.ID{id})
	w, known = all[id]
	return w, known
}

// WhereaboutsOf finds messages; those of which the scheduler has nothing are left out. Deliveries wait
// for it, some microseconds for each message and some for each hundred connections: whoever wants
// many takes a few hundred at a time.
func (s *Scheduler) WhereaboutsOf(ids []envelope.ID) map[envelope.ID]Whereabouts {
	now := s.cfg.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	asked := make(map[*message]*Whereabouts, len(ids))
	for _, id := range ids {
		if m := s.messages[id]; m != nil {
			asked[m] = &Whereabouts{Waiting: m.waitingParts(now)}
		}
	}
	if len(asked) > 0 {
		for c := range s.conns {
			c.carries(asked)
		}
	}
	all := make(map[envelope.ID]Whereabouts, len(asked))
	for m, w := range asked {
		slices.SortFunc(w.Carriers, func(a, b Carrier) int {
			return cmp.Or(strings.Compare(a.Host.String(), b.Host.String()), strings.Compare(a.Session, b.Session))
		})
		all[m.id] = *w
	}
	return all
}

// OnConnection reports whether a connection has a recipient of a message.
func (s *Scheduler) OnConnection(id envelope.ID, recipient int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[id]
	if m == nil {
		return false
	}
	for g := m.groups; g != nil; g = g.next {
		for p := g.first; p != nil; p = p.next {
			if slices.Contains(p.tx.Recipients, recipient) {
				return false
			}
		}
	}
	return true
}

// waitingParts are those of a message that no connection has.
func (m *message) waitingParts(now time.Time) (parts []WaitingPart) {
	for g := m.groups; g != nil; g = g.next {
		for p := g.first; p != nil; p = p.next {
			l := p.work.lane
			why := l.reason(now)
			parts = append(parts, WaitingPart{
				Site: l.laneKey.site, Source: l.laneKey.source, Recipients: p.tx.Recipients,
				Since: p.work.since, Why: why.What, Until: why.Until,
			})
		}
	}
	return parts
}

// carries adds the connection to the messages that it has parts of, or is being opened for.
func (c *connection) carries(asked map[*message]*Whereabouts) {
	add := func(w *Whereabouts, parts int, opening bool) {
		w.Carriers = append(w.Carriers,
			Carrier{Host: c.host, Source: c.source.Name, Session: c.id, Opening: opening, Parts: parts,
				Backlog: c.rec.Backlog})
	}
	for _, load := range c.cargo {
		if w := asked[load.message]; w != nil {
			add(w, load.parts, false)
		}
	}
	if w := asked[c.opener]; w != nil {
		add(w, 0, true)
	}
}
