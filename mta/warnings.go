package mta

import (
	"fmt"
	"slices"
	"time"

	"example.org/mta/delivery/egress"
	"example.org/mta/mta/config"
)

// Warnings says, a sentence each, what is well written in a configuration and will not work on this
// machine as it is now, or is of no use.
func Warnings(cfg *config.Config, now time.Time) []string {
	out := slices.Concat(cfg.Warnings(), unused(cfg), neverRetried(cfg), cfg.Late(now), cfg.Unsigned(), usersWarnings(cfg), consoleWarnings(cfg), keysWarnings(cfg), unsubscribeWarnings(cfg), templateWarnings(cfg), certificateWarnings(cfg, now), tlsReportWarnings(cfg), asideWarnings(cfg))
	missing := egress.Absent(cfg.LocalAddresses())
	for _, s := range cfg.Sources {
		if a, is := missing[s.Name]; is {
			out = append(out, fmt.Sprintf("%s: this machine does not have the address %s: mail takes other sources of the pool, or waits", s.Origin("address"), a))
		}
	}
	return out
}

// unused finds the blocks that mail never gets to, since nothing names them.
func unused(cfg *config.Config) (out []string) {
	pooled, owned, submitted := make(map[string]bool), make(map[string]bool), make(map[string]bool)
	byHeader, poolByHeader := false, false
	for _, l := range cfg.Listeners {
		submitted[l.Tenant] = true
		byHeader = byHeader || len(l.TenantHeaderFrom) > 0
		poolByHeader = poolByHeader || l.PoolHeader != ""
	}
	for _, tenant := range slices.Concat(usersTenants(cfg), keysTenants(cfg)) {
		submitted[tenant] = true
	}
	for _, t := range cfg.Tenants {
		owned[t.Pool] = true
		if !submitted[t.Name] && len(t.Networks) == 0 && !byHeader {
			out = append(out, fmt.Sprintf("tenant %q: no listener, user or API key names it, and it has no networks, so that no mail is its own", t.Name))
		}
	}
	for _, d := range cfg.Domains {
		owned[d.Pool] = true
	}
	for _, d := range cfg.SenderDomainBlocks {
		owned[d.Pool] = true
	}
	for _, p := range cfg.Pools {
		for _, source := range p.Sources() {
			pooled[source] = true
		}
		if p.Name != config.DefaultPool && !owned[p.Name] && !poolByHeader {
			out = append(out, fmt.Sprintf("pool %q: no tenant, domain or sender's domain names it, so that no mail takes its sources", p.Name))
		}
	}
	for _, s := range cfg.Sources {
		if !pooled[s.Name] {
			out = append(out, fmt.Sprintf("source %q: no pool names it, so that no mail takes it", s.Name))
		}
	}
	return out
}
