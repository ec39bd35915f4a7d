package history

import (
	"math"
	"time"
)

// Figure is something that is known of a subject over time.
type Figure uint8

// Counts: recipients since the start, shown as rates.
const (
	Accepted Figure = iota
	Refused
	Delivered
	Deferred
	Bounced       // and expired
	numCounts int = iota
)

// Levels, as they are at a time.
const (
	Queued    Figure = iota + Figure(numCounts)
	QueuedDue        // and so on: by state
	QueuedWaiting
	QueuedActive
	QueuedDeferred
	QueuedHeld
	QueuedEnding
	QueuedUnreadable
	OldestDue   // seconds
	Connections // to remote hosts
	ClientConnections
	DiskUsed
	DiskFree
	Memory
	numLevels int = iota
)

// Delays of deliveries, in seconds.
const (
	DelayP50 Figure = iota + Figure(numCounts) + Figure(numLevels)
	DelayP99
	numFigures int = iota + numCounts + numLevels
)

// figures have names and units.
var figures = [numFigures]struct{ name, unit string }{
	Accepted: {"accepted", "recipients/s"}, Refused: {"refused", "refusals/s"},
	Delivered: {"delivered", "recipients/s"},
	Deferred:  {"deferred", "recipients/s"}, Bounced: {"bounced", "recipients/s"},
	Queued: {"queued", "recipients"}, QueuedDue: {"queued_due", "recipients"},
	QueuedWaiting: {"queued_waiting", "recipients"},
	QueuedActive:  {"queued_active", "recipients"}, QueuedDeferred: {"queued_deferred", "recipients"},
	QueuedHeld:   {"queued_held", "recipients"},
	QueuedEnding: {"queued_ending", "recipients"}, QueuedUnreadable: {"queued_unreadable", "recipients"},
	OldestDue: {"oldest_due", "seconds"}, Connections: {"connections", "connections"},
	ClientConnections: {"client_connections", "connections"},
	DiskUsed:          {"disk_used", "bytes"}, DiskFree: {"disk_free", "bytes"}, Memory: {"memory", "bytes"},
	DelayP50: {"delay_p50", "seconds"}, DelayP99: {"delay_p99", "seconds"},
}

// String gives its name, as in the control API.
func (f Figure) String() string { return figures[f].name }

// Unit is what its values are counted in.
func (f Figure) Unit() string { return figures[f].unit }

// Level sets one that is a level.
func (r *Reading) Level(f Figure, v float64) { r.Levels[int(f)-numCounts] = v }

// figuresOf has those of each kind of subject.
var figuresOf = [kinds][]Figure{
	Relay: {
		Accepted, Refused, Delivered, Deferred, Bounced,
		Queued, QueuedDue, QueuedWaiting, QueuedActive, QueuedDeferred, QueuedHeld, QueuedEnding, QueuedUnreadable,
		OldestDue, Connections, ClientConnections, DiskUsed, DiskFree, Memory, DelayP50, DelayP99,
	},
	Provider: {Delivered, Deferred, Bounced, Queued, QueuedDeferred, Connections, DelayP50, DelayP99},
	Source:   {Delivered, Deferred, Bounced, Queued, QueuedDeferred, Connections, DelayP50, DelayP99},
	Site:     {Delivered, Deferred, Bounced, Queued, QueuedDeferred, Connections, DelayP50, DelayP99},
	Tenant: {Accepted, Refused, Delivered, Deferred, Bounced, Queued, QueuedDeferred, ClientConnections,
		DelayP50, DelayP99},
}

// delta is what happened to a subject from one sample to the next.
type delta struct {
	rates  [numCounts]float64 // per second
	levels [numLevels]float64
	delays Histogram
}

// since gives what happened since the last sample. Nothing is known of rates at the first.
func (s *subject) since(r *Reading, step time.Duration) (d delta) {
	d.levels = r.Levels
	if !s.begun || step <= 0 {
		for i := range d.rates {
			d.rates[i] = math.NaN()
		}
		return d
	}
	for i, n := range r.Counts {
		if n -= s.last.Counts[i]; n < 0 { // it was forgotten, and begins anew
			n = r.Counts[i]
		}
		d.rates[i] = float64(n) / step.Seconds()
	}
	if was := s.last.Delays.Len(); r.Delays.Len() >= was {
		d.delays = r.Delays.Since(&s.last.Delays)
	} else {
		d.delays = r.Delays
	}
	return d
}

// subtract takes a part away. Its rates are unknown only when it has just become one.
func (d *delta) subtract(part *delta) {
	for i, v := range part.rates {
		if !math.IsNaN(v) {
			d.rates[i] = max(d.rates[i]-v, 0)
		}
	}
	for i, v := range part.levels {
		d.levels[i] = max(d.levels[i]-v, 0) // unknown if one of them is
	}
	d.delays.Subtract(&part.delays)
}

// value gives a figure of a sample.
func (d *delta) value(f Figure) float64 {
	switch {
	case int(f) < numCounts:
		return d.rates[f]
	case int(f) < numCounts+numLevels:
		return d.levels[int(f)-numCounts]
	}
	return quantile(&d.delays, f)
}

func quantile(h *Histogram, f Figure) float64 {
	share := .5
	if f == DelayP99 {
		share = .99
	}
	v, ok := h.Quantile(share)
	if !ok {
		return math.NaN()
	}
	return v.Seconds()
}
