package delivery

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"mta/internal/envelope"
	"mta/internal/route"
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
	s.mu.Lock()
	defer s.mu.Unlock()
	m := s.messages[id]
	if m == nil {
		return w, false
	}
	now := s.cfg.Now()
	for g := m.groups; g != nil; g = g.next {
		for p := g.first; p != nil; p = p.next {
			l := p.work.lane
			why := l.reason(now)
			w.Waiting = append(w.Waiting, WaitingPart{
				Site: l.laneKey.site, Source: l.laneKey.source, Recipients: p.tx.Recipients,
				Since: p.work.since, Why: why.What, Until: why.Until,
			})
		}
	}
	for c := range s.conns {
		carrier := Carrier{Host: c.host, Source: c.source.Name, Session: c.id, Opening: c.opener == m, Backlog: c.rec.Backlog}
		for _, load := range c.cargo {
			if load.message == m {
				carrier.Parts = load.parts
			}
		}
		if carrier.Opening || carrier.Parts > 0 {
			w.Carriers = append(w.Carriers, carrier)
		}
	}
	slices.SortFunc(w.Carriers, func(a, b Carrier) int {
		return cmp.Or(strings.Compare(a.Host.String(), b.Host.String()), strings.Compare(a.Session, b.Session))
	})
	return w, true
}
