package submission

import (
	"time"

	"example.org/mta/internal/reply"
	"example.org/mta/internal/tiers"
	"example.org/mta/submission/quota"
)

// countTenant counts the connection as the account's tenant's, and gives the reply that refuses it. Of clients
// that name a tenant in each message it is nobody's.
func (c *conn) countTenant() *reply.Reply {
	cfg, tenant := &c.srv.cfg, c.client.account.tenant
	if cfg.Quotas == nil || !c.mayRelay() || tenant != "" && tenant == c.client.counted {
		return nil
	}
	c.uncountTenant()
	if tenant == "" || c.mayNameTenant() {
		return nil
	}
	counted, over := cfg.Quotas.Connect(tenant, c.srv.crowded.Load(), cfg.Limits.Connections)
	if counted {
		c.client.counted = tenant
	}
	if over.Reason == quota.Within {
		return nil
	}
	r := tooLargeShare.reply(printable(tenant))
	if over.Reason == quota.Connections {
		r = tooManyOfTenant.reply(printable(tenant), over.Limits.Connections)
	}
	return &r
}

func (c *conn) uncountTenant() {
	if c.client.counted != "" {
		c.srv.cfg.Quotas.Disconnect(c.client.counted)
		c.client.counted = ""
	}
}

// claimQuotaAtMail is claimQuota for a transaction that begins. Whoever can't send, and whoever can name another tenant yet,
// claims nothing.
func (c *conn) claimQuotaAtMail(a *account, octets int64, exempt bool) (*quota.Claim, *reply.Reply) {
	if !c.mayRelay() || c.mayNameTenant() {
		return nil, nil
	}
	return c.claimQuota(a, octets, exempt)
}

// claimQuota takes room for a message within the limits of a's tenant, and gives the reply that refuses it. The
// tier of a message that is over them can become the last.
func (c *conn) claimQuota(a *account, octets int64, exempt bool) (*quota.Claim, *reply.Reply) {
	cfg := &c.srv.cfg
	if cfg.Quotas == nil || a.tenant == "" {
		return nil, nil
	}
	claim, lower, over := cfg.Quotas.Begin(a.tenant, octets, exempt)
	switch {
	case lower:
		a.tier, a.ceiling = tiers.Count-1, tiers.Count-1
	case claim == nil && over.Reason != quota.Within:
		r := overReply(a.tenant, over)
		return nil, &r
	}
	return claim, nil
}

func overReply(tenant string, over quota.Excess) reply.Reply {
	tenant = printable(tenant)
	switch over.Reason {
	case quota.Rate:
		return overRate.reply(tenant, over.Limits.Rate, int64((over.Wait+time.Second-1)/time.Second))
	case quota.Messages:
		return overMessages.reply(tenant, over.Limits.Messages)
	}
	return overOctets.reply(tenant, over.Limits.Octets)
}
