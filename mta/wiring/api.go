package wiring

import (
	"example.org/mta/mta/config"
	"example.org/mta/submission/http"
)

// API makes the settings of an api block.
func API(a *config.API) http.Config {
	return http.Config{
		Tenants: a.Tenants, TrustedProxies: a.TrustedProxies, ProxyFrom: a.ProxyFrom,
		MaxRequest: int64(a.MaxRequest), MaxConnections: a.MaxConnections,
	}
}
