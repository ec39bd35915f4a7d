package wiring

import (
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
	"example.org/mta/submission/intake"
)

// TenantRates makes the limits of a tenant's requests by HTTP.
func TenantRates(t *config.Tenant) http.Rates {
	return rates(t.MaxRequestRate, t.MaxRecipientRate, t.MaxByteRate)
}

func rates(requests, recipients config.Rate, octets config.ByteRate) http.Rates {
	return http.Rates{Requests: rate(requests), Recipients: rate(recipients),
		Octets: gcra.Rate{Events: int(octets), Per: time.Second}}
}

// apiIntake makes the settings of what messages by HTTP are held to. Authors are held to the tenant's senders
// always: a key is an application's, and no relay's.
func apiIntake(cfg *config.Config, a *config.API) intake.Config {
	return intake.Config{
		Hostname:    cfg.Hostname,
		CheckFrom:   true,
		MaxHold:     a.MaxHold,
		Marks:       marks(cfg),
		Copies:      cfg.Accounting.Headers,
		Tier:        config.DefaultTier,
		TierCeiling: config.DefaultTier,
		Limits:      intake.Limits{Recipients: maxAddresses, Size: int64(a.MaxRequest)},
		Remove:      patterns(a.HeadersRemove),
		Buffered:    config.LargeBody,
		Recipients:  intake.Recipients{Verify: a.VerifyRecipients == "domain"},
	}
}

// maxAddresses is how many addresses a request can have.
const maxAddresses = 1000

// API makes the settings of an api block.
func API(cfg *config.Config, a *config.API) http.Config {
	return http.Config{
		Mail:    http.Mail{Intake: apiIntake(cfg, a)},
		Tenants: a.Tenants, TrustedProxies: a.TrustedProxies, ProxyFrom: a.ProxyFrom,
		Rates:      rates(a.MaxRequestRate, a.MaxRecipientRate, a.MaxByteRate),
		MaxRequest: int64(a.MaxRequest), MaxConnections: a.MaxConnections,
	}
}
