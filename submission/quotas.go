package submission

import (
	"example.org/mta/internal/reply"
	"example.org/mta/submission/intake"
)

// countTenant counts the connection as the account's tenant's, and gives the reply that refuses it. Of clients
// that name a tenant in each message it is nobody's.
func (c *conn) countTenant() *reply.Reply {
	quotas, tenant := c.srv.cfg.Intake.Quotas, c.tenant()
	if quotas == nil || tenant != "" && tenant == c.client.counted {
		return nil
	}
	c.uncountTenant()
	if tenant == "" {
		return nil
	}
	counted, over := quotas.Connect(tenant)
	if counted {
		c.client.counted = tenant
	}
	if over.Reason == intake.WithinQuota {
		return nil
	}
	return tooManyOfTenant.Refusal(reply.Printable(tenant), over.Limits.Connections)
}

func (c *conn) uncountTenant() {
	if c.client.counted != "" {
		c.srv.cfg.Intake.Quotas.Disconnect(c.client.counted)
		c.client.counted = ""
	}
}
