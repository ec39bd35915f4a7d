package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// A threshold is the first level that is not admitted whole, and the part of it that is. It is one
// word, so that Admit reads both at once: the level in the upper half, the part in 2^-32.
type threshold uint64

const open = threshold(Levels) << 32 // everything is admitted

func newThreshold(level int, part float64) threshold {
	if part >= 1 {
		level, part = level+1, 0
	}
	return threshold(level)<<32 | threshold(max(part, 0)*math.MaxUint32)
}

func (t threshold) level() int    { return int(t >> 32) }
func (t threshold) part() float64 { return float64(uint32(t)) / math.MaxUint32 }

const golden = 0x9E3779B9 // 2^32 divided by the golden ratio

// admits reports whether the threshold lets p pass. n counts those at the boundary: multiples of
// the golden ratio spread evenly, so that each run of them is cut by nearly the same share, which
// draws from a random source are not.
func (t threshold) admits(p Priority, n *atomic.Uint32) bool {
	switch level := t.level(); {
	case int(p) < level:
		return true
	case int(p) > level:
		return false
	}
	return n.Add(1)*golden < uint32(t)
}

// sampled is how many of the last priorities are kept: a good sample of any traffic, and recent
// enough where little comes.
const sampled = 1000

// sample holds the last priorities that were asked for, refused ones too.
type sample struct {
	ring [sampled]atomic.Uint32 // priority+1; 0 where none has been

	shares [Levels]float64 // of each level, smoothed; for cut alone
	filled bool            // the ring was full once
}

// add keeps p as the n-th priority.
func (s *sample) add(n uint64, p Priority) { s.ring[n%sampled].Store(uint32(p) + 1) }

// fading is how fast the shares follow the ring. A thousand draws alone would move the threshold by
// three points up and down.
const fading = .3

// cut returns the threshold that refuses a share of what has come lately, the least important
// first.
func (s *sample) cut(share float64) threshold {
	s.follow()
	if share <= 0 {
		return open
	}
	admitted := 1 - share
	for level, part := range s.shares {
		if admitted < part {
			return newThreshold(level, admitted/part)
		}
		admitted -= part
	}
	return open
}

// passes returns the part of each tier that a threshold admits.
func (s *sample) passes(t threshold) (parts [Tiers]float64) {
	for tier := range parts {
		if t.level() >= (tier+1)*Cohorts {
			parts[tier] = 1
			continue
		}
		in, all := 0., 0.
		for cohort := range Cohorts {
			level := tier*Cohorts + cohort
			part := s.shares[level]
			if all += part; level < t.level() {
				in += part
			} else if level == t.level() {
				in += part * t.part()
			}
		}
		if in > 0 {
			parts[tier] = in / all
		}
	}
	return parts
}

// follow takes in what the ring holds.
func (s *sample) follow() {
	var count [Levels]int
	all := 0
	for i := range s.ring {
		if p := s.ring[i].Load(); p != 0 {
			count[p-1]++
			all++
		}
	}
	if all == 0 {
		return
	}
	weight := fading
	if !s.filled {
		weight = 1 // there is nothing to smooth yet
	}
	s.filled = all == sampled
	for level, n := range count {
		s.shares[level] += weight * (float64(n)/float64(all) - s.shares[level])
	}
}

// levels is a set of levels in which the first and the last are found at once.
type levels [(Levels + 63) / 64]uint64

func (l *levels) add(p Priority)    { l[p/64] |= 1 << (p % 64) }
func (l *levels) remove(p Priority) { l[p/64] &^= 1 << (p % 64) }

func (l *levels) first() (Priority, bool) {
	for i, w := range l {
		if w != 0 {
			return Priority(i*64 + bits.TrailingZeros64(w)), true
		}
	}
	return 0, false
}

func (l *levels) last() (Priority, bool) {
	for i := len(l) - 1; i >= 0; i-- {
		if w := l[i]; w != 0 {
			return Priority(i*64 + 63 - bits.LeadingZeros64(w)), true
		}
	}
	return 0, false
}

const (
	Tiers   = 6   // 0 is the most important
	Cohorts = 128 // in each tier, 0 first
	Levels  = Tiers * Cohorts
)

// Priority is a tier and a cohort within it. Lower is more important; all below Levels are valid.
type Priority uint16

// Of returns the priority of a cohort of a tier. Both are clamped to their ranges.
func Of(tier, cohort int) Priority {
	tier, cohort = min(max(tier, 0), Tiers-1), min(max(cohort, 0), Cohorts-1)
	return Priority(tier*Cohorts + cohort)
}

// Tier returns the tier, 0 to Tiers-1.
func (p Priority) Tier() int { return int(p) / Cohorts }

// Cohort returns the cohort within the tier, 0 to Cohorts-1.
func (p Priority) Cohort() int { return int(p) % Cohorts }

// Sorter orders the kinds of mail of a tenant. The order changes every hour, so that no kind is always the
// first to be refused.
type Sorter struct{ key [32]byte }

// NewSorter returns a sorter. Relays with the same key agree.
func NewSorter(key [32]byte) *Sorter { return &Sorter{key} }

// Turn returns the turn of a tenant's new mail of one kind (a campaign, a sender's domain; "" is one kind) at
// a time.
func (s *Sorter) Turn(tenant, kind string, now time.Time) Turn {
	buf := make([]byte, 0, 256) // on the stack
	buf = append(buf, s.key[:]...)
	buf = binary.BigEndian.AppendUint64(buf, uint64(now.Unix()/3600))
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(tenant)))
	buf = append(append(buf, tenant...), kind...)
	sum := sha256.Sum256(buf)
	return newcomers + Turn(sum[0])
}
