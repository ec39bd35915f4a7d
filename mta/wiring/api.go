package wiring

import (
	"time"

	"example.org/mta/internal/gcra"
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
)

// TenantRates makes the limits of a tenant's requests by HTTP.
func TenantRates(t *config.Tenant) http.Rates {
	return rates(t.MaxRequestRate, t.MaxRecipientRate, t.MaxByteRate)
}

func rates(requests, recipients config.Rate, octets config.ByteRate) http.Rates {
	return http.Rates{Requests: rate(requests), Recipients: rate(recipients), Octets: gcra.Rate{Events: int(octets), Per: time.Second}}
}

// API makes the settings of an api block.
func API(a *config.API) http.Config {
	return http.Config{
		Tenants: a.Tenants, TrustedProxies: a.TrustedProxies, ProxyFrom: a.ProxyFrom,
		Rates:      rates(a.MaxRequestRate, a.MaxRecipientRate, a.MaxByteRate),
		MaxRequest: int64(a.MaxRequest), MaxConnections: a.MaxConnections,
	}
}
