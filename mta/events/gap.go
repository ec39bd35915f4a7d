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
	Count   int64  `json:"count,omitempty"` // 0: unknown

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

// gapWindow is the window that announces a gap to the receiver.
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
		n.Since = g.Since.Format(time.RFC3339Nano)
	}
	if !g.Until.IsZero() {
		n.Until = g.Until.Format(time.RFC3339Nano)
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
	fresh := s.gap == nil
	g := s.widened(id)
	if fresh {
		g.Since = r.time()
	}
	g.To, g.Until = id, r.time()
	if g.Unknown {
		g.To = accounting.EventID(s.of.node, next)
	}
	g.Count++
	s.gap, s.at = &g, next
	s.counts.lost++
	s.mu.Unlock()
	s.of.save(s, false)
}

// missed notes that files were deleted before the stream had read them, or can't be read.
func (s *stream) missed(m *accounting.MissingError) {
	s.of.out.Error("accounting files were deleted or damaged before a stream had read them", "stream", s.Name,
		"from", m.From, "to", m.Next())
	s.mu.Lock()
	g := s.widened(accounting.EventID(s.of.node, m.From))
	if !g.Unknown || s.counts.uncounted == 0 {
		s.counts.uncounted++
	}
	g.To, g.Until, g.Unknown = accounting.EventID(s.of.node, m.Next()), time.Time{}, true
	s.gap, s.at = &g, m.To
	s.mu.Unlock()
	s.of.save(s, false)
}

// widened returns a copy of the gap that the receiver has yet to hear of, since others may read that one, or a new gap
// from an event on. A gap of the time before a restart counts again when it grows: the counts began anew. The caller
// holds the lock.
func (s *stream) widened(from string) gap {
	if s.gap == nil || s.counts.gaps == 0 {
		s.counts.gaps++
	}
	s.counts.gapAt = s.of.now()
	if s.gap != nil {
		return *s.gap
	}
	return gap{From: from}
}
