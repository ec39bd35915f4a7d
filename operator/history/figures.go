package history

import (
	"math"
	"math/bits"
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

const (
	perOctave  = 4  // buckets from a duration to its double
	leastPower = 10 // microseconds, as a power of 2: what is shorter is in the first bucket
	octaves    = 32 // 2^42 µs are 51 days; what is longer is in the last bucket

	buckets = octaves*perOctave + 1
)

// Histogram counts durations, in half a kilobyte: its buckets grow with what they hold, so that a quantile is right to
// an eighth from a millisecond to a month. The zero Histogram has counted none. Its counts may wrap around: of two that
// one Histogram had at times with less than 2^32 durations between them, Since gives the difference. It is for one
// goroutine at a time.
type Histogram struct{ counts [buckets]uint32 }

// Add counts n durations of the same length.
func (h *Histogram) Add(d time.Duration, n int64) { h.counts[bucket(d)] += uint32(n) }

// bucket gives where a duration belongs: the first three bits of its number of microseconds, and how many follow.
func bucket(d time.Duration) int {
	us := uint64(max(d.Microseconds(), 0))
	power := bits.Len64(us) - 1
	if power < leastPower {
		return 0
	}
	quarter := int(us>>(power-2)) & (perOctave - 1)
	return min(1+(power-leastPower)*perOctave+quarter, buckets-1)
}

// bounds gives the durations that bucket i is for, from the first to before the second.
func bounds(i int) (from, to time.Duration) {
	if i == 0 {
		return 0, time.Microsecond << leastPower
	}
	octave, quarter := (i-1)/perOctave, (i-1)%perOctave
	least := time.Microsecond << (leastPower + octave)
	return least + least/perOctave*time.Duration(quarter), least + least/perOctave*time.Duration(quarter+1)
}

// Since gives what was counted since h was as before.
func (h *Histogram) Since(before *Histogram) (d Histogram) {
	for i := range h.counts {
		d.counts[i] = h.counts[i] - before.counts[i]
	}
	return d
}

// Merge adds what another has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
}

// Subtract takes away what another has counted, as far as it was counted here.
func (h *Histogram) Subtract(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] -= min(n, h.counts[i])
	}
}

// Len is how many durations were counted.
func (h *Histogram) Len() (n int64) {
	for _, c := range h.counts {
		n += int64(c)
	}
	return n
}

// Quantile gives the duration that a share of those counted, from 0 to 1, don't exceed; false when there are none.
func (h *Histogram) Quantile(share float64) (time.Duration, bool) {
	n := h.Len()
	if n == 0 {
		return 0, false
	}
	rank := share * float64(n)
	for i, c := range h.counts {
		if c == 0 {
			continue
		}
		if rank <= float64(c) || i == buckets-1 {
			from, to := bounds(i)
			return from + time.Duration(float64(to-from)*min(rank/float64(c), 1)), true
		}
		rank -= float64(c)
	}
	return 0, false // not reached: the counts add up to n
}
