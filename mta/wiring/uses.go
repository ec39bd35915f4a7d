package wiring

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"example.org/mta/cluster/membership"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/usage"
	"example.org/mta/internal/gcra"
)

// Uses has this relay's parts of a cluster's limits in the terms of dispatch: events of rates.
type Uses struct{ in *usage.Uses }

// NewUses makes the uses of a relay, nil without a cluster.
func NewUses(m *membership.Membership, now func() time.Time) *Uses {
	if m == nil {
		return nil
	}
	return &Uses{usage.New(func() usage.Node {
		if n := m.Node(); n != nil {
			return n
		}
		return nil
	}, now)}
}

// Run notes what is used until ctx ends.
func (u *Uses) Run(ctx context.Context) {
	if u != nil {
		u.in.Run(ctx)
	}
}

// Changed follows a change of what this relay may use.
func (u *Uses) Changed() {
	if u != nil {
		u.in.Changed()
	}
}

// Left implements rules.SharedPaces.
func (u *Uses) Left(name string, r gcra.Rate) (events int, part float64) {
	n, part := u.in.Left(rateLimit(name, r))
	return int(n), part
}

// Wait implements rules.SharedPaces.
func (u *Uses) Wait(name string, r gcra.Rate) time.Duration {
	wait, _ := u.in.Meet(rateLimit(name, r))
	return wait
}

// Spend implements rules.SharedPaces.
func (u *Uses) Spend(name string, r gcra.Rate, events int) bool {
	return u.in.Spend(rateLimit(name, r), int64(events))
}

// Return implements rules.SharedPaces.
func (u *Uses) Return(name string, r gcra.Rate, events int) {
	u.in.Return(rateLimit(name, r), int64(events))
}

// mostOf is the largest number that a limit of a cluster can have.
const mostOf = 1_000_000

// rateLimit is a rate as the cluster has it; a faster one than it can have is as good as none.
func rateLimit(name string, r gcra.Rate) share.Limit {
	return share.Limit{Name: limitName(name), Rate: min(r.PerSecond(), mostOf), Burst: int64(min(r.Depth(), mostOf))}
}

// limitName is a name as the cluster can have it: a long one ends with a sum of it.
func limitName(name string) string {
	const most, begin = 256, 180
	if name = strings.ToValidUTF8(name, "?"); len(name) <= most {
		return name
	}
	return fmt.Sprintf("%s %x", strings.ToValidUTF8(name[:begin], ""), sha256.Sum256([]byte(name)))
}
