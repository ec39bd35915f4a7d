package events

import (
	"context"
	"errors"
	"fmt"
	"time"

	"example.org/mta/internal/legible"
	"example.org/mta/mta/accounting"
)

// The states of a stream.
const (
	Following = "following" // at the head of the log
	Behind    = "behind"    // it reads files, to get to the head
	Failing   = "failing"   // the last request failed
	Paused    = "paused"    // by an operator
)

// Status is how a stream is.
type Status struct {
	Name  string
	To    string
	State string
	At    Position // everything before was answered

	LagEvents int64         // about how many events wait
	LagBytes  int64         // of the log, of all records
	Lag       time.Duration // since the oldest event that waits; 0: none does

	Rate      float64 // events a second, in the last minute
	Delivered int64   // events, since the start of the relay; so are the next six
	Batches   int64
	Failures  int64
	Refused   int64 // events that were set aside
	Gaps      int64
	Uncounted int64 // gaps of files that were deleted or damaged, with an unknown number of events
	Lost      int64 // events in gaps, as far as they were counted

	Tries     int // in a row that failed
	LastError string
	ErrorAt   time.Time
	NextTry   time.Time
	SentAt    time.Time // the last success
	RefusedAt time.Time
	GapAt     time.Time
	Hold      time.Duration
}

// ErrUnknown is the error for a stream that is not configured.
var ErrUnknown = errors.New("there is no such stream")

// List gives all streams by name.
func (s *Streams) List() []Status {
	all := s.list()
	list := make([]Status, len(all))
	for i, st := range all {
		list[i] = s.status(st)
	}
	return list
}

// Known reports whether there is the cursor of a stream, configured or not.
func (s *Streams) Known(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, old := s.old[name]
	return old || s.all[name] != nil
}

// Broken returns why cursors can't be written; "" when they can.
func (s *Streams) Broken() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

func (s *Streams) status(st *stream) Status {
	now := s.now()
	end := s.log.Synced()
	queued, oldest, joined := s.head.queued(st.member)
	share := s.head.share(st.member)
	st.mu.Lock()
	defer st.mu.Unlock()
	c := &st.counts
	r := Status{
		Name: st.Name, To: st.To, State: Behind, Hold: st.Hold,
		Rate: c.rate.perSecond(now), Delivered: c.delivered, Batches: c.requests, Failures: c.failures,
		Refused: c.refused, Gaps: c.gaps, Uncounted: c.uncounted, Lost: c.lost,
		Tries: c.tries, LastError: c.lastError, ErrorAt: c.errorAt, NextTry: c.next, SentAt: c.sentAt,
		RefusedAt: c.refusedAt, GapAt: c.gapAt,
	}
	from := st.at
	if w := st.hand; w != nil && !w.gap {
		queued += w.events
		from, oldest = w.to, w.first
	}
	r.LagEvents = int64(queued)
	r.At = st.at
	if to, idle := s.head.reached(st.member); idle && queued == 0 {
		r.At = to // what the head has read; the log may have more
	}
	r.LagBytes = max(0, s.log.Octets(r.At, end))
	if joined {
		r.State = Following
	} else {
		r.LagEvents += int64(share * float64(s.log.Octets(from, end)))
	}
	if oldest.IsZero() && !joined && r.LagBytes > 0 {
		oldest = c.sentAt
	}
	if !oldest.IsZero() {
		r.Lag = max(0, now.Sub(oldest))
	}
	switch {
	case st.paused:
		r.State = Paused
	case c.tries > 0:
		r.State = Failing
	}
	return r
}

// queued counts the events that wait at the head for a stream.
func (h *head) queued(m *member) (events int, oldest time.Time, joined bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := m.next; w != nil; w = w.next {
		if events == 0 {
			oldest = w.first
		}
		events += w.events
	}
	return events, oldest, m.next != nil
}

// share is about how many events a stream has for each octet of the log.
func (h *head) share(m *member) float64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	const record = 600 // octets; nothing is known yet
	octets := h.octets - m.sel.since
	if octets == 0 {
		return 1. / record
	}
	return float64(m.sel.events) / float64(octets)
}

func (s *Streams) named(name string) (*stream, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if st := s.all[name]; st != nil {
		return st, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrUnknown, name)
}

// Status gives a stream, and its refused events.
func (s *Streams) Status(name string) (Status, []Refused, error) {
	st, err := s.named(name)
	if err != nil {
		return Status{}, nil, err
	}
	refused, err := s.cursors.refused(name)
	return s.status(st), refused, err
}

// Pause stops a stream until Resume, over restarts too. A request that is under way is answered first.
func (s *Streams) Pause(name string) error { return s.setPaused(name, true) }

// Resume ends a pause. A stream that waits for its next attempt makes it at once.
func (s *Streams) Resume(name string) error { return s.setPaused(name, false) }

func (s *Streams) setPaused(name string, paused bool) error {
	st, err := s.named(name)
	if err != nil {
		return err
	}
	st.mu.Lock()
	st.paused = paused
	st.mu.Unlock()
	st.notify()
	return s.cursors.save(map[string]state{name: st.state()})
}

// Skip moves a stream to the head of the log: it does not get what waits. A dry run, of this and of the next two, only
// finds the place.
func (s *Streams) Skip(name string, dry bool) (from, to Position, err error) {
	return s.move(name, s.log.Synced(), dry)
}

