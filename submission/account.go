package submission

import (
	"example.org/mta/internal/envelope"
	"example.org/mta/internal/reply"
	"example.org/mta/internal/users"
)

// Tenant describes somebody on whose behalf mail is submitted.
type Tenant struct {
	Tier    uint8         // of a message that does not ask for one, and the best that one can ask for
	Senders users.Senders // whom it may send as; empty: anybody
}

// account is on whose behalf a client submits.
type account struct {
	user          string // "": nobody has logged in
	tenant        string
	tier, ceiling uint8
	senders       [2]users.Senders // of the tenant and of the user: both must allow an address
}

// accountOf gives what applies to a tenant's mail.
func (c *conn) accountOf(tenant string) account {
	cfg := &c.srv.cfg
	a := account{tenant: tenant, tier: cfg.Tier, ceiling: cfg.TierCeiling}
	if l := c.client.login; l != nil {
		a.user, a.senders[1] = l.User, l.Senders
	}
	if cfg.TenantOf == nil || tenant == "" {
		return a
	}
	if t, ok := cfg.TenantOf(tenant); ok {
		a.tier, a.ceiling, a.senders[0] = t.Tier, t.Tier, t.Senders
	}
	return a
}

// settle works out on whose behalf the client submits: the user's tenant, else that of the client's
// network, else the listener's. A message can name another one where there is no user with a tenant.
func (c *conn) settle() {
	cfg := &c.srv.cfg
	tenant := c.userTenant()
	if tenant == "" && cfg.TenantAt != nil && c.client.peer.IsValid() {
		tenant = cfg.TenantAt(c.client.peer.Addr())
	}
	if tenant == "" {
		tenant = cfg.Tenant
	}
	c.client.account = c.accountOf(tenant)
}

// userTenant gives the tenant of who has logged in, "" when there is none.
func (c *conn) userTenant() string {
	if l := c.client.login; l != nil {
		return l.Tenant
	}
	return ""
}

// allows reports whether the account may send as an address.
func (a *account) allows(sender envelope.Address) bool {
	return a.senders[0].Allow(sender) && a.senders[1].Allow(sender)
}

// bounded reports whether there are addresses that the account may not send as.
func (a *account) bounded() bool { return len(a.senders[0]) > 0 || len(a.senders[1]) > 0 }

// mayNameTenant reports whether the client's messages can say which tenant's they are.
func (c *conn) mayNameTenant() bool {
	return c.userTenant() == "" && contains(c.srv.cfg.TenantFieldFrom, c.client.peer.Addr())
}

// maySend reports whether a transaction can begin with an address. When the tenant isn't known before the
// header section is, the user alone decides.
func (c *conn) maySend(sender envelope.Address) bool {
	a := &c.client.account
	return a.senders[1].Allow(sender) && (c.mayNameTenant() || a.senders[0].Allow(sender))
}

// takeTenant gives the message to the tenant that its header names, where the client may name one.
func (in *intake) takeTenant() {
	c, field := in.c, &in.header.own[ownTenant]
	cfg := &c.srv.cfg
	switch may := c.mayNameTenant(); {
	case !may:
		if field.times > 0 {
			cfg.Ignored.Add(1)
		}
		return
	case field.times > 1 || field.times == 1 && field.value == "":
		in.reject(badTenantField.reply())
		return
	case field.times == 1:
		if _, known := cfg.TenantOf(field.value); !known {
			in.reject(unknownTenant.reply(printable(field.value)))
			return
		}
		in.behalf = c.accountOf(field.value)
	}
	if !in.behalf.allows(in.tx.sender) {
		in.reject(notSender.reply(printable(string(in.tx.sender))))
		return
	}
	in.tx.exempt = c.exempt(&in.behalf, in.tx.sender)
	var refused *reply.Reply
	if in.within, refused = c.claimQuota(&in.behalf, in.tx.size, in.tx.exempt); refused != nil {
		in.reject(*refused)
	}
}

// checkFrom holds the authors of the message to the account's senders: whoever reads it sees them, and not
// the address of MAIL.
func (in *intake) checkFrom() {
	if !in.c.srv.cfg.CheckFrom || in.refuse != nil || !in.behalf.bounded() {
		return
	}
	authors, ok := authors(in.header.text)
	if !ok {
		in.reject(badFrom.reply())
		return
	}
	for _, a := range authors {
		if !in.behalf.allows(a) {
			in.reject(notAuthor.reply(printable(string(a))))
			return
		}
	}
}
