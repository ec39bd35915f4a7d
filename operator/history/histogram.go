package history

import (
	"math/bits"
	"time"
)

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