// Replay moves a stream back, or ahead, to the records from a time on.
func (s *Streams) Replay(ctx context.Context, name string, since time.Time, dry bool) (from, to Position, err error) {
	to, err = s.find(ctx, since)
	if err != nil {
		return from, to, err
	}
	return s.move(name, to, dry)
}

// ReplayEvent moves a stream to the record with an event id.
func (s *Streams) ReplayEvent(ctx context.Context, name, id string, dry bool) (from, to Position, err error) {
	node, to, err := accounting.ParseEventID(id)
	if err != nil {
		return from, to, err
	}
	if node != s.node {
		return from, to, fmt.Errorf("%s is an event of the node %q, and this one is %q", id, node, s.node)
	}
	there := false
	_, err = s.log.ReadFrom(ctx, to, s.log.Synced(), func(at, _ Position, line []byte) error {
		r, ok := scan(line)
		there = ok && string(r.id) == id
		return errEnough
	})
	switch {
	case err != nil && !errors.Is(err, errEnough):
		return from, to, fmt.Errorf("look for the event %s: %w", id, err)
	case !there:
		return from, to, fmt.Errorf("the accounting log does not have the event %s", id)
	}
	return s.move(name, to, dry)
}

func (s *Streams) move(name string, to Position, dry bool) (Position, Position, error) {
	st, err := s.named(name)
	if err != nil {
		return Position{}, to, err
	}
	st.mu.Lock()
	from := st.at
	if !dry {
		st.jump = &to
	}
	st.mu.Unlock()
	if dry {
		return from, to, nil
	}
	st.notify()
	return from, to, s.cursors.save(map[string]state{name: st.state()})
}

// find gives the position of the first record since a time.
func (s *Streams) find(ctx context.Context, since time.Time) (Position, error) {
	at, err := s.log.Since(since)
	if err != nil {
		return at, err
	}
	found := s.log.Synced()
	match := func(at, _ Position, line []byte) error {
		if r, ok := scan(line); ok && !r.time().Before(since) {
			found = at
			return errEnough
		}
		return nil
	}
	_, err = s.log.ReadFrom(ctx, at, found, match)
	for missing := (*accounting.MissingError)(nil); errors.As(err, &missing); {
		_, err = s.log.ReadFrom(ctx, missing.To, found, match)
	}
	if errors.Is(err, errEnough) {
		err = nil
	}
	return found, err
}

// Test sends an event of the type Test, beside those of the stream. The error is that of the receiver.
func (s *Streams) Test(ctx context.Context, name string) (id string, err error) {
	st, err := s.named(name)
	if err != nil {
		return "", err
	}
	now := s.now()
	n := notice{Type: typeTest, Stream: name, NodeID: s.node,
		EventID: fmt.Sprintf("%s-test-%d", s.node, now.UnixNano())}
	b := &Batch{Events: []Event{n.event(now)}, body: new(body)}
	return n.EventID, st.once(ctx, b.of(name))
}

// counts is what a stream has done since the relay started.
type counts struct {
	delivered, refused, lost int64 // events
	gaps, uncounted          int64 // gaps; those of them whose events nobody counted
	requests                 int64 // windows that were taken
	failures                 int64 // requests that failed
	tries                    int   // failures since the last success
	next                     time.Time
	lastError                string
	errorAt, sentAt          time.Time
	refusedAt, gapAt         time.Time
	rate                     meter
}

// sent counts events that the receiver has taken.
func (c *counts) sent(now time.Time, events int) {
	c.delivered += int64(events)
	c.requests++
	c.sentAt = now
	c.rate.add(now, events)
}

// meter counts the events of the last minute.
type meter struct {
	slots [12]int64 // of five seconds each
	last  int64     // the slot that was added to last, counted since 1970
}

const slotSeconds = 5

func (m *meter) turn(now time.Time) {
	slot := now.Unix() / slotSeconds
	for n := min(slot-m.last, int64(len(m.slots))); n > 0; n-- {
		m.slots[(slot-n+1)%int64(len(m.slots))] = 0
	}
	m.last = max(slot, m.last)
}

func (m *meter) add(now time.Time, events int) {
	m.turn(now)
	m.slots[m.last%int64(len(m.slots))] += int64(events)
}

// perSecond is the rate of the last minute.
func (m *meter) perSecond(now time.Time) float64 {
	m.turn(now)
	var sum int64
	for _, n := range m.slots {
		sum += n
	}
	return float64(sum) / (slotSeconds * float64(len(m.slots)))
}

// failed notes a failure, and returns how long to wait.
func (s *stream) failed(err error) time.Duration {
	now := s.of.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &s.counts
	c.failures++
	c.lastError, c.errorAt = legible.Line(err.Error(), maxReason), now
	if c.next.After(now) {
		return c.next.Sub(now) // another lane has failed
	}
	c.tries++
	wait := s.of.backoff(c.tries, err)
	c.next = now.Add(wait)
	if c.tries == 1 {
		s.of.out.Warn("a receiver of events fails; it is tried again until it takes them", "stream", s.Name,
			"error", c.lastError)
	}
	return wait
}

// untilNext is how long to wait for the next attempt.
func (s *stream) untilNext() time.Duration {
	now := s.of.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.counts.next.Sub(now))
}
