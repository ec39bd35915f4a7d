package intake

import (
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/tiers"
	"example.org/mta/submission/quota"
)

// claimQuota takes room for the message within the limits of its tenant, and returns the reply that refuses it. The
// tier of a message that is over them can become the last.
func (m *Message) claimQuota() *reply.Reply {
	a, quotas := &m.account, m.desk.cfg.Quotas
	m.exempt = m.desk.exempt(m.client, a.tenant, m.Sender)
	if quotas == nil || a.tenant == "" {
		return nil
	}
	claim, lower, over := quotas.Begin(a.tenant, m.Envelope.Size, m.exempt)
	switch {
	case lower:
		a.tier, a.ceiling = tiers.Count-1, tiers.Count-1
	case claim == nil && over.Reason != quota.Within:
		return overReply(a.tenant, over)
	}
	m.within = claim
	return nil
}

func overReply(tenant string, over quota.Excess) *reply.Reply {
	tenant = reply.Printable(tenant)
	switch over.Reason {
	case quota.Rate:
		return overRate.Refusal(tenant, over.Limits.Rate, int64((over.Wait+time.Second-1)/time.Second))
	case quota.Messages:
		return overMessages.Refusal(tenant, over.Limits.Messages)
	}
	return overOctets.Refusal(tenant, over.Limits.Octets)
}
