package wiring

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"example.org/mta/cluster/node"
	"example.org/mta/cluster/share"
	"example.org/mta/cluster/usage"
	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
)

// Uses has this relay's parts of a cluster's limits in the terms of dispatch and submission. Nil is that of a relay
// without a cluster.
type Uses struct {
	in    *usage.Uses
	count func() // notes what is in the queue
}

// NewUses makes the uses of a relay with a node, which is nil while the relay takes no part.
func NewUses(at func() *node.Node, now func() time.Time) *Uses {
	return &Uses{count: func() {}, in: usage.New(func() usage.Node {
		if n := at(); n != nil {
			return n
		}
		return nil
	}, now)}
}

// Run notes what is used until ctx ends.
func (u *Uses) Run(ctx context.Context) {
	if u != nil {
		u.in.Run(ctx, u.count)
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
	room := u.in.Meet(rateLimit(name, r))
	if room.None {
		return -1
	}
	return room.Wait
}

// Spend implements rules.SharedPaces.
func (u *Uses) Spend(name string, r gcra.Rate, events int) bool {
	return u.in.Spend(rateLimit(name, r), int64(events)).OK
}

// Return implements rules.SharedPaces.
func (u *Uses) Return(name string, r gcra.Rate, events int) {
	u.in.Return(rateLimit(name, r), int64(events))
}

// ShareLimits has the quotas of tenants and the limits of API keys be those of all nodes together, if there are others.
func ShareLimits(u *Uses, q *intake.Quotas, requests *http.Limits, cfg func() *config.Config) {
	if u == nil {
		return
	}
	q.Share(u)
	requests.Share(Requests{u})
	var last *config.Config
	u.count = func() {
		now := cfg()
		if now != last {
			u.in.Redefined()
			last = now
		}
		for _, t := range now.Tenants {
			q.Count(t.Name)
		}
	}
	u.count() // before this relay asks for anything: see usage.Uses.Changed
}

// submissions is the limit of a tenant's rate.
func submissions(tenant string, r gcra.Rate) share.Limit {
	return rateLimit("tenant "+tenant+": submissions", r)
}

// Submit implements intake.SharedQuotas.
func (u *Uses) Submit(tenant string, r gcra.Rate) intake.Part {
	return intake.Part(u.in.Spend(submissions(tenant, r), 1))
}

// Unsubmit implements intake.SharedQuotas.
func (u *Uses) Unsubmit(tenant string, r gcra.Rate) { u.in.Return(submissions(tenant, r), 1) }

// HoldMessages implements intake.SharedQuotas.
func (u *Uses) HoldMessages(tenant string, limit, n int64, forced bool) intake.Part {
	return u.hold("tenant "+tenant+": messages in queues", limit, n, forced)
}

// HoldOctets implements intake.SharedQuotas.
func (u *Uses) HoldOctets(tenant string, limit, n int64, forced bool) intake.Part {
	return u.hold("tenant "+tenant+": octets in queues", limit, n, forced)
}

// hold counts in units of a size that the cluster can count, which is in the name, since all nodes must have it.
func (u *Uses) hold(name string, limit, n int64, forced bool) intake.Part {
	size := int64(1)
	for limit/size > mostOf {
		size *= 2
	}
	if size > 1 {
		name += fmt.Sprintf(" by %d", size)
	}
	l := share.Limit{Name: limitName(name), Connections: limit / size, Lasting: true}
	return intake.Part(u.in.Occupy(l, min((n+size-1)/size, mostOf), forced))
}

// Await implements intake.SharedQuotas.
func (u *Uses) Await(p intake.Part, until *time.Time) bool { return u.in.Await(usage.Room(p), until) }

// Requests has this relay's parts of the limits of API keys. It implements http.SharedLimits.
type Requests struct{ *Uses }

// scaled is a rate in units of a size of which the cluster can count enough, and some events of it in these.
func scaled(name string, r gcra.Rate, events int64) (l share.Limit, size, units int64) {
	size = 1
	for r.PerSecond()/float64(size) > mostOf || int64(r.Depth())/size > mostOf {
		size *= 2
	}
	if size > 1 {
		name += fmt.Sprintf(" by %d", size)
	}
	l = share.Limit{Name: limitName(name), Rate: r.PerSecond() / float64(size), Burst: max(int64(r.Depth())/size, 1)}
	return l, size, (events + size - 1) / size
}

// Charge takes events of a rate.
func (u Requests) Charge(name string, r gcra.Rate, n int64) intake.Part {
	l, _, units := scaled(name, r, n)
	return intake.Part(u.in.Charge(l, units))
}

// Refund gives back what Charge has taken.
func (u Requests) Refund(name string, r gcra.Rate, n int64) {
	l, _, units := scaled(name, r, n)
	u.in.Return(l, units)
}

// Owe takes events that have happened.
func (u Requests) Owe(name string, r gcra.Rate, n int64) {
	l, _, units := scaled(name, r, n)
	u.in.Owe(l, units)
}

// Left is how many events may happen now.
func (u Requests) Left(name string, r gcra.Rate) int64 {
	l, size, _ := scaled(name, r, 0)
	n, _ := u.in.Left(l)
	return n * size
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
