package submission

import (
	"example.org/mta/internal/reply"
	"example.org/mta/submission/quota"
)

// countTenant counts the connection as the account's tenant's, and gives the reply that refuses it. Of clients
// that name a tenant in each message it is nobody's.
func (c *conn) countTenant() *reply.Reply {
	cfg, tenant := &c.srv.cfg, c.client.OnBehalfOf()
	if cfg.Intake.Quotas == nil || !c.mayRelay() || tenant != "" && tenant == c.client.counted {
		return nil
	}
	c.uncountTenant()
	if tenant == "" || c.srv.desk.MayNameTenant(&c.client.Client) {
		return nil
	}
	counted, over := cfg.Intake.Quotas.Connect(tenant, c.srv.crowded.Load(), cfg.Limits.Connections)
	if counted {
		c.client.counted = tenant
	}
	if over.Reason == quota.Within {
		return nil
	}
	r := tooLargeShare.Reply(reply.Printable(tenant))
	if over.Reason == quota.Connections {
		r = tooManyOfTenant.Reply(reply.Printable(tenant), over.Limits.Connections)
	}
	return &r
}

func (c *conn) uncountTenant() {
	if c.client.counted != "" {
		c.srv.cfg.Intake.Quotas.Disconnect(c.client.counted)
		c.client.counted = ""
	}
}
