package intake

import (
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/internal/reply"
)

// SharedQuotas gives this relay its part of the limits of tenants that it shares with others: of the rate, and of the
// messages and octets in all queues.
type SharedQuotas interface {
	// Submit takes one message of a tenant's rate, if this relay has one; Unsubmit gives it back.
	Submit(tenant string, r gcra.Rate) Part
	Unsubmit(tenant string, r gcra.Rate)
	// HoldMessages and HoldOctets note how much a tenant has in the queue from now on: more than before only if this
	// relay has that much of the limit, unless it is forced.
	HoldMessages(tenant string, limit, n int64, forced bool) Part
	HoldOctets(tenant string, limit, n int64, forced bool) Part
	// Await waits until this relay may have more than when p was not enough, or it no longer pays, and reports whether
	// to try again; until is zero at first.
	Await(p Part, until *time.Time) bool
}

// Part is what a relay has of a limit that it shares.
type Part struct {
	OK       bool          // enough
	None     bool          // nothing at all
	Wait     time.Duration // until a rate has an event, if it is known
	Patience time.Duration // for so long it pays to wait for more
}

// lately is for how long the limit that refused a message is shown as the one that the next would be over.
const lately = 10 * time.Second

// Share has the quotas be those of all relays together. It is called before all else.
func (b *Quotas) Share(s SharedQuotas) { b.shared = s }

// sharing has this relay's part of some limits, nil for those of this relay alone.
func (b *Quotas) sharing(l QuotaLimits) SharedQuotas {
	if l.PerRelay {
		return nil
	}
	return b.shared
}

// Count notes what a tenant has in the queue, once a second: it shrinks without a submission, and there was some before
// the first.
func (b *Quotas) Count(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, known := b.limits(tenant)
	if !known {
		return
	}
	var coming QuotaUsage
	if a := b.all[tenant]; a != nil {
		coming = a.coming
	}
	b.hold(tenant, l, coming)
}

// hold notes what a tenant has in the queue, and what comes. mu is held.
func (b *Quotas) hold(tenant string, l QuotaLimits, coming QuotaUsage) {
	if b.sharing(l) == nil || l.Messages+l.Octets == 0 {
		return
	}
	queued := b.queued(tenant)
	if l.Messages > 0 {
		b.shared.HoldMessages(tenant, l.Messages, queued.Messages+coming.Messages, true)
	}
	if l.Octets > 0 {
		b.shared.HoldOctets(tenant, l.Octets, queued.Octets+coming.Octets, true)
	}
}

// excessOfPart is excess for what relays share: it takes one message of the rate, and room for the octets. All limits
// are asked at once, since each that has to grow takes a second or two. An exempt message is held to the limits by what
// this relay has alone. mu is held.
func (b *Quotas) excessOfPart(a *quotaAccount, l QuotaLimits, octets int64, exempt bool) Excess {
	if exempt {
		return b.excess(a, l.of(true), octets, time.Time{})
	}
	var over Excess
	has := func(why QuotaReason, p Part) bool {
		if !p.OK && over.Reason == WithinQuota {
			part := p // only this goes to the heap
			over = Excess{Reason: why, Wait: p.Wait, Part: &part}
		}
		return p.OK
	}
	if l.Messages+l.Octets > 0 {
		queued := b.queued(a.tenant)
		if n := queued.Messages + a.coming.Messages + 1; l.Messages > 0 {
			has(OverMessages, b.shared.HoldMessages(a.tenant, l.Messages, n, false))
		}
		if n := queued.Octets + a.coming.Octets + max(octets, 1); l.Octets > 0 {
			has(OverOctets, b.shared.HoldOctets(a.tenant, l.Octets, n, false))
		}
	}
	if !l.Rate.Unlimited() && has(OverRate, b.shared.Submit(a.tenant, l.Rate)) && over.Reason != WithinQuota {
		b.shared.Unsubmit(a.tenant, l.Rate)
	}
	if over.Reason != WithinQuota {
		b.hold(a.tenant, l, a.coming)
	}
	return over
}

// patient waits until this relay may have more of what something is over, or it no longer pays, without mu, which is
// held. It reports whether to try again. until is that of SharedQuotas.Await.
func (b *Quotas) patient(over Excess, until time.Time) (again bool, _ time.Time) {
	if over.Part == nil {
		return false, until
	}
	b.mu.Unlock()
	defer b.mu.Lock()
	end := until // this goes to the heap, until does not
	again = b.shared.Await(*over.Part, &end)
	return again, end
}

func overPart(tenant string, over Excess) *reply.Reply {
	has := "has used its part"
	if over.Part.None {
		has = "has no part of that now"
	}
	switch l := &over.Limits; over.Reason {
	case OverRate:
		wait := max(over.Wait, time.Second)
		return overSharedRate.Refusal(tenant, l.Rate, has, int64((wait+time.Second-1)/time.Second))
	case OverMessages:
		return overShared.Refusal(tenant, l.Messages, "messages", has)
	default:
		return overShared.Refusal(tenant, l.Octets, "bytes", has)
	}
}
