package events

import (
	"encoding/json"
	"time"

	"example.org/mta/mta/accounting"
)

// The types of the events that are in no log.
const (
	typeGap  = "Gap"
	typeTest = "Test"
)

// notice is an event that is in no log: Gap or Test.
type notice struct {
	Type    string `json:"type"`
	EventID string `json:"event_id"`
	Stream  string `json:"stream"`
	From    string `json:"from,omitempty"` // event ids
	To      string `json:"to,omitempty"`
	Since   string `json:"from_time,omitempty"`
	Until   string `json:"to_time,omitempty"`
	Count   int64  `json:"count,omitempty"` // 0: nobody knows

	Timestamp int64  `json:"timestamp"`
	EventTime string `json:"event_time"`
	NodeID    string `json:"nodeid"`
}

func (n *notice) event(at time.Time) Event {
	at = at.UTC().Truncate(time.Microsecond)
	n.Timestamp, n.EventTime = at.Unix(), at.Format(time.RFC3339Nano)
	line, _ := json.Marshal(n) // texts and numbers
	return Event{ID: n.EventID, Line: line, Type: n.Type, Time: at}
}

// gapWindow is the window that tells the receiver of a gap.
func (s *stream) gapWindow(g *gap) *window {
	n := notice{
		Type: typeGap, Stream: s.Name, From: g.From, To: g.To, Count: g.Count, NodeID: s.of.node,
		// The last lost event has this id for other streams, so it is one more.
		EventID: g.To + "-gap-" + s.Name,
	}
	if g.Unknown {
		n.Count = 0
	}
	if !g.Since.IsZero() {
		n.Since, n.Until = g.Since.Format(time.RFC3339Nano), g.Until.Format(time.RFC3339Nano)
	}
	e := n.event(s.of.now())
	at, _, _ := s.cursor()
	return &window{
		from: at, to: at, gap: true, first: e.Time.Add(time.Hour), events: 1, size: len(e.Line) + eventBytes,
		batches: []*Batch{{Events: []Event{e}, body: new(body)}},
	}
}

// lost counts an event that has waited for too long.
func (s *stream) lost(r *fields, at, next Position) {
	id := eventID(r, at, s.of.node)
	s.mu.Lock()
	if s.gap == nil {
		s.gap = &gap{From: id, Since: r.time()}
		s.counts.gaps++
	}
	g := *s.gap // others may read the one that there is
	g.To, g.Until = id, r.time()
	g.Count++
	s.gap, s.at = &g, next
	s.counts.lost++
	s.counts.gapAt = s.of.now()
	s.mu.Unlock()
	s.of.save(s, false)
}

// missed notes that files were deleted before the stream had read them.
func (s *stream) missed(from, to Position) {
	s.of.out.Error("accounting files were deleted before a stream had read them", "stream", s.Name, "from", from, "to", to)
	s.mu.Lock()
	g := gap{From: accounting.EventID(s.of.node, from)}
	if s.gap != nil {
		g = *s.gap
	} else {
		s.counts.gaps++
	}
	g.To, g.Unknown = accounting.EventID(s.of.node, to), true
	s.gap, s.at = &g, to
	s.counts.gapAt = s.of.now()
	s.mu.Unlock()
	s.of.save(s, false)
}
