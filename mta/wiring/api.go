package wiring

import (
	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
)

// TenantRate is the limit of a tenant's requests by HTTP.
func TenantRate(t *config.Tenant) gcra.Rate {
	return rate(t.MaxRequestRate)
}

// apiIntake makes the settings of what messages by HTTP are held to. Authors are held to the tenant's senders
// always: a key is an application's, and no relay's.
func apiIntake(cfg *config.Config, a *config.API) intake.Config {
	return intake.Config{
		Hostname:      cfg.Hostname,
		CheckFrom:     true,
		MaxHold:       a.MaxHold,
		Marks:         marks(cfg),
		Copies:        cfg.Accounting.Headers,
		Tier:          config.DefaultTier,
		TierCeiling:   config.DefaultTier,
		Limits:        intake.Limits{Recipients: maxAddresses, Size: int64(a.MaxRequest)},
		Buffered:      config.LargeBody,
		Recipients:    intake.Recipients{Verify: a.VerifyRecipients == "domain"},
		EncodeHeaders: true,
	}
}

// maxAddresses is how many addresses a request can have.
const maxAddresses = 1000

// API makes the settings of an api block.
func API(cfg *config.Config, a *config.API) http.Config {
	return http.Config{
		Mail:    http.Mail{Intake: apiIntake(cfg, a)},
		Tenants: a.Tenants, TrustedProxies: a.TrustedProxies, ProxyFrom: a.ProxyFrom,
		Rate:       rate(a.MaxRequestRate),
		MaxRequest: int64(a.MaxRequest), MaxConnections: a.MaxConnections,
	}
}
