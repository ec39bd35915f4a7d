package events

import (
	"time"

	"example.org/mta/internal/legible"
)

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
