package intake

import (
	"cmp"
	"net/netip"
	"slices"

	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/submission/auth"
)

// Tenant describes somebody on whose behalf mail is submitted.
type Tenant struct {
	Tier    uint8        // of a message that does not ask for one, and the best that one can ask for
	Senders auth.Senders // whom it may send as; empty: anybody
}

// account is on whose behalf a client submits.
type account struct {
	user          string // "": nobody has logged in
	tenant        string
	tier, ceiling uint8
	senders       [2]auth.Senders // of the tenant and of the client: both must allow an address
}

// accountOf gives what applies to a tenant's mail.
func (d *Desk) accountOf(c *Client, tenant string) account {
	cfg := &d.cfg
	a := account{user: c.User, tenant: tenant, tier: cfg.Tier, ceiling: cfg.TierCeiling}
	a.senders[1] = c.Senders
	if cfg.TenantOf == nil || tenant == "" {
		return a
	}
	if t, ok := cfg.TenantOf(tenant); ok {
		a.tier, a.ceiling, a.senders[0] = t.Tier, t.Tier, t.Senders
	}
	return a
}

// Settle works out on whose behalf the client submits: its own tenant, else that of its network, else the
// desk's. Begin does so for each message. A message can name another one where the client has no tenant.
func (d *Desk) Settle(c *Client) {
	cfg, tenant := &d.cfg, c.Tenant
	if tenant == "" && cfg.TenantAt != nil && c.Peer.IsValid() {
		tenant = cfg.TenantAt(c.Peer.Addr())
	}
	tenant = cmp.Or(tenant, cfg.Tenant)
	c.account = d.accountOf(c, tenant)
}

// allows reports whether the account may send as an address.
func (a *account) allows(sender envelope.Address) bool {
	return a.senders[0].Allow(sender) && a.senders[1].Allow(sender)
}

// bounded reports whether there are addresses that the account may not send as.
func (a *account) bounded() bool { return len(a.senders[0]) > 0 || len(a.senders[1]) > 0 }

// MayNameTenant reports whether the client's messages can say which tenant's they are.
func (d *Desk) MayNameTenant(c *Client) bool {
	return c.Tenant == "" && slices.ContainsFunc(d.cfg.TenantFieldFrom, func(p netip.Prefix) bool {
		return p.Contains(c.Peer.Addr())
	})
}

// maySend reports whether a message can begin with an address. When the tenant isn't known before the
// header section is, the client's own senders decide alone.
func (d *Desk) maySend(c *Client, sender envelope.Address) bool {
	a := &c.account
	return a.senders[1].Allow(sender) && (d.MayNameTenant(c) || a.senders[0].Allow(sender))
}

// takeTenant gives the message to the tenant that its header names, where the client may name one.
func (m *Message) takeTenant() {
	d, field := m.desk, &m.content.header.own[ownTenant]
	switch may := d.MayNameTenant(m.client); {
	case !may:
		if field.times > 0 {
			d.cfg.Ignored.Add(1)
		}
		return
	case field.times > 1 || field.times == 1 && field.value == "":
		m.reject(badTenantField.Refusal())
		return
	case field.times == 1:
		if _, known := d.cfg.TenantOf(field.value); !known {
			m.reject(unknownTenant.Refusal(reply.Printable(field.value)))
			return
		}
		m.account = d.accountOf(m.client, field.value)
	}
	if !m.account.allows(m.Sender) {
		m.reject(notSender.Refusal(reply.Printable(string(m.Sender))))
		return
	}
	if refused := m.claimQuota(); refused != nil {
		m.reject(refused)
	}
}

// checkFrom holds the authors of the message to the account's senders: whoever reads it sees them, and not
// the envelope's sender.
func (m *Message) checkFrom() {
	if !m.desk.cfg.CheckFrom || m.refused != nil || !m.account.bounded() {
		return
	}
	authors, ok := authors(m.content.header.text)
	if !ok {
		m.reject(badFrom.Refusal())
		return
	}
	for _, a := range authors {
		if !m.account.allows(a) {
			m.reject(notAuthor.Refusal(reply.Printable(string(a))))
			return
		}
	}
}

// checkSignable refuses a message that would only wait in the queue for a signature until it expires.
func (m *Message) checkSignable() {
	if m.desk.cfg.Unsignable == nil || m.refused != nil {
		return
	}
	if err := m.desk.cfg.Unsignable(m.account.tenant, m.content.header.text); err != nil {
		m.reject(unsignable.Refusal(err))
	}
}
