package wiring

import (
	"net/netip"

	"example.org/mta/internal/dkim"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
)

// Tenants answers submission's questions about tenants, by the configuration in force, which it returns.
type Tenants func() *config.Config

// Tenant describes a tenant, false when the file says nothing of it.
func (in Tenants) Tenant(name string) (intake.Tenant, bool) {
	t := in().Tenant(name)
	if t == nil {
		return intake.Tenant{}, false
	}
	return intake.Tenant{Tier: uint8(t.Tier), Senders: t.Senders}, true
}

// At gives the tenant of a client's network.
func (in Tenants) At(a netip.Addr) string { return in().TenantAt(a) }

// Tier gives the tier of a tenant's mail.
func (in Tenants) Tier(tenant string) uint8 {
	if t := in().Tenant(tenant); t != nil {
		return uint8(t.Tier)
	}
	return config.DefaultTier
}

// Quota gives the limits of a tenant's submissions.
func (in Tenants) Quota(tenant string) (intake.QuotaLimits, bool) {
	t := in().Tenant(tenant)
	if t == nil {
		return intake.QuotaLimits{}, false
	}
	return intake.QuotaLimits{
		Rate: rate(t.MaxSubmissionRate), Connections: t.MaxConnections,
		Messages: int64(t.MaxQueuedMessages), Octets: int64(t.MaxQueuedBytes), Lower: t.OverQuota == "lower",
		PerRelay: t.LimitsPerNode,
	}, true
}

// Rates gives the limits of a tenant's requests by HTTP.
func (in Tenants) Rates(tenant string) http.Rates {
	t := in().Tenant(tenant)
	if t == nil {
		return http.Rates{}
	}
	r := rates(t.MaxRequestRate, t.MaxRecipientRate, t.MaxByteRate)
	r.PerRelay = t.LimitsPerNode
	return r
}

// MayUsePool reports whether a tenant's mail may name a pool.
func (in Tenants) MayUsePool(tenant, pool string) bool { return in().MayUse(tenant, pool) }

// AsksMailboxes reports whether a domain block wants the recipients of a domain verified.
func (in Tenants) AsksMailboxes(domain string) bool { return in().VerifiesMailboxes(domain) }

// Unsignable returns why a message must not be accepted: a dkim block would have to sign it, and can't, so that it
// would wait until it expires.
func (in Tenants) Unsignable(tenant string, header []byte) error {
	cfg := in()
	if !cfg.Signs(tenant) {
		return nil
	}
	if authors, err := dkim.From(header); err != nil && config.Waits(cfg.DKIMFor(tenant, authors...)) {
		return err
	}
	return nil
}
