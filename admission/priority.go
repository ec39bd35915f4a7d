package admission

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

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
